//! A model's waiting requests by key and class, each in the order of arrival (F1). The next key follows from the service that groups
//! and keys have had (`facts/shares`); the queue has its first request.

use alloc::collections::BTreeMap;

use crate::types::ids::{KeyId, Ticket};
use crate::types::tokens::ServiceClass;

const NONE: &BTreeMap<u64, Ticket> = &BTreeMap::new();

#[derive(Clone, Debug, Default)]
pub struct Queue {
    keys: BTreeMap<KeyId, OfKey>,
    /// Each ticket's key and class, and its place in the order of arrival.
    place_of: BTreeMap<Ticket, (KeyId, ServiceClass, u64)>,
    by_arrival: BTreeMap<u64, Ticket>,
    arrivals: u64,
}

/// A key's waiting requests in the order of arrival.
#[derive(Clone, Debug, Default)]
struct OfKey {
    /// All requests except the class `flex`.
    usual: BTreeMap<u64, Ticket>,
    /// Requests of the class `priority`; also among the usual ones.
    urgent: BTreeMap<u64, Ticket>,
    flex: BTreeMap<u64, Ticket>,
}

impl OfKey {
    fn len(&self) -> usize {
        self.usual.len() + self.flex.len()
    }

    fn oldest(&self) -> Option<Ticket> {
        let firsts = [self.usual.first_key_value(), self.flex.first_key_value()];
        firsts
            .into_iter()
            .flatten()
            .min()
            .map(|(_, ticket)| *ticket)
    }

    /// The newest request of the lowest class.
    fn last(&self) -> Option<Ticket> {
        let is_default = |(arrival, _): &(&u64, &Ticket)| !self.urgent.contains_key(*arrival);
        let flex = self.flex.last_key_value();
        let default = || self.usual.iter().rev().find(is_default);
        let last = flex.or_else(default);
        let (_, ticket) = last.or_else(|| self.usual.last_key_value())?;
        Some(*ticket)
    }
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

    /// The keys with waiting requests, each with their number and the number of the class `flex`.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (KeyId, usize, usize)> + '_ {
        let keys = self.keys.iter();
        keys.map(|(&key, of_key)| (key, of_key.len(), of_key.flex.len()))
    }

    /// The key's request that is served last: the newest of its lowest class.
    pub(crate) fn last(&self, key: KeyId) -> Option<Ticket> {
        self.keys.get(&key)?.last()
    }

    /// In the order of arrival.
    pub(crate) fn by_arrival(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.by_arrival.values().copied()
    }

    /// The keys with waiting requests, each with its oldest.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (KeyId, Ticket)> + '_ {
        let keys = self.keys.iter();
        keys.filter_map(|(&key, of_key)| Some((key, of_key.oldest()?)))
    }

    /// The key's requests that are not of the class `flex`, in the order of arrival.
    pub(crate) fn usual(&self, key: KeyId) -> impl ExactSizeIterator<Item = Ticket> + '_ {
        let usual = self.keys.get(&key).map_or(NONE, |of_key| &of_key.usual);
        usual.values().copied()
    }

    pub(crate) fn urgent(&self, key: KeyId) -> Option<Ticket> {
        self.keys.get(&key)?.urgent.values().next().copied()
    }

    /// The key's requests of the class `flex`, in the order of arrival.
    pub(crate) fn flex(&self, key: KeyId) -> impl ExactSizeIterator<Item = Ticket> + '_ {
        let flex = self.keys.get(&key).map_or(NONE, |of_key| &of_key.flex);
        flex.values().copied()
    }

    pub(crate) fn push(&mut self, ticket: Ticket, key: KeyId, class: ServiceClass) {
        self.insert(ticket, (key, class, self.arrivals));
        self.arrivals += 1;
    }

    /// Changes the class of a request, which keeps its place in the order of arrival.
    pub(crate) fn set_class(&mut self, ticket: Ticket, class: ServiceClass) {
        if let Some((key, _, arrival)) = self.take(ticket) {
            self.insert(ticket, (key, class, arrival));
        }
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) {
        self.take(ticket);
    }

    fn insert(&mut self, ticket: Ticket, place: (KeyId, ServiceClass, u64)) {
        let (key, class, arrival) = place;
        let of_key = self.keys.entry(key).or_default();
        let line = if class.is_flex() {
            &mut of_key.flex
        } else {
            &mut of_key.usual
        };
        line.insert(arrival, ticket);
        if class == ServiceClass::Priority {
            of_key.urgent.insert(arrival, ticket);
        }
        self.place_of.insert(ticket, place);
        self.by_arrival.insert(arrival, ticket);
    }

    fn take(&mut self, ticket: Ticket) -> Option<(KeyId, ServiceClass, u64)> {
        let place = self.place_of.remove(&ticket)?;
        let (key, _, arrival) = place;
        self.by_arrival.remove(&arrival);
        let of_key = self.keys.get_mut(&key)?;
        for requests in [&mut of_key.usual, &mut of_key.urgent, &mut of_key.flex] {
            requests.remove(&arrival);
        }
        if of_key.len() == 0 {
            self.keys.remove(&key);
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const KEY: KeyId = KeyId(1);

    #[test]
    fn the_requests_of_a_key_keep_their_order_whatever_their_class() {
        let mut queue = Queue::default();
        let classes = [
            ServiceClass::Default,
            ServiceClass::Flex,
            ServiceClass::Priority,
            ServiceClass::Default,
        ];
        for (ticket, class) in (0..).zip(classes) {
            queue.push(Ticket(ticket), KEY, class);
        }
        let usual = |queue: &Queue| queue.usual(KEY).map(|ticket| ticket.0).collect::<Vec<_>>();
        assert_eq!(usual(&queue), [0, 2, 3]);
        assert_eq!(queue.urgent(KEY), Some(Ticket(2)));
        queue.set_class(Ticket(1), ServiceClass::Priority);
        assert_eq!(usual(&queue), [0, 1, 2, 3]);
        assert_eq!(
            (queue.urgent(KEY), queue.flex(KEY).len()),
            (Some(Ticket(1)), 0)
        );
        assert_eq!(queue.usual(KEY).len(), 4);
        (0..4).for_each(|ticket| queue.remove(Ticket(ticket)));
        assert!(queue.is_empty() && queue.oldest().is_none() && queue.keys().next().is_none());
    }
}
