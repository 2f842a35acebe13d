//! The schedule by story and by storm. A checker keeps its own copy of every sequence and of what lies on every page, and
//! holds each step against it.
//! One file because stories and storm share the checker.

use super::*;
use crate::batch::room::answer_room;
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping, Strategy};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const LIMITS: Limits = Limits {
    pages: 64,
    seats: 8,
    prompt_rows: 64,
    prompt_rows_beside: 32,
    prefill_tokens: None,
    total_tokens: None,
    joining: None,
    drafts: DraftLimits {
        tokens: 0,
        lookup_max: 3,
        lookup_min: 2,
    },
};

fn text(first: u32, tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|nth| first + nth).collect()
}

fn arrival(prompt: Vec<u32>, answer: usize) -> Arrival {
    Arrival {
        most_tokens: prompt.len() + answer,
        prompt,
        needs_all_rows: false,
        takes_drafts: true,
        adapter: None,
    }
}

/// What the test knows of a request.
struct Known {
    branches: Vec<Vec<u32>>,
    prompt: usize,
    answer: usize,
    generated: usize,
    strategy: Strategy,
    most_tokens: usize,
    wants_all_rows: bool,
    wanted_rows: usize,
}

/// A schedule with its checker.
struct World {
    limits: Limits,
    schedule: Schedule,
    known: BTreeMap<RequestId, Known>,
    /// For each place in the cache, the text up to the token that lies there.
    cache: Vec<Option<Vec<u32>>>,
    begun: RequestId,
    ended: Vec<RequestId>,
    steps: usize,
    accepted: usize,
}

