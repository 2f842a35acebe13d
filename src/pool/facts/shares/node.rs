//! The nodes of the tree of groups and keys: their counters, and the places that follow from them. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::types::ids::{GroupId, KeyId, ModelId, ReplicaId};
use crate::types::tokens::ServiceClass;

/// A node. The slots of keys that are forgotten are reused.
pub(super) type Slot = usize;

/// Service since the start, in nanoseconds of a seat. In 64 bits, a thousand busy seats would reach the end within 213 days.
pub(super) type Counter = u128;

/// A sibling in the order of service; the slot makes the order the same on every machine.
pub(super) type Place = (Counter, Slot);

pub(super) const ROOT: Slot = 0;
/// The parent of the groups with a reserved share in the line of requests of the class `priority`.
pub(super) const RESERVED: Slot = Slot::MAX;

/// The most service, in nanoseconds of a seat, by which a node leads a waiting sibling.
pub(super) const LEAD_MAX: Counter = 600_000_000_000;
/// A claim beyond that is shortened by this part of it more, which makes the next time rare.
pub(super) const LEAD_MARGIN: Counter = LEAD_MAX / 16;
/// Levels are steps of this service: a smaller difference counts as none between models.
pub(super) const LEVEL: Counter = 4_096_000_000;
/// The maximum number of keys whose lead is remembered while they are away.
pub(super) const AWAY_MAX: usize = 1_024;

/// The requests that are served in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Requests of the class `priority`, while their group is within its reserved share.
    Reserved,
    /// All requests except `flex`.
    Usual,
    Flex,
}

/// The lanes that have counters.
pub(super) const USUAL: usize = 0;
pub(super) const FLEX: usize = 1;

pub(super) fn account(class: ServiceClass) -> usize {
    if class.is_flex() { FLEX } else { USUAL }
}

pub(super) fn lane(account: usize) -> Lane {
    if account == FLEX {
        Lane::Flex
    } else {
        Lane::Usual
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// By weight. Only differences between siblings have a meaning.
    pub(super) served: Counter,
    /// The service that the requests inside are still expected to take, not divided by weight.
    pub(super) expected: u64,
    /// The least counter with which a child begins to wait. Never falls.
    pub(super) floor: Counter,
    pub(super) waiting: u32,
    pub(super) inside: u32,
    pub(super) waiting_children: BTreeSet<Place>,
    pub(super) inside_children: BTreeSet<Place>,
    /// The number of waiting requests by model.
    pub(super) models: BTreeMap<ModelId, u32>,
}

/// The reserved share of a group (F5). Its requests go first while its position is not ahead of the pool's clock. Counts the requests
/// that got their seats this way.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserve {
    pub(super) permille: u64,
    pub(super) served: Counter,
    pub(super) expected: u64,
    pub(super) models: BTreeMap<ModelId, u32>,
}

impl Reserve {
    /// The time on the pool's clock in which the share amounts to this service.
    pub(super) fn by_share(&self, service: u64) -> Counter {
        Counter::from(service) * 1_000 / Counter::from(self.permille.max(1))
    }

    pub(super) fn position(&self) -> Counter {
        self.served + self.by_share(self.expected)
    }
}

/// The service in steps of `LEVEL`.
pub(super) fn level(served: Counter) -> u64 {
    u64::try_from(served / LEVEL).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: Slot,
    pub(super) key: Option<KeyId>,
    pub(super) group: Option<GroupId>,
    /// Its children are groups.
    pub(super) is_inner: bool,
    /// The own weight, and the smallest among the siblings.
    pub(super) weight: u64,
    pub(super) least: u64,
    pub(super) accounts: [Account; 2],
    pub(super) reserve: Option<Reserve>,
    /// Below a reserved share: waiting requests of the class `priority` by model.
    pub(super) urgent: BTreeMap<ModelId, u32>,
    /// The number of seats on each replica.
    pub(super) replicas: BTreeMap<ReplicaId, u32>,
}

impl Node {
    pub(super) fn new(parent: Slot) -> Node {
        Node {
            parent,
            key: None,
            group: None,
            is_inner: false,
            weight: 1,
            least: 1,
            accounts: [Account::default(), Account::default()],
            reserve: None,
            urgent: BTreeMap::new(),
            replicas: BTreeMap::new(),
        }
    }

    pub(super) fn by_weight(&self, service: u64) -> Counter {
        Counter::from(service) * Counter::from(self.least) / Counter::from(self.weight)
    }

    pub(super) fn position(&self, account: usize) -> Counter {
        let Account {
            served, expected, ..
        } = self.accounts[account];
        served + self.by_weight(expected)
    }

    pub(super) fn is_active(&self) -> bool {
        let active = |account: &Account| account.waiting > 0 || account.inside > 0;
        self.accounts.iter().any(active)
    }
}

/// The longest path: the groups, the keys of an inner group, and the key.
pub(super) const PATH_MAX: usize = crate::types::groups::GROUP_DEPTH_MAX + 2;
