//! Fairness of calm storms: nothing crashes and no administrator acts, so every wait must end within a bound that follows from the
//! rules. Records the waits and checks them against it.
//!
//! A request waits for at most
//!
//! ```text
//! passed over + Σ rows × one turn, over the models of its priority + the time of higher ones
//! one turn = longest max_turn + longest request + preempt_drain + stop_grace + longest load
//!            + the time for memory to come back
//! ```
//!
//! where `rows` counts how often all seats of a replica are filled before it. For its own model: by the requests served before it,
//! and once more. For another model: by earlier requests, since the first to come keeps a replica beyond its turn (P5), times the
//! keys, since requests of other keys may go before the earliest (Q1), and once more for the turn it may have begun (P3). For a
//! limited time, models with more waiting requests may be served first. A model of higher priority takes time while requests wait
//! for it or it has a replica, busy or kept hot (P2).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::random::Random;
use pool::{Limits, ModelId, ModelSpec, Priority, Refusal, Span, Ticket, Time};

/// The time for which models with more waiting requests go first.
const PASSED_OVER: Span = Span::from_secs(300);

/// The number of keys.
pub(super) const KEYS: u64 = 3;

#[derive(Clone, Debug)]
pub(super) struct FairnessCheck {
    /// The longest request and the longest load.
    pub longest: Span,
    pub load: Span,
    turn: Span,
    priorities: BTreeMap<ModelId, Priority>,
    seats: BTreeMap<ModelId, u64>,
    waits: BTreeMap<Ticket, Wait>,
    served: BTreeMap<ModelId, u64>,
    /// The time during which a model above the lowest priority was loaded or waited for.
    higher: Span,
    last: Time,
    /// The longest wait, in thousandths of its bound.
    pub worst: u64,
}

#[derive(Clone, Debug)]
struct Wait {
    model: ModelId,
    since: Time,
    higher_before: Span,
    served_before: u64,
    /// Rows of seats that requests of models of equal priority fill before it.
    rows_of_others: u64,
}

impl FairnessCheck {
    /// Creates models for which a bound holds: nothing protected, nothing refused, short times.
    pub fn new(
        random: &mut Random,
        specs: &mut BTreeMap<ModelId, ModelSpec>,
        limits: &Limits,
    ) -> FairnessCheck {
        let mixed = random.chance(500);
        let longest = Span::from_secs(random.between(1, 60));
        let load = Span::from_secs(random.between(1, 40));
        let (mut turn, mut grace) = (Span::ZERO, Span::ZERO);
        for spec in specs.values_mut() {
            spec.priority = Priority(u32::from(mixed && random.chance(300)));
            spec.queue_limit = 100_000;
            spec.queue_timeout = Span::from_secs(86_400 * 7);
            spec.load_deadline = Span(load.0 * 10);
            spec.reload = Span(random.between(1, load.0));
            spec.keep_hot = Span::from_secs(random.between(5, 60));
            spec.loader = None;
            turn = turn.max(spec.max_turn.unwrap_or(Span::from_secs(60)));
            grace = grace.max(Span(spec.stop_grace.0 + 500));
        }
        let parts = [
            turn,
            longest,
            limits.preempt_drain,
            grace,
            load,
            limits.release_wait,
        ];
        FairnessCheck {
            longest,
            load,
            turn: Span(parts.iter().map(|part| part.0).sum()),
            priorities: specs
                .iter()
                .map(|(&id, spec)| (id, spec.priority))
                .collect(),
            seats: specs
                .iter()
                .map(|(&id, spec)| (id, u64::from(spec.seats_per_replica.max(1))))
                .collect(),
            waits: BTreeMap::new(),
            served: BTreeMap::new(),
            higher: Span::ZERO,
            last: Time(0),
            worst: 0,
        }
    }

    /// These models had replicas or waiting requests until now.
    pub fn time_passes(&mut self, now: Time, mut about: impl Iterator<Item = ModelId>) {
        if about.any(|model| self.priorities[&model] > Priority(0)) {
            self.higher = Span(self.higher.0 + now.since(self.last).0);
        }
        self.last = self.last.max(now);
    }

    pub fn waits(&mut self, now: Time, ticket: Ticket, model: ModelId) {
        let mut earlier: BTreeMap<ModelId, u64> = BTreeMap::new();
        for wait in self.waits.values() {
            *earlier.entry(wait.model).or_default() += 1;
        }
        let own = self.priorities[&model];
        let others = self.priorities.iter();
        let others = others.filter(|(id, priority)| **priority == own && **id != model);
        let rows_of = |other: &ModelId| {
            let waiting = earlier.get(other).copied().unwrap_or(0);
            (waiting * KEYS).div_ceil(self.seats[other]) + 1
        };
        let wait = Wait {
            model,
            since: now,
            higher_before: self.higher,
            served_before: self.served_of(model),
            rows_of_others: others.map(|(other, _)| rows_of(other)).sum(),
        };
        self.waits.insert(ticket, wait);
    }

    /// A seat was taken without waiting.
    pub fn seated(&mut self, model: ModelId) {
        *self.served.entry(model).or_default() += 1;
    }

    pub fn granted(&mut self, now: Time, ticket: Ticket, broken: &mut Vec<String>) {
        let Some(wait) = self.waits.remove(&ticket) else {
            return;
        };
        let before_it = self.served_of(wait.model) - wait.served_before;
        self.seated(wait.model);
        let own = self.priorities[&wait.model];
        let higher = if own > Priority(0) {
            Span::ZERO
        } else {
            Span(self.higher.0 - wait.higher_before.0)
        };
        let rows = before_it / self.seats[&wait.model] + 1 + wait.rows_of_others;
        let bound = Span(PASSED_OVER.0 + rows * self.turn.0 + higher.0);
        let waited = now.since(wait.since);
        self.worst = self.worst.max(waited.0 * 1000 / bound.0.max(1));
        if waited > bound {
            broken.push(format!(
                "starved: {ticket} of {} waited for {waited}, more than the bound of {bound}: {rows} rows, {} per turn, {higher} of higher priority",
                wait.model,
                self.turn
            ));
        }
    }

    /// Only models that can never be loaded may be refused.
    pub fn refused(&mut self, ticket: Ticket, refusal: &Refusal, broken: &mut Vec<String>) {
        self.waits.remove(&ticket);
        if !matches!(refusal, Refusal::NeverFits { .. }) {
            broken.push(format!("starved: {ticket} is refused: {refusal}"));
        }
    }

    fn served_of(&self, model: ModelId) -> u64 {
        self.served.get(&model).copied().unwrap_or(0)
    }
}
