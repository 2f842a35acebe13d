//! Judges afterwards what closing the gates of busy models early cost (P3), and whether to continue with it.
//!
//! Under pressure the pool closes a gate based on the mean duration of requests. If durations differ widely (a request of a minute
//! among many of a second), the gate stays closed for the long request and saves the waiting requests nothing. Each early closing
//! is therefore compared with an open gate, in milliseconds of waiting:
//!
//! ```text
//! closed:  the waiting time of the model's requests that an open gate would have served
//! open:    the number of requests waiting for the place × the delay until it would have been free
//! ```
//!
//! While gates stay open because that was better, the closings that pressure would have caused are judged in the same way, so the
//! pool can switch back. `types/closing_costs.rs` states the bound.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::closing_costs::{ClosingCosts, Judged};
use crate::types::ids::{ModelId, ReplicaId, Span, Ticket, Time};
use crate::types::lead::Lead;

/// The lead changes after this many closings that gain or lose a swap and a request for each waiting request.
const CLOSINGS_UNTIL_CHANGE: u64 = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct Closings {
    /// Busy replicas that cost waiting requests more than closing their gates would (P3).
    pressed: BTreeSet<ReplicaId>,
    lead: Lead,
    /// The cost so far of closing and of not closing.
    costs: ClosingCosts,
    closed: BTreeMap<ReplicaId, Closed>,
    open: BTreeMap<ReplicaId, Open>,
}

/// A replica whose gate closed early.
#[derive(Clone, Debug)]
struct Closed {
    model: ModelId,
    /// The mean duration of its requests.
    request: Span,
    /// The number of requests that wait for the place.
    waiting: u64,
    /// The time until which an open gate would have kept it in use, as far as known. Its turn would have ended at `turn_ends`.
    in_use_until: Time,
    turn_ends: Time,
    drained: Option<Time>,
    /// Requests that an open gate would have served, and the total time waited by the ones no longer waiting.
    kept_out: BTreeSet<Ticket>,
    waited: Span,
    unit: Span,
}

/// A replica whose gate would have closed early.
#[derive(Clone, Debug)]
struct Open {
    waiting: u64,
    would_be_drained: Time,
    entered: u64,
    /// The time that each request served since then would have waited.
    wait: Span,
    unit: Span,
}

/// The figures of a closing, whether it was made or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub request: Span,
    pub waiting: u64,
    pub drains_in: Span,
    pub turn_left: Span,
    pub entered: u64,
    pub wait: Span,
    /// The time of a swap and a request.
    pub unit: Span,
}

impl Closings {
    /// Busy replicas that cost waiting requests more than closing their gates would (P3).
    pub fn pressed(&self) -> &BTreeSet<ReplicaId> {
        &self.pressed
    }

    pub fn set_pressed(&mut self, pressed: BTreeSet<ReplicaId>) {
        self.pressed = pressed;
    }

    pub fn costs(&self) -> ClosingCosts {
        self.costs
    }

    /// The time since which gates stay open because that costs less.
    pub fn open_since(&self) -> Option<Time> {
        self.lead.simple_since()
    }

