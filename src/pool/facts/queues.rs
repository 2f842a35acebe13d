//! The waiting requests: their deadlines and the models that they wait for. The order in which a model serves them is in its own
//! `Queue`. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Index;

use crate::types::ids::{KeyId, ModelId, Ticket, Time};
use crate::types::tokens::{ServiceClass, Tokens};

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub model: ModelId,
    pub key: KeyId,
    pub class: ServiceClass,
    /// The tokens that it is expected to take, if the gateway has reported them.
    pub expected: Option<Tokens>,
    pub since: Time,
    pub deadline: Time,
    /// The time at which its client gives up on its own; at the latest its deadline.
    pub gives_up: Time,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    tickets: BTreeMap<Ticket, Waiting>,
    deadlines: BTreeSet<(Time, Ticket)>,
    /// Models with waiting requests.
    waited_for: BTreeSet<ModelId>,
}

impl Queues {
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    pub fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.tickets.get(&ticket)
    }

    pub fn first_deadline(&self) -> Option<(Time, Ticket)> {
        self.deadlines.first().copied()
    }

    /// Models with waiting requests.
    pub fn waited_for(&self) -> &BTreeSet<ModelId> {
        &self.waited_for
    }

    pub fn wait_for(&self, model: ModelId) -> bool {
        self.waited_for.contains(&model)
    }

    /// Returns true if the deadlines agree with the requests.
    pub fn is_index_right(&self) -> bool {
        let has_deadline = |(ticket, waiting): (&Ticket, &Waiting)| {
            self.deadlines.contains(&(waiting.deadline, *ticket))
        };
        self.deadlines.len() == self.tickets.len() && self.tickets.iter().all(has_deadline)
    }

    pub fn join(&mut self, ticket: Ticket, waiting: Waiting) {
        self.waited_for.insert(waiting.model);
        self.deadlines.insert((waiting.deadline, ticket));
        self.tickets.insert(ticket, waiting);
    }

    pub fn leave(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.tickets.remove(&ticket)?;
        self.deadlines.remove(&(waiting.deadline, ticket));
        Some(waiting)
    }

    /// Forgets the model after its last request has left.
    pub fn no_longer_wait_for(&mut self, model: ModelId) {
        self.waited_for.remove(&model);
    }

    /// The gateway has described a waiting request. Returns it as it was before.
    pub fn describe(
        &mut self,
        ticket: Ticket,
        class: ServiceClass,
        expected: Tokens,
    ) -> Option<Waiting> {
        let waiting = self.tickets.get_mut(&ticket)?;
        let before = waiting.clone();
        (waiting.class, waiting.expected) = (class, Some(expected));
        Some(before)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Ticket, &Waiting)> {
        self.tickets.iter()
    }

    /// The request's client gives up at this time. Returns the model that it waits for.
    pub fn gives_up(&mut self, ticket: Ticket, at: Time) -> Option<ModelId> {
        let waiting = self.tickets.get_mut(&ticket)?;
        waiting.gives_up = waiting.gives_up.min(at);
        Some(waiting.model)
    }
}

impl Index<&Ticket> for Queues {
    type Output = Waiting;

    fn index(&self, ticket: &Ticket) -> &Waiting {
        &self.tickets[ticket]
    }
}
