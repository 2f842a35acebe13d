//! Fairness between groups and keys (F1, P9): the request that leaves a full queue, and the turns of models of equal priority. A key
//! that was served clearly less, or whose group was, does not wait for the complete turn, or the earlier requests, of keys that were
//! served more. Read-only.

use alloc::collections::BTreeMap;
use core::cmp::Reverse;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::types::ids::{GroupId, KeyId, ModelId, ReplicaId, Ticket};
use crate::types::key_seats::LeastServed;

/// A key comes before every key that leads it by this many levels: a minute of a seat. Below, turns and arrival decide. A lead of a
/// few seconds, or an order of loads by service, made the waits of small labs longer.
const LEAD: u64 = 15;
/// The number of a model's keys that are compared.
const KEYS_MAX: usize = 256;

impl Pool {
    /// The service of a key, in steps of about four seat-seconds. Only differences between keys of one group have a meaning.
    pub fn key_level(&self, key: KeyId) -> u64 {
        self.shares.level(key)
    }

    /// The key with a request for the model that has been served least.
    pub(crate) fn least_served(&self, model: ModelId) -> Option<LeastServed> {
        let keys = self.models[&model].queue.keys().take(KEYS_MAX);
        let keys = keys.map(|(key, _)| key);
        let key = keys.reduce(|least, key| {
            if self.shares.leads(least, key, 1) {
                key
            } else {
                least
            }
        })?;
        Some(LeastServed {
            key,
            home: self.shares.home(key),
            level: self.shares.level(key),
        })
    }

    /// The request that leaves a full queue for a new request of this key: the last request of the key with the most requests, in
    /// the group with the most. None leaves if the new request's group and key would then have as many, except a request of the class
    /// `flex` of the same key or group.
    pub(crate) fn displaced_by(&self, id: ModelId, key: KeyId) -> Option<Ticket> {
        let queue = &self.models[&id].queue;
        let home = self.shares.group(key);
        let mut of_groups: BTreeMap<Option<GroupId>, usize> = BTreeMap::new();
        for (key, length, _) in queue.lengths() {
            *of_groups.entry(self.shares.group(key)).or_default() += length;
        }
        let of_group = |key| of_groups.get(&self.shares.group(key)).copied().unwrap_or(0);
        let (most, length, _) = queue
            .lengths()
            .max_by_key(|(key, length, _)| (of_group(*key), *length, Reverse(*key)))?;
        let is_same = self.shares.group(most) == home;
        if !is_same && of_group(most) > of_group(key) + 1 {
            return queue.last(most);
        }
        // Keys without a group are strangers to each other.
        let is_kin = |other| other == key || (home.is_some() && self.shares.group(other) == home);
        let with_flex = queue.lengths().filter(|(_, _, flex)| *flex > 0);
        let of_kin = with_flex.filter(|(other, ..)| is_kin(*other));
        if let Some((kin, ..)) = of_kin.max_by_key(|(key, _, flex)| (*flex, Reverse(*key))) {
            return queue.last(kin);
        }
        let own = queue.lengths().find(|(other, ..)| *other == key);
        let own = own.map_or(0, |(_, length, _)| length);
        let makes_way = is_same && length > own + 1;
        if makes_way { queue.last(most) } else { None }
    }
}

/// Returns true if requests wait for the replica and all keys with a seat there have been served clearly more than the key of the claim.
/// The replica then keeps its place for the time of a few swaps only. Without waiting requests it is likely to become idle on its own.
pub(crate) fn outranks_users(pool: &Pool, claim: &Claim, id: ReplicaId, model: &Model) -> bool {
    let mut users = pool.shares.users(id).peekable();
    let is_crowded = !model.queue.is_empty() && users.peek().is_some();
    is_crowded && users.all(|key| outranks(pool, claim, key))
}

/// Returns true if a request for the model that came before the claim keeps its replica. It does not if its key has been served
/// clearly more than the key of the claim.
pub(crate) fn is_wanted_first(pool: &Pool, claim: &Claim, model: &Model) -> bool {
    let since = claim.requirements.since;
    let earlier = |ticket| pool.queues[&ticket].since < since;
    if !model.queue.oldest().is_some_and(earlier) {
        return false;
    }
    let mut keys = model.queue.keys().take(KEYS_MAX);
    let keeps = |(key, oldest)| earlier(oldest) && !outranks(pool, claim, key);
    keys.any(keeps)
}

