//! Clients of a storm: requests that arrive, wait, are served, and leave, some of them at an announced time.

use alloc::vec::Vec;

use super::{Due, Fault, Play};
use pool::{Event, KeyId, ModelId, ReplicaId, Span, Ticket, Time};

impl Play {
    pub(super) fn arrives(&mut self, at: Time, ticket: Ticket, model: ModelId, key: KeyId) {
        self.report.requests += 1;
        let gives_up = self.patience(at, ticket);
        let seats = self.specs[&model].seats_per_replica;
        let replicas: Vec<ReplicaId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.model == model)
            .map(|(&id, _)| id)
            .collect();
        self.world.now = self.world.now.max(at);
        for replica in replicas {
            if self.world.enter((ticket, key), replica, seats, at) {
                self.report.seated_by_gate += 1;
                self.referee.seat_taken(replica);
                if let Some(fairness) = &mut self.fairness {
                    fairness.seated(model);
                }
                self.is_served(at, ticket);
                return;
            }
        }
        self.waiting.insert(ticket, model);
        if let Some(fairness) = &mut self.fairness {
            fairness.waits(at, ticket, model);
        }
        let arrival = Event::RequestArrived { ticket, model, key };
        let gives_up = gives_up.map(|at| Event::RequestGivesUp { ticket, at });
        self.feed_all(at, core::iter::once(arrival).chain(gives_up).collect());
    }

    /// The time the client disconnects, if it does so before its response. Returns the time if the client announces it.
    fn patience(&mut self, at: Time, ticket: Ticket) -> Option<Time> {
        if self.fairness.is_some() {
            return None;
        }
        let patience = self.random.below(600_000);
        let until = at + Span(patience);
        match self.random.below(100) {
            // The client hangs up without notice.
            0..=14 => {
                self.push(until, Due::HangUp(ticket));
                None
            }
            // The time for its complete response is limited.
            15..=24 => {
                self.push(until, Due::HangUp(ticket));
                Some(until)
            }
            // The time until it has a seat is limited, usually to less than a load takes including what is ahead of it.
            25..=39 => {
                let until = at + Span(patience / 10);
                self.push(until, Due::GivesUp(ticket));
                Some(until)
            }
            _ => None,
        }
    }

    /// A client that still waits disconnects (Q3). Returns true if it was waiting.
    pub(super) fn leaves_queue(&mut self, at: Time, ticket: Ticket) -> bool {
        if self.waiting.remove(&ticket).is_none() {
            return false;
        }
        self.report.left += 1;
        let event = Event::RequestLeft { ticket };
        if self.fault == Some(Fault::DepartureUnseen) {
            self.referee.event(at, &event);
        } else {
            self.feed(at, event);
            self.check_queues();
        }
        true
    }

    /// The pool's queues contain exactly the requests that really wait, unless a planted fault interferes.
    pub(super) fn check_queues(&mut self) {
        if self.fault.is_none() {
            let view = self.world.pool.view(self.world.now);
            self.referee.queues_are_right(&view);
            self.report.broken.append(&mut self.referee.broken);
        }
    }

    pub(super) fn is_served(&mut self, at: Time, ticket: Ticket) {
        let longest = self
            .fairness
            .as_ref()
            .map_or(90_000, |fairness| fairness.longest.0);
        let took = self.random.between(20, longest);
        self.push(at + Span(took), Due::Served(ticket));
    }

    pub(super) fn ends(&mut self, at: Time, ticket: Ticket) {
        let replica = self.world.seats[&ticket];
        let event = self.world.end(ticket, at);
        let in_flight = self
            .world
            .gates
            .get(&replica)
            .map_or(0, |gate| gate.in_flight);
        self.referee.seat_ended(replica, at, in_flight);
        if let Some(event) = event {
            self.feed(at, event);
        }
    }
}