    /// Returns true if gates close under pressure.
    pub fn are_made(&self) -> bool {
        self.lead.simple_since().is_none()
    }

    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.is_empty()
    }

    pub fn closes(&mut self, closing: Closing, now: Time) {
        let closed = Closed {
            model: closing.model,
            request: closing.request,
            waiting: closing.waiting,
            in_use_until: now + closing.drains_in,
            turn_ends: now + closing.turn_left,
            drained: None,
            kept_out: BTreeSet::new(),
            waited: Span::ZERO,
            unit: closing.unit,
        };
        self.closed.insert(closing.replica, closed);
    }

    pub fn stays_open(&mut self, closing: Closing, now: Time) {
        self.open.entry(closing.replica).or_insert(Open {
            waiting: closing.waiting,
            would_be_drained: now + closing.drains_in,
            entered: closing.entered,
            wait: closing.wait,
            unit: closing.unit,
        });
    }

    /// A request of the model starts to wait.
    pub fn arrives(&mut self, ticket: Ticket, model: ModelId, now: Time) {
        let of_model = self
            .closed
            .values_mut()
            .filter(|closed| closed.model == model);
        for closed in of_model.filter(|closed| now <= closed.in_use_until.min(closed.turn_ends)) {
            closed.kept_out.insert(ticket);
            closed.in_use_until = closed.in_use_until.max(now + closed.request);
        }
    }

    /// The request no longer waits.
    pub fn leaves(&mut self, ticket: Ticket, waited: Span) {
        for closed in self.closed.values_mut() {
            if closed.kept_out.remove(&ticket) {
                closed.waited = closed.waited + waited;
            }
        }
    }

    /// The replica's last request has ended.
    pub fn drained(&mut self, replica: ReplicaId, now: Time) {
        if let Some(closed) = self.closed.get_mut(&replica) {
            closed.drained.get_or_insert(now);
        }
    }

    /// The closing did not take place.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.closed.remove(&replica);
        self.open.remove(&replica);
    }

    /// Replicas whose gates stay open under pressure.
    pub fn kept_open(&self) -> Vec<ReplicaId> {
        self.open.keys().copied().collect()
    }

    /// A replica whose gate stayed open is no longer in use. Returns true if the lead has changed.
    pub fn became_free(&mut self, replica: ReplicaId, entered: u64, now: Time) -> bool {
        let Some(kept) = self.open.remove(&replica) else {
            return false;
        };
        let closed = kept
            .wait
            .0
            .saturating_mul(entered.saturating_sub(kept.entered));
        let open = kept
            .waiting
            .saturating_mul(now.since(kept.would_be_drained).0);
        let paid = [Span(closed), Span(open)];
        self.judge(false, paid, kept.unit, kept.waiting, now)
    }

    /// Judges the closings whose outcome is fully known. Returns true if the lead has changed.
    pub fn settle(&mut self, now: Time) -> bool {
        let known = |closed: &Closed| {
            let until = closed.in_use_until.min(closed.turn_ends);
            (closed.drained.is_some() && closed.kept_out.is_empty() && until <= now)
                .then_some(until)
        };
        let known: Vec<(ReplicaId, Time)> = self
            .closed
            .iter()
            .filter_map(|(id, closed)| Some((*id, known(closed)?)))
            .collect();
        let mut changed = false;
        for (id, until) in known {
            let closing = self.closed.remove(&id).expect("found");
            let later = until.since(closing.drained.expect("known"));
            let open = closing.waiting.saturating_mul(later.0);
            let paid = [closing.waited, Span(open)];
            changed |= self.judge(true, paid, closing.unit, closing.waiting, now);
        }
        changed
    }

    /// Adds the cost of closing a gate and the cost of keeping it open. Only one is real; the other is hypothetical.
    fn judge(
        &mut self,
        was_made: bool,
        [closed, open]: [Span; 2],
        unit: Span,
        waiting: u64,
        now: Time,
    ) -> bool {
        let change = unit
            .0
            .saturating_mul(waiting.max(1))
            .saturating_mul(CLOSINGS_UNTIL_CHANGE);
        let change = Span(change);
        let closing_led = self.are_made();
        let changed = self.lead.paid(closed, open, change, now);
        self.costs.add(Judged {
            closed,
            open,
            was_made,
            closing_led,
            change,
            changed,
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000;

    fn closing() -> Closing {
        Closing {
            replica: ReplicaId(1),
            model: ModelId(0),
            request: Span(4 * SECOND),
            waiting: 6,
            drains_in: Span(4 * SECOND),
            turn_left: Span(60 * SECOND),
            entered: 10,
            wait: Span(20 * SECOND),
            unit: Span(4 * SECOND),
        }
    }

    /// A gate closes at 0 s and its last request ends after `drain`. A request arrives in vain at 1 s and waits for `wait`.
    fn one(closings: &mut Closings, drain: u64, wait: u64) -> bool {
        closings.closes(closing(), Time(0));
        closings.arrives(Ticket(1), ModelId(0), Time(SECOND));
        closings.arrives(Ticket(2), ModelId(7), Time(SECOND));
        closings.drained(ReplicaId(1), Time(drain));
        assert!(!closings.settle(Time(600 * SECOND)), "one still waits");
        closings.leaves(Ticket(1), Span(wait));
        closings.settle(Time(600 * SECOND))
    }

    #[test]
    fn closing_that_saves_more_than_it_costs_continues() {
        let mut closings = Closings::default();
        // With an open gate the place is free at 5 s instead of 2 s: 6 requests × 3 s against a single wait of 12 s.
        let changes = (0..100).filter(|_| one(&mut closings, 2 * SECOND, 12 * SECOND));
        assert_eq!(changes.count(), 0);
        assert!(closings.are_made() && closings.is_empty());
    }

    #[test]
    fn closing_that_saves_nothing_stops_and_resumes_once_it_would_save_something() {
        let mut closings = Closings::default();
        // The last request took a minute, so the place was free later than the model would otherwise have been idle.
        let first = (1..=100).find(|_| one(&mut closings, 60 * SECOND, 80 * SECOND));
        assert_eq!(
            first,
            Some(3),
            "8 times (4 s for each of 6) is 192 s: lost by the third"
        );
        assert!(!closings.are_made());
        let costs = closings.costs;
        assert_eq!((costs.judged, costs.changes), (3, 1));
        assert_eq!(costs.followed, costs.closed, "all were closed early");
        // A gate stays open, and the place becomes free a minute later than if it had been closed.
        let back = (1..=100).find(|_| {
            closings.stays_open(closing(), Time(0));
            assert_eq!(closings.kept_open(), [ReplicaId(1)]);
            closings.became_free(ReplicaId(1), 11, Time(64 * SECOND))
        });
        assert_eq!(back, Some(2), "each 6 · 60 s - 20 s, of twice 192 s");
        assert!(closings.are_made());
        let costs = closings.costs;
        assert_eq!((costs.judged, costs.changes, costs.late), (5, 2, 0));
        assert!(costs.followed <= costs.bound(), "{costs:?}");
    }

    #[test]
    fn a_request_after_the_end_of_the_turn_counts_for_neither_side() {
        let mut closings = Closings::default();
        let short = Closing {
            turn_left: Span(SECOND / 2),
            ..closing()
        };
        closings.closes(short, Time(0));
        closings.arrives(Ticket(1), ModelId(0), Time(SECOND));
        closings.drained(ReplicaId(1), Time(SECOND));
        closings.settle(Time(2 * SECOND));
        assert!(closings.is_empty(), "no request of it is waited for");
    }
}
