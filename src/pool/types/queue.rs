//! One model's waiting requests: fair between keys, then first come, first served (Q1). Start-time fair queueing with
//! unit cost: a key's n-th waiting request is tagged n rounds after the round being served, so a key with a thousand
//! requests and a key with one take turns.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::types::ids::{KeyId, Ticket};

#[derive(Clone, Debug, Default)]
pub struct Queue {
    by_turn: BTreeSet<(u64, Ticket)>,
    /// Each ticket's turn, and its place in the order of arrival.
    turn_of: BTreeMap<Ticket, (u64, u64)>,
    by_arrival: BTreeMap<u64, Ticket>,
    arrivals: u64,
    next_round: BTreeMap<KeyId, u64>,
    round: u64,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.by_turn.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// The ticket that arrived first.
    pub fn oldest(&self) -> Option<Ticket> {
        self.by_arrival.values().next().copied()
    }

    /// In the order in which they came.
    pub(crate) fn by_arrival(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.by_arrival.values().copied()
    }

    pub fn first(&self) -> Option<Ticket> {
        self.by_turn.first().map(|(_, ticket)| *ticket)
    }

    /// In the order in which they will be served.
    pub fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.by_turn.iter().map(|(_, ticket)| *ticket)
    }

    pub(crate) fn push(&mut self, ticket: Ticket, key: KeyId) {
        let next = self.next_round.entry(key).or_insert(self.round);
        let turn = (*next).max(self.round);
        *next = turn + 1;
        self.by_turn.insert((turn, ticket));
        self.turn_of.insert(ticket, (turn, self.arrivals));
        self.by_arrival.insert(self.arrivals, ticket);
        self.arrivals += 1;
    }

    /// The ticket got its seat: the round moves on to it.
    pub(crate) fn serve(&mut self, ticket: Ticket) {
        if let Some(turn) = self.remove(ticket) {
            self.round = self.round.max(turn);
        }
        self.forget_if_empty();
    }

    /// The ticket left without being served.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        self.remove(ticket);
        self.forget_if_empty();
    }

    fn remove(&mut self, ticket: Ticket) -> Option<u64> {
        let (turn, arrival) = self.turn_of.remove(&ticket)?;
        self.by_turn.remove(&(turn, ticket));
        self.by_arrival.remove(&arrival);
        Some(turn)
    }

    /// An empty queue has no history of unfairness to keep, so memory stays bounded.
    fn forget_if_empty(&mut self) {
        if self.by_turn.is_empty() {
            self.next_round.clear();
            self.round = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn served(queue: &mut Queue) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(ticket) = queue.first() {
            queue.serve(ticket);
            order.push(ticket.0);
        }
        order
    }

    #[test]
    fn a_key_with_many_requests_does_not_starve_a_key_with_one() {
        let mut queue = Queue::default();
        for ticket in 0..5 {
            queue.push(Ticket(ticket), KeyId(1));
        }
        queue.push(Ticket(5), KeyId(2));
        assert_eq!(served(&mut queue), [0, 5, 1, 2, 3, 4]);
    }

    #[test]
    fn a_key_that_comes_late_does_not_jump_behind_what_was_served_before() {
        let mut queue = Queue::default();
        for ticket in 0..4 {
            queue.push(Ticket(ticket), KeyId(1));
        }
        queue.serve(Ticket(0));
        queue.serve(Ticket(1));
        queue.push(Ticket(4), KeyId(2));
        assert_eq!(served(&mut queue), [4, 2, 3]);
    }

    #[test]
    fn one_key_is_first_come_first_served_and_leaving_costs_nobody_a_turn() {
        let mut queue = Queue::default();
        for ticket in 0..4 {
            queue.push(Ticket(ticket), KeyId(0));
        }
        queue.leave(Ticket(1));
        assert_eq!(queue.oldest(), Some(Ticket(0)));
        assert_eq!(served(&mut queue), [0, 2, 3]);
        assert!(queue.is_empty());
    }
}
