//! Judges the sharing of a model between groups and keys (F1, F2, F4, F5) from what clients and engines see, without the pool's
//! counters.
//!
//! ```text
//! F1, F2   for two siblings that always have waiting requests, in any such interval, unless a reserved share is more than a weight gives:
//!          |service by weight of one − service by weight of the other| ≤ bound / smaller weight
//!          bound = 2 × (seats + 1) × largest request if estimates are right, otherwise twice as much
//! F5       while a request of the class `priority` always waits:
//!          service of the class ≥ reserved share × all service − 2 × seats × largest request
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use pool::{KeyId, ServiceClass, Ticket};

/// A group or a key among its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sharer {
    Group(u32),
    Key(KeyId),
}

/// The sharers above a request, each with its parent and weight.
pub(super) type Path = Vec<(Sharer, Option<u32>, u64)>;

#[derive(Clone, Copy, Debug)]
struct Interval {
    start: i128,
    least: i128,
    most: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Urgent {
    served: u64,
    waiting: u32,
    /// The service of the class, and all service, when the first request began to wait.
    since: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct GroupReferee {
    /// The largest service that all seats can hold.
    pub row: u64,
    /// The bound of the difference between siblings of weight 1.
    pub apart_max: u64,
    paths: BTreeMap<KeyId, Path>,
    weights: BTreeMap<Sharer, (Option<u32>, u64)>,
    served: BTreeMap<Sharer, u64>,
    waiting: BTreeMap<Ticket, (KeyId, ServiceClass)>,
    counts: BTreeMap<Sharer, u32>,
    usual: u32,
    intervals: BTreeMap<(Sharer, Sharer), Interval>,
    /// Requests of the class `priority` by the group whose reserved share they take.
    urgent: BTreeMap<u32, Urgent>,
    reserved: BTreeMap<u32, u64>,
    all: u64,
    /// Sharers whose engine reports absurd usage: they are served less than they could be.
    pub ignored: BTreeSet<Sharer>,
    /// The largest difference, in thousandths of its bound.
    pub worst: u64,
    pub broken: Vec<String>,
}

impl GroupReferee {
    /// The groups have changed: all intervals begin again.
    pub fn groups_are(&mut self, paths: BTreeMap<KeyId, Path>, reserved: BTreeMap<u32, u64>) {
        self.paths = paths;
        self.reserved = reserved;
        self.weights.clear();
        for (sharer, parent, weight) in self.paths.values().flatten() {
            self.weights.insert(*sharer, (*parent, *weight));
        }
        self.intervals.clear();
        self.urgent.clear();
        self.counts.clear();
        self.usual = 0;
        let waiting = core::mem::take(&mut self.waiting);
        for (ticket, (key, class)) in waiting {
            self.waits(ticket, key, class);
        }
    }

    pub fn waits(&mut self, ticket: Ticket, key: KeyId, class: ServiceClass) {
        self.waiting.insert(ticket, (key, class));
        if class == ServiceClass::Flex {
            return;
        }
        self.usual += 1;
        let path = self.paths[&key].clone();
        for (sharer, ..) in path {
            let count = self.counts.entry(sharer).or_default();
            *count += 1;
            if *count == 1 {
                self.begins(sharer);
            }
        }
        if let Some(group) = self
            .reserving(key)
            .filter(|_| class == ServiceClass::Priority)
        {
            let all = self.all;
            let urgent = self.urgent.entry(group).or_default();
            urgent.waiting += 1;
            urgent.since.get_or_insert((urgent.served, all));
        }
    }

    pub fn no_longer_waits(&mut self, ticket: Ticket) {
        let Some((key, class)) = self.waiting.remove(&ticket) else {
            return;
        };
        if class == ServiceClass::Flex {
            return;
        }
        self.usual -= 1;
        let path = self.paths[&key].clone();
        for (sharer, ..) in path {
            let count = self.counts.entry(sharer).or_default();
            *count -= 1;
            if *count == 0 {
                self.intervals
                    .retain(|(one, other), _| *one != sharer && *other != sharer);
            }
        }
        if let Some(group) = self
            .reserving(key)
            .filter(|_| class == ServiceClass::Priority)
        {
            let urgent = self.urgent.entry(group).or_default();
            urgent.waiting -= 1;
            if urgent.waiting == 0 {
                urgent.since = None;
            }
        }
    }

    /// A waiting request gets a seat. Flex requests only do while no other request waits.
    pub fn is_granted(&mut self, ticket: Ticket) {
        let class = self.waiting.get(&ticket).map(|(_, class)| *class);
        self.no_longer_waits(ticket);
        if class == Some(ServiceClass::Flex) && self.usual > 0 {
            self.broken.push(format!(
                "F5: {ticket} of class flex got a seat while {} other requests waited",
                self.usual
            ));
        }
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Seats are free although requests wait.
    pub fn seats_are_free(&mut self, free: u32) {
        if free > 0 && self.is_waiting() {
            let waiting = self.waiting.len();
            self.broken.push(format!(
                "F4: {free} seats are free while {waiting} requests wait"
            ));
        }
    }

    /// A request of the key was served.
    pub fn is_served(&mut self, key: KeyId, class: ServiceClass, service: u64) {
        if class == ServiceClass::Flex {
            return;
        }
        self.all += service;
        let path = self.paths[&key].clone();
        for (sharer, ..) in path {
            *self.served.entry(sharer).or_default() += service;
            self.judge(sharer);
        }
        if let Some(group) = self
            .reserving(key)
            .filter(|_| class == ServiceClass::Priority)
        {
            self.urgent.entry(group).or_default().served += service;
        }
        self.judge_reserved();
    }

    /// The nearest group of the key with a reserved share.
    fn reserving(&self, key: KeyId) -> Option<u32> {
        self.paths[&key]
            .iter()
            .find_map(|(sharer, ..)| match sharer {
                Sharer::Group(group) if self.reserved.contains_key(group) => Some(*group),
                _ => None,
            })
    }

    /// Service by weight, in thousandths.
    fn by_weight(&self, sharer: Sharer) -> i128 {
        let served = self.served.get(&sharer).copied().unwrap_or_default();
        i128::from(served) * 1_000 / i128::from(self.weights[&sharer].1)
    }

    fn siblings(&self, sharer: Sharer) -> BTreeSet<Sharer> {
        let parent = self.weights[&sharer].0;
        let all = self.weights.iter();
        let all = all.filter(|(other, (of, _))| *of == parent && **other != sharer);
        all.map(|(other, _)| *other).collect()
    }

    /// Returns true if the reserved share of the group is more than its weight gives. It then gets the reserved share (F5).
    fn is_reserved_more(&self, sharer: Sharer) -> bool {
        let Sharer::Group(group) = sharer else {
            return false;
        };
        let Some(reserved) = self.reserved.get(&group) else {
            return false;
        };
        let own = self.weights[&sharer].1;
        let others = self.siblings(sharer);
        let others: u64 = others.iter().map(|other| self.weights[other].1).sum();
        reserved * (own + others) > own * 1_000
    }

    fn begins(&mut self, sharer: Sharer) {
        for other in self.siblings(sharer) {
            if self.counts.get(&other).is_some_and(|count| *count > 0) {
                let pair = (sharer.min(other), sharer.max(other));
                let start = self.by_weight(pair.0) - self.by_weight(pair.1);
                let interval = Interval {
                    start,
                    least: start,
                    most: start,
                };
                self.intervals.insert(pair, interval);
            }
        }
    }

    fn judge(&mut self, sharer: Sharer) {
        for other in self.siblings(sharer) {
            let pair = (sharer.min(other), sharer.max(other));
            let gap = self.by_weight(pair.0) - self.by_weight(pair.1);
            let is_reserved_more = self.is_reserved_more(pair.0) || self.is_reserved_more(pair.1);
            let Some(interval) = self.intervals.get_mut(&pair) else {
                continue;
            };
            interval.least = interval.least.min(gap);
            interval.most = interval.most.max(gap);
            // Within a reserved share, the keys that send requests of the class `priority` come first (F5).
            let parent = self.weights[&pair.0].0;
            let is_key = matches!(pair.0, Sharer::Key(_));
            let is_reserved = parent.is_some_and(|group| self.reserved.contains_key(&group));
            let is_ignored = self.ignored.contains(&pair.0) || self.ignored.contains(&pair.1);
            if is_ignored || is_reserved_more || (is_key && is_reserved) {
                continue;
            }
            let (apart, since) = (interval.most - interval.least, interval.start);
            let weight = self.weights[&pair.0].1.min(self.weights[&pair.1].1);
            let bound = i128::from(self.apart_max) * 1_000 / i128::from(weight);
            let share = u64::try_from(apart * 1_000 / bound.max(1)).unwrap_or(u64::MAX);
            self.worst = self.worst.max(share);
            if apart > bound {
                self.broken.push(format!(
                    "F1: {:?} and {:?} are {apart} apart, more than {bound}, since {since}",
                    pair.0, pair.1
                ));
                self.intervals.remove(&pair);
            }
        }
    }

    fn judge_reserved(&mut self) {
        for (group, urgent) in &mut self.urgent {
            let Some((served_before, all_before)) = urgent.since else {
                continue;
            };
            if self.ignored.contains(&Sharer::Group(*group)) {
                continue;
            }
            let due = (self.all - all_before) * self.reserved[group] / 1_000;
            let got = urgent.served - served_before;
            if due > got + 2 * self.row {
                self.broken.push(format!(
                    "F5: the reserved share of group {group} is {due}, it got {got}"
                ));
                urgent.since = None;
            }
        }
    }
}
