//! A schedule with a checker that keeps its own copy of every sequence and of the contents of every page, and verifies each step
//! against it.

use crate::batch::schedule::{Arrival, Limits, Part, Plan, RequestId, Schedule};
use crate::decoding::Strategy;
use crate::step::PAGE_TOKENS;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

pub(super) fn text(first: u32, tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|nth| first + nth).collect()
}

/// The test's own record of a request.
pub(super) struct Known {
    branches: Vec<Vec<u32>>,
    prompt: usize,
    response: usize,
    pub(super) generated: usize,
    strategy: Strategy,
    most_tokens: usize,
    wants_all_rows: bool,
    wanted_rows: usize,
}

/// A schedule with its checker.
pub(super) struct World {
    limits: Limits,
    pub(super) schedule: Schedule,
    pub(super) known: BTreeMap<RequestId, Known>,
    /// For each position in the cache, the text up to and including its token.
    cache: Vec<Option<Vec<u32>>>,
    begun: RequestId,
    pub(super) ended: Vec<RequestId>,
    pub(super) steps: usize,
    pub(super) accepted: usize,
}

impl World {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            schedule: Schedule::new(limits),
            known: BTreeMap::new(),
            cache: vec![None; limits.pages * PAGE_TOKENS],
            begun: 0,
            ended: Vec::new(),
            steps: 0,
            accepted: 0,
        }
    }

    pub(super) fn arrive(&mut self, prompt: Vec<u32>, response: usize) -> RequestId {
        self.arrive_with(prompt, response, Strategy::Sampling, false)
    }

    pub(super) fn arrive_with(
        &mut self,
        prompt: Vec<u32>,
        response: usize,
        strategy: Strategy,
        wants_all_rows: bool,
    ) -> RequestId {
        let sequences = match strategy {
            Strategy::Beams(settings) => settings.beams,
            _ => 1,
        };
        let arrival = Arrival {
            most_tokens: prompt.len() + response * sequences,
            prompt: prompt.clone(),
            needs_all_rows: wants_all_rows,
            takes_drafts: strategy == Strategy::Sampling,
            adapter: None,
        };
        let known = Known {
            prompt: prompt.len(),
            branches: vec![prompt],
            response,
            generated: 0,
            strategy,
            most_tokens: arrival.most_tokens,
            wants_all_rows,
            wanted_rows: 0,
        };
        let request = self.schedule.arrive(arrival);
        self.known.insert(request, known);
        request
    }

    pub(super) fn end(&mut self, request: RequestId) {
        self.schedule.end(request);
        self.known.remove(&request).expect("it ends once");
        self.ended.push(request);
    }

    /// Plans, checks and computes a step.
    pub(super) fn step(&mut self) -> Option<Plan> {
        let plan = self.schedule.plan()?;
        assert!(plan.too_long.is_empty(), "everything that was let in fits");
        self.steps += 1;
        for request in &plan.begun {
            assert!(*request > self.begun, "{request} was overtaken");
            self.begun = *request;
        }
        self.check_order_and_budgets();
        for (from, to) in &plan.copies {
            for place in 0..PAGE_TOKENS {
                self.cache[*to as usize * PAGE_TOKENS + place] =
                    self.cache[*from as usize * PAGE_TOKENS + place].clone();
            }
        }
        self.check_and_write(&plan);
        self.schedule.computed(&plan);
        Some(plan)
    }

    fn check_order_and_budgets(&self) {
        let schedule = &self.schedule;
        let order = schedule.running.iter().chain(&schedule.waiting);
        assert!(
            order.is_sorted(),
            "{:?} {:?}",
            schedule.running,
            schedule.waiting
        );
        assert!(schedule.running.len() <= self.limits.seats);
        let sum = |of: &dyn Fn(&RequestId) -> usize| schedule.running.iter().map(of).sum::<usize>();
        if let Some(most) = self.limits.total_tokens {
            let total = sum(&|request| self.known[request].most_tokens);
            assert!(
                total <= most || schedule.running.len() == 1,
                "{total} of {most}"
            );
        }
        if let Some(most) = self.limits.prefill_tokens {
            let filling = |request: &&RequestId| schedule.groups[request].is_filling;
            let filling: Vec<&RequestId> = schedule.running.iter().filter(filling).collect();
            let tokens = |request: &&RequestId| self.known[request].branches[0].len();
            let total: usize = filling.iter().map(tokens).sum();
            assert!(total <= most || filling.len() == 1, "{total} of {most}");
        }
    }

    fn check_and_write(&mut self, plan: &Plan) {
        let (mut row, mut wanted) = (0, plan.step.wanted.iter().peekable());
        let mut written: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let goes_on = |part: &Part| !self.schedule.groups[&part.request].is_filling;
        let prompt_rows: usize = plan
            .parts
            .iter()
            .zip(&plan.step.spans)
            .filter(|(part, _)| !goes_on(part))
            .map(|(_, span)| span.count)
            .sum();
        let most = if plan.parts.first().is_some_and(goes_on) {
            self.limits.prompt_rows_beside
        } else {
            self.limits.prompt_rows
        };
        assert!(prompt_rows <= most);
        for (part, span) in plan.parts.iter().zip(&plan.step.spans) {
            let known = self.known.get_mut(&part.request).expect("it has not ended");
            let tokens = &known.branches[part.branch];
            let end = span.past + span.count;
            let proposed = self.schedule.proposed(part.request);
            assert_eq!(part.proposed, proposed.len());
            let decided = end - proposed.len();
            assert!(span.count > proposed.len() && decided <= tokens.len());
            assert!(proposed.is_empty() || (span.count == 1 + proposed.len() && goes_on(part)));
            assert!(end < known.most_tokens || proposed.is_empty());
            let tokens = &[&tokens[..], proposed].concat();
            assert_eq!(span.pages.len(), end.div_ceil(PAGE_TOKENS));
            let place = |position: usize| {
                span.pages[position / PAGE_TOKENS] as usize * PAGE_TOKENS + position % PAGE_TOKENS
            };
            for position in 0..span.past {
                let found = self.cache[place(position)].as_deref();
                assert_eq!(
                    found,
                    Some(&tokens[..=position]),
                    "request {}",
                    part.request
                );
            }
            let mut of_part = 0;
            for position in span.past..end {
                assert_eq!(plan.step.tokens[row], tokens[position]);
                if wanted.next_if(|next| **next == row).is_some() {
                    of_part += 1;
                    known.wanted_rows += 1;
                    let is_last = position + 1 >= tokens.len() - proposed.len();
                    assert!(is_last || (known.wants_all_rows && position < known.prompt));
                }
                let text = tokens[..=position].to_vec();
                assert_eq!(written.insert(place(position), text), None, "written twice");
                row += 1;
            }
            assert_eq!(part.wanted, of_part);
            assert_eq!(part.decides, decided == tokens.len() - proposed.len());
        }
        assert_eq!((row, wanted.next()), (plan.step.tokens.len(), None));
        // No request writes to a position that another reads.
        for (part, span) in plan.parts.iter().zip(&plan.step.spans) {
            for position in 0..span.past {
                let page = span.pages[position / PAGE_TOKENS] as usize;
                let place = page * PAGE_TOKENS + position % PAGE_TOKENS;
                assert!(!written.contains_key(&place), "request {}", part.request);
            }
        }
        for (place, text) in written {
            self.cache[place] = Some(text);
        }
    }

    /// Advances or ends every request that has its deciding rows.
    pub(super) fn advance(&mut self, plan: &Plan, random: &mut StdRng) {
        let deciding = plan.parts.iter().filter(|part| part.decides);
        let mut requests: Vec<RequestId> = deciding.map(|part| part.request).collect();
        requests.dedup();
        for request in requests {
            let known = self.known.get_mut(&request).expect("it has not ended");
            let parts = plan.parts.iter().filter(|part| part.request == request);
            assert_eq!(
                parts.count(),
                known.branches.len(),
                "all sequences advance together"
            );
            known.generated += 1;
            // Draws random tokens, and continues while they match the proposals.
            let proposed = self.schedule.proposed(request).to_vec();
            let mut accepted = 0;
            while let Some(token) = proposed.get(accepted)
                && known.generated < known.response
                && random.random_range(0..3) == *token
            {
                known.branches[0].push(*token);
                known.generated += 1;
                accepted += 1;
            }
            self.accepted += accepted;
            if known.generated >= known.response {
                assert!(!known.wants_all_rows || known.wanted_rows >= known.prompt);
                self.end(request);
                continue;
            }
            let branches = known.branches.len();
            let mut any = |parent: usize| (parent, random.random_range(0..3));
            let ways: Vec<(usize, u32)> = match known.strategy {
                Strategy::Sampling => vec![any(0)],
                Strategy::Beams(settings) => {
                    let way = |nth| any((nth * 7 + known.generated) % branches);
                    (0..settings.beams).map(way).collect()
                }
                Strategy::Contrastive(settings) => {
                    let chosen = known.generated % branches;
                    (0..settings.candidates).map(|_| any(chosen)).collect()
                }
            };
            let way = |(parent, token): &(usize, u32)| {
                let mut tokens = known.branches[*parent].clone();
                tokens.push(*token);
                tokens
            };
            known.branches = ways.iter().map(way).collect();
            self.schedule.accept(request, accepted);
            self.schedule.advance(request, &ways);
        }
    }

    /// Runs one step, then advances every request.
    pub(super) fn once(&mut self) -> Plan {
        let plan = self.step().expect("a step");
        self.advance(&plan, &mut StdRng::seed_from_u64(0));
        plan
    }

    pub(super) fn run_to_the_end(&mut self, steps_max: usize) {
        let mut random = StdRng::seed_from_u64(0);
        for _ in 0..steps_max {
            let Some(plan) = self.step() else {
                assert!(
                    self.schedule.is_empty(),
                    "nothing is planned for those who are left"
                );
                assert_eq!(self.schedule.held_pages(), 0);
                return;
            };
            self.advance(&plan, &mut random);
        }
        panic!("not all have ended after {steps_max} steps");
    }
}
