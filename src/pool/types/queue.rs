//! A model's waiting requests: fair between keys, then first come, first served (Q1). Start-time fair queueing with unit cost: a
//! key's n-th waiting request is tagged n rounds after the round being served, so a key with a thousand requests and a key with one
//! take turns.
//!
//! A turn belongs to its key and serves the key's first request. A request that leaves takes the last turn of its key with it, and
//! the requests behind it move up.

use alloc::collections::{BTreeMap, BTreeSet, btree_map};

use crate::types::ids::{KeyId, Ticket};

/// The round, and the ticket for which the turn was added; among equals the earliest goes first.
type Turn = (u64, Ticket);

#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// In the order in which they are served.
    turns: BTreeMap<Turn, KeyId>,
    keys: BTreeMap<KeyId, OfKey>,
    /// Each ticket's key, and its place in the order of arrival.
    place_of: BTreeMap<Ticket, (KeyId, u64)>,
    by_arrival: BTreeMap<u64, Ticket>,
    arrivals: u64,
    round: u64,
}

/// A key's waiting requests in the order of arrival, and as many turns.
#[derive(Clone, Debug, Default)]
struct OfKey {
    tickets: BTreeMap<u64, Ticket>,
    turns: BTreeSet<Turn>,
    next_round: u64,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.place_of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.place_of.is_empty()
    }

    /// The ticket that arrived first.
    pub fn oldest(&self) -> Option<Ticket> {
        self.by_arrival.values().next().copied()
    }

    /// The request that leaves a full queue to make way for a new request of this key: the last request of the key with the most
    /// requests.
    pub(crate) fn displaced_by(&self, key: KeyId) -> Option<Ticket> {
        let waiting = |key: &KeyId| self.keys.get(key).map_or(0, |of_key| of_key.tickets.len());
        let (_, most) = self
            .keys
            .iter()
            .max_by_key(|(key, of_key)| (of_key.tickets.len(), **key))?;
        let last = most.tickets.values().next_back().copied();
        last.filter(|_| most.tickets.len() > waiting(&key) + 1)
    }

    /// In the order of arrival.
    pub(crate) fn by_arrival(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.by_arrival.values().copied()
    }

    /// The keys with waiting requests, each with its oldest.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (KeyId, Ticket)> + '_ {
        let keys = self.keys.iter();
        keys.filter_map(|(&key, of_key)| Some((key, *of_key.tickets.values().next()?)))
    }

    pub(crate) fn has_key(&self, key: KeyId) -> bool {
        let of_key = self.keys.get(&key);
        of_key.is_some_and(|of_key| !of_key.tickets.is_empty())
    }

    pub fn first(&self) -> Option<Ticket> {
        let key = self.turns.values().next()?;
        self.keys[key].tickets.values().next().copied()
    }

    /// In the order in which they will be served.
    pub fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        let keys = &self.keys;
        let mut rest: BTreeMap<KeyId, btree_map::Values<'_, u64, Ticket>> = BTreeMap::new();
        self.turns.values().filter_map(move |key| {
            let tickets = rest.entry(*key);
            let tickets = tickets.or_insert_with(move || keys[key].tickets.values());
            tickets.next().copied()
        })
    }

    pub(crate) fn push(&mut self, ticket: Ticket, key: KeyId) {
        let of_key = self.keys.entry(key).or_default();
        let round = of_key.next_round.max(self.round);
        of_key.next_round = round + 1;
        of_key.tickets.insert(self.arrivals, ticket);
        of_key.turns.insert((round, ticket));
        self.turns.insert((round, ticket), key);
        self.place_of.insert(ticket, (key, self.arrivals));
        self.by_arrival.insert(self.arrivals, ticket);
        self.arrivals += 1;
    }

    /// The ticket got its seat in the first turn of its key; the round advances to it.
    pub(crate) fn serve(&mut self, ticket: Ticket) {
        let turn = self
            .remove(ticket)
            .and_then(|entry| entry.turns.pop_first());
        if let Some(turn) = turn {
            self.turns.remove(&turn);
            self.round = self.round.max(turn.0);
        }
        self.forget_if_empty();
    }

    /// The ticket left without being served.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        let turn = self.remove(ticket).and_then(|entry| {
            let turn = entry.turns.pop_last()?;
            entry.next_round = turn.0;
            Some(turn)
        });
        if let Some(turn) = turn {
            self.turns.remove(&turn);
        }
        self.forget_if_empty();
    }

    /// Removes the ticket and returns the rest of its key, which has one turn too many.
    fn remove(&mut self, ticket: Ticket) -> Option<&mut OfKey> {
        let (key, arrival) = self.place_of.remove(&ticket)?;
        self.by_arrival.remove(&arrival);
        let of_key = self.keys.get_mut(&key)?;
        of_key.tickets.remove(&arrival);
        Some(of_key)
    }

    /// An empty queue needs no history, so memory stays bounded.
    fn forget_if_empty(&mut self) {
        if self.place_of.is_empty() {
            self.keys.clear();
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
    fn a_late_key_does_not_queue_behind_requests_served_before_it_arrived() {
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
    fn requests_that_leave_cost_their_key_no_turn() {
        let mut queue = Queue::default();
        for ticket in 0..4 {
            queue.push(Ticket(ticket), KeyId(1));
        }
        for ticket in 10..14 {
            queue.push(Ticket(ticket), KeyId(2));
        }
        for ticket in 0..3 {
            queue.leave(Ticket(ticket));
        }
        let order: Vec<u64> = queue.iter().map(|ticket| ticket.0).collect();
        assert_eq!(order, [3, 10, 11, 12, 13]);
        queue.leave(Ticket(3));
        queue.push(Ticket(20), KeyId(1));
        queue.push(Ticket(21), KeyId(1));
        assert_eq!(served(&mut queue), [10, 20, 11, 21, 12, 13]);
    }

    #[test]
    fn a_key_gains_no_turn_by_leaving_and_returning() {
        let mut queue = Queue::default();
        for ticket in 0..3 {
            queue.push(Ticket(ticket), KeyId(1));
        }
        for ticket in 10..13 {
            queue.push(Ticket(ticket), KeyId(2));
        }
        assert_eq!(queue.first(), Some(Ticket(0)));
        queue.serve(Ticket(0));
        queue.leave(Ticket(1));
        queue.push(Ticket(20), KeyId(1));
        let order: Vec<u64> = queue.iter().map(|ticket| ticket.0).collect();
        assert_eq!(order.len(), queue.len());
        assert_eq!(served(&mut queue), [10, 2, 11, 12, 20]);
    }

    #[test]
    fn a_full_queue_drops_a_request_of_the_key_with_the_most_for_a_key_with_fewer() {
        let mut queue = Queue::default();
        for ticket in 0..3 {
            queue.push(Ticket(ticket), KeyId(1));
        }
        queue.push(Ticket(10), KeyId(2));
        assert_eq!(queue.displaced_by(KeyId(1)), None);
        assert_eq!(queue.displaced_by(KeyId(2)), Some(Ticket(2)));
        assert_eq!(queue.displaced_by(KeyId(3)), Some(Ticket(2)));
        queue.leave(Ticket(2));
        assert_eq!(queue.displaced_by(KeyId(2)), None);
        assert_eq!(queue.displaced_by(KeyId(3)), Some(Ticket(1)));
        assert_eq!(Queue::default().displaced_by(KeyId(1)), None);
    }

    #[test]
    fn requests_of_one_key_are_served_in_order_and_leaving_costs_no_turn() {
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