/// Returns true if the key of the claim, or its group, has been served clearly less than this one.
fn outranks(pool: &Pool, claim: &Claim, other: KeyId) -> bool {
    let own = claim.requirements.least_served;
    own.is_some_and(|own| pool.shares.leads(other, own.key, LEAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action, Bytes, DeviceId, DeviceReading, Event, Group, Groups, Limits, ModelSpec, Refusal,
        ServiceClass, Time, Tokens,
    };
    use alloc::vec::Vec;

    const MODEL: ModelId = ModelId(0);

    /// A model that is loading, with room for four waiting requests.
    fn loading() -> Pool {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(10),
            ..DeviceReading::default()
        };
        let spec = ModelSpec {
            bytes_per_device: Bytes(1),
            queue_limit: 4,
            ..ModelSpec::default()
        };
        let (device, model) = (DeviceId(0), MODEL);
        let events = [
            Event::DeviceRead { device, reading },
            Event::ModelSet { model, spec },
        ];
        pool.step_all(Time(0), events);
        pool
    }

    /// Requests with these keys arrive. Returns the tickets that are refused because the queue is full.
    fn refused(pool: &mut Pool, first: u64, keys: &[u64]) -> Vec<u64> {
        let arrivals = keys.iter().zip(first..).map(|(&key, ticket)| {
            let (ticket, model, key) = (Ticket(ticket), MODEL, KeyId(key));
            Event::RequestArrived { ticket, model, key }
        });
        let actions = pool.step_all(Time(1), arrivals).actions;
        let full = actions.into_iter().filter_map(|action| match action {
            Action::Refuse {
                ticket,
                refusal: Refusal::QueueFull { .. },
            } => Some(ticket.0),
            _ => None,
        });
        full.collect()
    }

    #[test]
    fn a_full_queue_drops_a_request_of_the_key_with_the_most_for_a_key_with_fewer() {
        let mut pool = loading();
        assert_eq!(refused(&mut pool, 0, &[1, 1, 1, 2]), []);
        assert_eq!(refused(&mut pool, 10, &[1]), [10]);
        assert_eq!(refused(&mut pool, 20, &[3]), [2]);
        assert_eq!(refused(&mut pool, 30, &[2, 3]), [30, 31]);
        assert_eq!(refused(&mut pool, 40, &[4]), [1]);
    }

    /// Describes a request, which arrives as `default`.
    fn describe(pool: &mut Pool, ticket: u64, class: ServiceClass) {
        let (ticket, expected) = (Ticket(ticket), Tokens::default());
        let described = Event::RequestDescribed {
            ticket,
            class,
            expected,
        };
        pool.step(Time(1), described);
    }

    #[test]
    fn a_request_of_the_lowest_class_leaves_a_full_queue_first() {
        let mut pool = loading();
        assert_eq!(refused(&mut pool, 0, &[1, 1, 1, 1]), []);
        describe(&mut pool, 0, ServiceClass::Flex);
        describe(&mut pool, 3, ServiceClass::Priority);
        assert_eq!(refused(&mut pool, 10, &[2]), [0]);
        assert_eq!(refused(&mut pool, 20, &[3]), [2]);
        assert_eq!(refused(&mut pool, 30, &[1]), [30]);
    }

    #[test]
    fn the_flex_requests_of_a_key_do_not_keep_its_own_requests_out() {
        let mut pool = loading();
        assert_eq!(refused(&mut pool, 0, &[1, 1, 2, 3]), []);
        for ticket in [0, 1, 2] {
            describe(&mut pool, ticket, ServiceClass::Flex);
        }
        assert_eq!(refused(&mut pool, 10, &[1, 1]), [1, 0]);
        assert_eq!(
            refused(&mut pool, 20, &[1]),
            [20],
            "flex of a stranger stays"
        );
        assert_eq!(refused(&mut pool, 30, &[2]), [2]);
    }

    #[test]
    fn many_keys_of_a_group_do_not_keep_another_group_out_of_a_full_queue() {
        let mut pool = loading();
        let groups = [1, 2].map(|id| Group {
            id: GroupId(id),
            name: format!("group-{id}"),
            parent: None,
            weight: 1,
            reserved_permille: 0,
        });
        let members = (1..=5).map(|key| (KeyId(key), GroupId(1)));
        let members = members.chain([(KeyId(9), GroupId(2))]);
        let groups = Groups::new(groups.into(), members).expect("the tree is valid");
        pool.step(Time(0), Event::GroupsSet { groups });
        assert_eq!(refused(&mut pool, 0, &[1, 2, 3, 4]), []);
        assert_eq!(refused(&mut pool, 10, &[5]), [10]);
        assert_eq!(refused(&mut pool, 20, &[9]), [0]);
        assert_eq!(refused(&mut pool, 30, &[9]), [1]);
        assert_eq!(refused(&mut pool, 40, &[9]), [40]);
        // Members of a group make way for each other.
        describe(&mut pool, 2, ServiceClass::Flex);
        assert_eq!(refused(&mut pool, 50, &[1]), [2]);
    }
}