impl World {
    fn new(limits: Limits) -> Self {
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

    fn arrive(&mut self, prompt: Vec<u32>, answer: usize) -> RequestId {
        self.arrive_with(prompt, answer, Strategy::Sampling, false)
    }

    fn arrive_with(
        &mut self,
        prompt: Vec<u32>,
        answer: usize,
        strategy: Strategy,
        wants_all_rows: bool,
    ) -> RequestId {
        let sequences = match strategy {
            Strategy::Beams(settings) => settings.beams,
            _ => 1,
        };
        let arrival = Arrival {
            most_tokens: prompt.len() + answer * sequences,
            prompt: prompt.clone(),
            needs_all_rows: wants_all_rows,
            takes_drafts: strategy == Strategy::Sampling,
            adapter: None,
        };
        let known = Known {
            prompt: prompt.len(),
            branches: vec![prompt],
            answer,
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

    fn end(&mut self, request: RequestId) {
        self.schedule.end(request);
        self.known.remove(&request).expect("it ends once");
        self.ended.push(request);
    }

    /// Plans, checks and computes a step. The requests of its rows, prompts apart from those who go on.
    fn step(&mut self) -> Option<Plan> {
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
        let most = match plan.parts.first().is_some_and(goes_on) {
            true => self.limits.prompt_rows_beside,
            false => self.limits.prompt_rows,
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
        // No request writes where another reads.
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

    /// Goes on with every request that has its deciding rows, or ends it.
    fn go_on(&mut self, plan: &Plan, random: &mut StdRng) {
        let deciding = plan.parts.iter().filter(|part| part.decides);
        let mut requests: Vec<RequestId> = deciding.map(|part| part.request).collect();
        requests.dedup();
        for request in requests {
            let known = self.known.get_mut(&request).expect("it has not ended");
            let parts = plan.parts.iter().filter(|part| part.request == request);
            assert_eq!(parts.count(), known.branches.len(), "all go on together");
            known.generated += 1;
            // Any token follows; while it is the proposed one, the next does too.
            let proposed = self.schedule.proposed(request).to_vec();
            let mut accepted = 0;
            while let Some(token) = proposed.get(accepted)
                && known.generated < known.answer
                && random.random_range(0..3) == *token
            {
                known.branches[0].push(*token);
                known.generated += 1;
                accepted += 1;
            }
            self.accepted += accepted;
            if known.generated >= known.answer {
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

    /// One step, after which everybody goes on.
    fn once(&mut self) -> Plan {
        let plan = self.step().expect("a step");
        self.go_on(&plan, &mut StdRng::seed_from_u64(0));
        plan
    }

    fn run_to_the_end(&mut self, steps_max: usize) {
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
            self.go_on(&plan, &mut random);
        }
        panic!("not all have ended after {steps_max} steps");
    }
}

fn requests(plan: &Plan) -> Vec<(RequestId, usize)> {
    let parts = plan.parts.iter().zip(&plan.step.spans);
    parts
        .map(|(part, span)| (part.request, span.count))
        .collect()
}

#[test]
fn a_long_prompt_goes_in_chunks_beside_those_who_go_on() {
    let mut world = World::new(LIMITS);
    let mut random = StdRng::seed_from_u64(1);
    let short = world.arrive(text(100, 5), 20);
    let first = world.step().expect("a step");
    assert_eq!(requests(&first), [(short, 5)]);
    world.go_on(&first, &mut random);
    let long = world.arrive(text(1000, 200), 4);
    let mut rows = 0;
    while rows < 200 {
        let plan = world.step().expect("a step");
        assert_eq!(requests(&plan)[0], (short, 1), "a token in every step");
        assert!(requests(&plan)[1].1 <= LIMITS.prompt_rows_beside);
        rows += requests(&plan)[1].1;
        assert_eq!(plan.parts[1].decides, rows == 200);
        world.go_on(&plan, &mut random);
    }
    world.run_to_the_end(100);
    assert_eq!(world.ended, [long, short]);
}

#[test]
fn a_prompt_that_is_known_is_not_computed_again() {
    let mut world = World::new(LIMITS);
    world.arrive(text(0, 50), 1);
    world.run_to_the_end(10);
    world.arrive(text(0, 50), 1);
    let plan = world.step().expect("a step");
    assert_eq!(requests(&plan), [(2, 2)], "three full pages are known");
    assert_eq!(world.schedule.counts().known_tokens, 48);
    world.go_on(&plan, &mut StdRng::seed_from_u64(0));
    // A prompt that ends with a page computes that page: the last row is needed.
    world.arrive(text(0, 48), 1);
    assert_eq!(requests(&world.step().expect("a step")), [(3, 16)]);
}

#[test]
fn prompts_that_arrive_together_compute_what_they_share_once() {
    let mut world = World::new(LIMITS);
    for _ in 0..4 {
        world.arrive(text(0, 100), 3);
    }
    let mut rows = 0;
    while world.known.values().any(|known| known.generated == 0) {
        let plan = world.step().expect("a step");
        let at_once = plan.step.spans.iter().filter(|span| span.past == 0);
        assert!(at_once.count() <= 1);
        rows += plan.step.tokens.len();
        world.go_on(&plan, &mut StdRng::seed_from_u64(0));
    }
    assert!(rows < 100 + 4 * 8, "{rows} rows were computed");
    world.run_to_the_end(20);
}

#[test]
fn wanted_rows_are_computed_even_if_they_are_known() {
    let mut world = World::new(LIMITS);
    world.arrive(text(0, 90), 1);
    world.run_to_the_end(10);
    world.arrive_with(text(0, 90), 2, Strategy::Sampling, true);
    world.run_to_the_end(10);
    assert_eq!(world.schedule.counts().known_tokens, 0);
}

#[test]
fn the_youngest_gives_way_when_pages_run_out_and_is_computed_again() {
    let limits = Limits { pages: 6, ..LIMITS };
    let mut world = World::new(limits);
    world.arrive(text(100, 30), 40);
    world.arrive(text(200, 30), 40);
    world.run_to_the_end(200);
    assert_eq!(world.ended, [1, 2]);
    assert!(world.schedule.counts().preemptions >= 1);
}

#[test]
fn a_prompt_that_does_not_fit_lets_nobody_pass() {
    let limits = Limits { pages: 8, ..LIMITS };
    let mut world = World::new(limits);
    world.arrive(text(100, 60), 20);
    world.once();
    world.arrive(text(1000, 100), 2);
    let small = world.arrive(text(2000, 2), 1);
    world.run_to_the_end(100);
    assert_eq!(world.ended.last(), Some(&small));
}

#[test]
fn budgets_of_prompts_and_of_all_tokens_hold() {
    let limits = Limits {
        total_tokens: Some(100),
        prefill_tokens: Some(50),
        ..LIMITS
    };
    let mut world = World::new(limits);
    world.arrive(text(0, 40), 30);
    world.arrive(text(100, 40), 10);
    world.arrive(text(200, 8), 1);
    let plan = world.once();
    assert_eq!(
        requests(&plan),
        [(1, 40)],
        "80 tokens of prompts are too many"
    );
    world.run_to_the_end(100);
    assert_eq!(
        world.ended,
        [1, 3, 2].map(|id| id.min(3)).to_vec().as_slice()
    );
}

#[test]
fn requests_join_those_that_run_when_enough_wait_or_after_so_many_steps() {
    let joining = Joining {
        served_ratio_milli: 2000,
        steps: 5,
    };
    let limits = Limits {
        joining: Some(joining),
        ..LIMITS
    };
    let begins = |plan: Plan| plan.begun;
    let mut world = World::new(limits);
    let first = world.arrive(text(0, 4), 60);
    assert_eq!(begins(world.once()), [first], "nobody runs");
    let second = world.arrive(text(100, 4), 60);
    assert!(begins(world.once()).is_empty(), "one waits for one");
    let third = world.arrive(text(200, 4), 60);
    assert_eq!(begins(world.once()), [second, third], "two wait for one");
    let fourth = world.arrive(text(300, 4), 60);
    let waited: Vec<_> = (0..6).map(|_| begins(world.once())).collect();
    assert!(waited[..5].iter().all(Vec::is_empty), "{waited:?}");
    assert_eq!(waited[5], [fourth], "it has waited for five steps");
}

#[test]
fn a_request_that_ends_before_its_turn_is_not_missed() {
    let mut world = World::new(Limits { seats: 1, ..LIMITS });
    let [_, second, _] = [0, 100, 200].map(|first| world.arrive(text(first, 20), 5));
    world.once();
    world.end(second);
    world.run_to_the_end(100);
    assert_eq!(world.ended, [2, 1, 3]);
}

#[test]
fn a_request_that_nothing_can_hold_is_ended_and_not_tried_for_ever() {
    let mut schedule = Schedule::new(Limits { pages: 2, ..LIMITS });
    let request = schedule.arrive(arrival(text(0, 100), 1));
    let plan = schedule.plan().expect("news");
    assert_eq!((plan.too_long, plan.parts), (vec![request], Vec::new()));
    assert!(schedule.is_empty());
}

#[test]
fn proposed_tokens_take_pages_and_give_them_back_where_they_were_wrong() {
    let drafts = DraftLimits {
        tokens: 8,
        ..LIMITS.drafts
    };
    let mut schedule = Schedule::new(Limits { drafts, ..LIMITS });
    let prompt: Vec<u32> = (0..4).cycle().take(28).collect();
    let mut length = prompt.len();
    let request = schedule.arrive(arrival(prompt, 200));
    // All that is proposed of a text that goes on repeating is right.
    let plan = loop {
        let plan = schedule.plan().expect("a step");
        schedule.computed(&plan);
        let proposed = schedule.proposed(request).to_vec();
        let next: Vec<u32> = (0..4).cycle().skip(length).take(proposed.len()).collect();
        assert_eq!(proposed, next);
        if proposed.len() == 8 && (length + 8).div_ceil(PAGE_TOKENS) > length.div_ceil(PAGE_TOKENS)
        {
            break plan;
        }
        schedule.accept(request, proposed.len());
        length += proposed.len();
        schedule.advance(request, &[(0, length as u32 % 4)]);
        length += 1;
        assert!(length < 200, "eight tokens are never proposed");
    };
    let span = &plan.step.spans[0];
    assert_eq!((span.past, span.count), (length - 1, 9));
    assert_eq!((plan.parts[0].wanted, plan.parts[0].proposed), (9, 8));
    assert_eq!(span.pages.len(), (length + 8).div_ceil(PAGE_TOKENS));
    schedule.accept(request, 0);
    schedule.advance(request, &[(0, 99)]);
    assert_eq!(schedule.held_pages(), length.div_ceil(PAGE_TOKENS));
    let plan = schedule.plan().expect("a step");
    assert_eq!(plan.step.tokens, [99]);
    assert_eq!(plan.step.spans[0].past, length);
    schedule.end(request);
    assert_eq!(schedule.held_pages(), 0);
}

fn any_strategy(random: &mut StdRng) -> Strategy {
    match random.random_range(0..6) {
        0 => Strategy::Beams(BeamSettings {
            beams: random.random_range(2..5),
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Never,
        }),
        1 => Strategy::Contrastive(ContrastiveSettings {
            penalty_alpha: 0.5,
            candidates: random.random_range(1..5),
        }),
        _ => Strategy::Sampling,
    }
}

#[test]
fn every_request_ends_once_and_in_turn_whatever_happens() {
    let (mut preemptions, mut known_tokens, mut accepted) = (0, 0, 0);
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let pages = random.random_range(6..40);
        let limits = Limits {
            pages,
            seats: random.random_range(1..10),
            prompt_rows: random.random_range(16..80),
            prompt_rows_beside: random.random_range(1..40),
            prefill_tokens: random.random_bool(0.3).then(|| random.random_range(1..200)),
            total_tokens: random.random_bool(0.3).then(|| random.random_range(1..400)),
            joining: random.random_bool(0.3).then(|| Joining {
                served_ratio_milli: random.random_range(0..5000),
                steps: random.random_range(0..30),
            }),
            drafts: DraftLimits {
                tokens: [0, 1, 8, 15][random.random_range(0..4)],
                lookup_max: random.random_range(2..4),
                lookup_min: random.random_range(1..3),
            },
        };
        let mut world = World::new(limits);
        let mut arrived = 0;
        while arrived < 60 || !world.schedule.is_empty() {
            assert!(world.steps < 60_000, "somebody starves");
            if arrived < 60 && random.random_bool(0.3) {
                let strategy = any_strategy(&mut random);
                let prompt = random.random_range(1..(pages * PAGE_TOKENS * 3 / 4).min(150));
                let room = answer_room(strategy, pages, prompt);
                if room > 0 {
                    // Few different tokens, so that beginnings meet.
                    let first = random.random_range(0..4) * 1000;
                    let own = random.random_range(0..=prompt);
                    let mut tokens = text(first, own);
                    tokens.extend((own..prompt).map(|_| random.random_range(0..3)));
                    let wants_all_rows =
                        random.random_bool(0.15) || matches!(strategy, Strategy::Contrastive(_));
                    let answer = random.random_range(1..=room.min(40));
                    world.arrive_with(tokens, answer, strategy, wants_all_rows);
                    arrived += 1;
                }
            }
            if random.random_bool(0.02)
                && let Some(request) = world.known.keys().next_back().copied()
            {
                world.end(request);
            }
            if let Some(plan) = world.step() {
                world.go_on(&plan, &mut random);
            } else {
                assert!(world.schedule.is_empty());
            }
        }
        let mut ended = world.ended.clone();
        ended.sort_unstable();
        assert!(ended.iter().copied().eq(1..=60), "each ends exactly once");
        assert_eq!(world.schedule.held_pages(), 0);
        preemptions += world.schedule.counts().preemptions;
        known_tokens += world.schedule.counts().known_tokens;
        accepted += world.accepted;
    }
    assert!(
        preemptions > 20 && known_tokens > 1000 && accepted > 1000,
        "{preemptions} {known_tokens} {accepted}"
    );
}
