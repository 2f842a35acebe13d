//! The service of groups and keys, and the order in which their waiting requests are served (F1 to F6, P9). Makes no choices.
//!
//! Service is measured in nanoseconds of a seat. A model with measured costs of its tokens is charged by tokens, another one by the
//! time of its seats. A request is charged an estimate when it takes its seat; what it has taken replaces the estimate bit by bit.
//! One file because the gates' readings, the estimates and the tree change together.

mod charging;
mod node;
mod order;
mod rebuild;
mod reserved;
#[cfg(test)]
mod tests;
mod tree;
mod waiting;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

pub(crate) use node::Lane;
pub(crate) use tree::ServiceChange;

use crate::types::groups::Groups;
use crate::types::ids::{GroupId, KeyId, ModelId, ReplicaId, Span, Time};
use crate::types::key_seats::{KeySeats, TokenTime};
use crate::types::tokens::{ServiceClass, TokenCosts, Tokens};
use node::{Slot, level};
use reserved::ReservedPart;
use tree::Tree;

const MS: u64 = 1_000_000;
/// The estimate for a request of a model that has not served any.
const USUAL: Span = Span::from_secs(1);
/// The largest estimate, in usual requests of the model and in time: a client that announces a million tokens and leaves holds back
/// its group by no more. The bound of F1 follows from it: two usual requests are at most twice the largest.
const ESTIMATE_REQUESTS_MAX: u64 = 2;
const ESTIMATE_MAX_NS: u64 = 60_000 * MS;
/// A request is charged at most this many times the time of its seat, plus `SURPLUS_NS`, whatever tokens its engine reports.
const TIMES_SEAT_MAX: u64 = 16;
const SURPLUS_NS: u64 = 10_000 * MS;
/// The interval at which the seats of replicas that report nothing new are counted.
const COUNT_EVERY: Span = Span(250);
/// The number of requests whose places in the order are exact.
const PLACES_MAX: usize = 256;

/// The charging of a model's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charging {
    pub costs: Option<TokenCosts>,
    /// The usual time of a request in its seat.
    pub request: Option<Span>,
}

impl Charging {
    /// The estimate for a request, in nanoseconds of a seat.
    fn estimate(&self, expected: Option<Tokens>) -> u64 {
        let by_tokens = expected.and_then(|expected| Some(self.costs?.service_ns(expected)));
        by_tokens
            .unwrap_or_else(|| self.usual())
            .min(self.estimate_max())
    }

    fn usual(&self) -> u64 {
        self.request.unwrap_or(USUAL).0.saturating_mul(MS)
    }

    fn estimate_max(&self) -> u64 {
        let usual = self.usual().saturating_mul(ESTIMATE_REQUESTS_MAX);
        usual.min(ESTIMATE_MAX_NS)
    }
}

/// The seats of a key on a replica at the last count.
#[derive(Clone, Copy, Debug)]
struct User {
    seats: KeySeats,
    counted_ms: u64,
    /// The estimate of the requests inside that they have not taken yet.
    expected: u64,
    /// The service that reported tokens may still cost.
    headroom: u64,
    reserved: ReservedPart,
}

type UserId = (KeyId, ServiceClass);

#[derive(Clone, Debug)]
struct Users {
    charging: Charging,
    all: BTreeMap<UserId, User>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    groups: Groups,
    tree: Tree,
    users: BTreeMap<ReplicaId, Users>,
    counted_at: Time,
}

impl Shares {
    /// Replaces the groups. `waiting` lists the requests that wait.
    pub fn set_groups(
        &mut self,
        groups: Groups,
        waiting: impl Iterator<Item = (KeyId, ModelId, ServiceClass)>,
    ) {
        let before = core::mem::replace(&mut self.tree, Tree::new(&groups));
        self.tree.continue_from(&before);
        let stays = |key: KeyId| {
            let (old, new) = (self.groups.group(key), groups.group(key));
            old == new && self.tree.continues(new)
        };
        let staying: BTreeSet<KeyId> = before.keys().filter(|key| stays(*key)).collect();
        for &key in &staying {
            if let Some(served) = before.counters(key) {
                self.tree.restore(key, groups.group(key), served);
            }
        }
        self.groups = groups;
        let users = self.users.iter();
        let users = users.flat_map(|(id, users)| users.all.values().map(|user| (*id, *user)));
        for (replica, user) in users.collect::<Vec<_>>() {
            self.user_begins(replica, &user);
        }
        let groups = &self.groups;
        let (stay, come): (Vec<_>, Vec<_>) = waiting.partition(|(key, ..)| staying.contains(key));
        for (key, model, class) in stay {
            self.tree.joins(key, groups.group(key), model, class);
        }
        self.tree.is_continued();
        // The other keys have no credit among their new siblings.
        for (key, model, class) in come {
            self.tree.joins(key, groups.group(key), model, class);
        }
    }

    /// Moves a key to another group with its waiting requests, of these models and classes, and its seats. It has no credit there
    /// (F6). Takes time for the requests of this key only: a person whose claims alternate delays no other. Returns false if nothing
    /// changes.
    pub fn move_member(
        &mut self,
        key: KeyId,
        group: Option<GroupId>,
        waiting: &[(ModelId, ServiceClass)],
    ) -> bool {
        if !self.groups.set_member(key, group) {
            return false;
        }
        if self.tree.counters(key).is_none() {
            return true;
        }
        for &(model, class) in waiting {
            self.tree.leaves(key, model, class);
        }
        let classes = [
            ServiceClass::Flex,
            ServiceClass::Default,
            ServiceClass::Priority,
        ];
        let ids = classes.map(|class| (key, class));
        let mut seats: Vec<(ReplicaId, User)> = Vec::new();
        for (&replica, users) in &self.users {
            seats.extend(
                ids.iter()
                    .filter_map(|id| Some((replica, *users.all.get(id)?))),
            );
        }
        for (replica, user) in &seats {
            self.user_ends(*replica, user);
        }
        self.tree.forget_key(key);
        for (replica, user) in &seats {
            self.user_begins(*replica, user);
            self.tree.users_change(*replica);
        }
        for &(model, class) in waiting {
            self.tree.joins(key, self.groups.group(key), model, class);
        }
        true
    }

    /// A request of the key waits.
    pub fn joins(&mut self, key: KeyId, model: ModelId, class: ServiceClass, now: Time) {
        if self.tree.waiting() == 0 {
            self.count(now);
        }
        self.tree.joins(key, self.groups.group(key), model, class);
    }

    /// A request of the key no longer waits.
    pub fn leaves(&mut self, key: KeyId, model: ModelId, class: ServiceClass) {
        self.tree.leaves(key, model, class);
        self.tree.settle(key);
    }

    /// A waiting request has been given a seat. The gate reports it from its next reading on.
    pub fn takes_seat(
        &mut self,
        key: KeyId,
        class: ServiceClass,
        replica: ReplicaId,
        expected: Option<Tokens>,
        (charging, now): (Charging, Time),
    ) {
        let users = self.users.entry(replica).or_insert_with(|| Users {
            charging,
            all: BTreeMap::new(),
        });
        users.charging = charging;
        let user = users.all.entry((key, class)).or_insert_with(|| User {
            seats: KeySeats::with_class(key, class),
            counted_ms: 0,
            expected: 0,
            headroom: SURPLUS_NS,
            reserved: ReservedPart::default(),
        });
        let (before, seats) = (user.expected, user.seats.in_flight);
        let (estimate, reserved) = (charging.estimate(expected), user.reserved.expected);
        user.seats.enters(now);
        user.expected = before.saturating_add(estimate);
        if class == ServiceClass::Priority && self.tree.is_within_reserve(key) {
            user.reserved.seats_permille += 1_000;
            user.reserved.expected = reserved.saturating_add(estimate);
        }
        let (after, reserved_after) = (user.expected, user.reserved.expected);
        self.tree.know(key, self.groups.group(key));
        self.tree.seats(key, class, replica, (seats, seats + 1));
        self.tree.expect(key, class, before, after);
        self.tree.expect_reserved(key, reserved, reserved_after);
    }

    /// The gate of a replica has reported its keys.
    pub fn read(&mut self, replica: ReplicaId, seats: &[KeySeats], charging: Charging, now: Time) {
        let mut before = self
            .users
            .remove(&replica)
            .map(|users| users.all)
            .unwrap_or_default();
        let mut all = BTreeMap::new();
        let mut has_changed = false;
        for seats in seats {
            let id = (seats.key, seats.class);
            let old = before.remove(&id);
            let is_same = |old: &User| {
                old.seats
                    == KeySeats {
                        expected: old.seats.expected,
                        token_time: old.seats.token_time,
                        ..*seats
                    }
                    && (charging.costs.is_none() || old.seats.expected == seats.expected)
            };
            if let Some(old) = old.filter(is_same) {
                all.insert(id, old);
                continue;
            }
            let had = old.map_or(0, |old| old.seats.in_flight);
            has_changed |= (had > 0) != (seats.in_flight > 0);
            if let Some(user) = self.user_read(replica, old, seats, charging, now) {
                all.insert(id, user);
            }
            self.tree.settle(seats.key);
        }
        for (_, user) in before {
            has_changed |= user.seats.in_flight > 0;
            self.user_ends(replica, &user);
            self.tree.settle(user.seats.key);
        }
        if !all.is_empty() {
            self.users.insert(replica, Users { charging, all });
        }
        if has_changed {
            self.tree.users_change(replica);
        }
    }

    fn user_read(
        &mut self,
        replica: ReplicaId,
        old: Option<User>,
        seats: &KeySeats,
        charging: Charging,
        now: Time,
    ) -> Option<User> {
        let (key, class) = (seats.key, seats.class);
        let inside = seats.inside_ms(now);
        let counted = old.map_or(0, |old| old.counted_ms);
        let had = old.map_or(0, |old| old.seats.in_flight);
        let seat_ns = (seats.ended_ms.saturating_add(inside))
            .saturating_sub(counted)
            .saturating_mul(MS);
        let headroom = old.map_or(SURPLUS_NS, |old| old.headroom);
        let headroom = headroom.saturating_add(seat_ns.saturating_mul(TIMES_SEAT_MAX));
        let service = match charging.costs {
            Some(costs) => costs.service_ns(seats.served).min(headroom),
            None => seat_ns,
        };
        let before = old.map_or(0, |old| old.expected);
        let most = u64::from(seats.in_flight).saturating_mul(charging.estimate_max());
        let expected = match charging.costs {
            Some(costs) => costs.service_ns(seats.expected).min(most),
            None => {
                let new = u64::from(seats.in_flight.saturating_sub(had));
                let each = charging.estimate(None);
                let left = before
                    .saturating_add(new.saturating_mul(each))
                    .saturating_sub(service);
                left.min(each.saturating_mul(u64::from(seats.in_flight)))
            }
        };
        let reserved = old.map_or(ReservedPart::default(), |old| old.reserved);
        let left = reserved.remaining(had, seats.in_flight, expected);
        let user = User {
            seats: KeySeats {
                ended_ms: 0,
                served: Tokens::ZERO,
                token_time: TokenTime::default(),
                ..*seats
            },
            counted_ms: inside,
            expected,
            headroom: headroom - service.min(headroom),
            reserved: left,
        };
        self.tree.know(key, self.groups.group(key));
        self.tree
            .seats(key, class, replica, (had, had.max(seats.in_flight)));
        self.tree.spend(key, class, service);
        self.tree.spend_reserved(key, reserved.share(service, had));
        self.tree.expect(key, class, before, expected);
        self.tree
            .expect_reserved(key, reserved.expected, left.expected);
        self.tree.seats(
            key,
            class,
            replica,
            (had.max(seats.in_flight), seats.in_flight),
        );
        if seats.in_flight > 0 {
            return Some(user);
        }
        self.tree.expect(key, class, expected, 0);
        self.tree.expect_reserved(key, left.expected, 0);
        None
    }

    /// Adds the seats of a key to its place in the tree.
    fn user_begins(&mut self, replica: ReplicaId, user: &User) {
        let KeySeats {
            key,
            class,
            in_flight,
            ..
        } = user.seats;
        self.tree.know(key, self.groups.group(key));
        self.tree.seats(key, class, replica, (0, in_flight));
        self.tree.expect(key, class, 0, user.expected);
        self.tree.expect_reserved(key, 0, user.reserved.expected);
    }

    fn user_ends(&mut self, replica: ReplicaId, user: &User) {
        let KeySeats {
            key,
            class,
            in_flight,
            ..
        } = user.seats;
        self.tree.expect(key, class, user.expected, 0);
        self.tree.expect_reserved(key, user.reserved.expected, 0);
        self.tree.seats(key, class, replica, (in_flight, 0));
    }

    /// Counts the seats on all replicas, unless that was done a moment ago or no request waits.
    pub fn count_sometimes(&mut self, now: Time) {
        if self.tree.waiting() > 0 && now >= self.counted_at + COUNT_EVERY {
            self.count(now);
        }
    }

    /// Charges the time of seats since the last count. Tokens are charged when they are reported.
    fn count(&mut self, now: Time) {
        self.counted_at = now;
        for users in self.users.values_mut() {
            for (&(key, class), user) in &mut users.all {
                let inside = user.seats.inside_ms(now);
                let more = inside.saturating_sub(user.counted_ms).saturating_mul(MS);
                user.counted_ms = user.counted_ms.max(inside);
                if users.charging.costs.is_some() {
                    user.headroom = user
                        .headroom
                        .saturating_add(more.saturating_mul(TIMES_SEAT_MAX));
                    continue;
                }
                let before = user.expected;
                user.expected = before.saturating_sub(more);
                let after = user.expected;
                self.tree.spend(key, class, more);
                self.tree.expect(key, class, before, after);
                let (seats, reserved) = (user.seats.in_flight, user.reserved);
                user.reserved = reserved.remaining(seats, seats, after);
                self.tree.spend_reserved(key, reserved.share(more, seats));
                self.tree
                    .expect_reserved(key, reserved.expected, user.reserved.expected);
            }
        }
    }

    /// The replica has ended. Its last seats count until now.
    pub fn ends(&mut self, replica: ReplicaId, now: Time) {
        self.count(now);
        let charging = Charging {
            costs: None,
            request: None,
        };
        self.read(replica, &[], charging, now);
    }

    /// The models and replicas at which a level has changed since the last call.
    pub fn take_change(&mut self) -> ServiceChange {
        self.tree.take_change()
    }

    /// The key that is next for the model, and the lane in which it is.
    pub fn next(&self, model: ModelId) -> Option<(KeyId, Lane)> {
        self.tree.next(model)
    }

    /// The keys of the next turns for the model, each with its lane, as far as they are exact: every request is expected to take as
    /// much as the usual one. `left` returns the number of requests of a key in a lane.
    pub fn next_turns(
        &self,
        model: ModelId,
        charging: Charging,
        left: impl Fn(KeyId, Lane) -> usize,
    ) -> Vec<(KeyId, Lane)> {
        let mut order = Vec::new();
        for lane in [Lane::Usual, Lane::Flex] {
            let mut turns = self.tree.turns(model, lane, charging.estimate(None));
            let mut taken: BTreeMap<KeyId, usize> = BTreeMap::new();
            let mut is_last = |key: KeyId| {
                let taken = taken.entry(key).or_default();
                *taken += 1;
                *taken >= left(key, lane)
            };
            while order.len() < PLACES_MAX
                && let Some(key) = turns.next(&mut is_last)
            {
                order.push((key, lane));
            }
        }
        order
    }

    /// The keys with a seat on the replica.
    pub fn users(&self, replica: ReplicaId) -> impl Iterator<Item = KeyId> + '_ {
        let users = self.users.get(&replica).into_iter();
        let users = users.flat_map(|users| users.all.values());
        users
            .filter(|user| user.seats.in_flight > 0)
            .map(|user| user.seats.key)
    }

    /// The service of a key in steps of about four seat-seconds. Only differences between keys of one group have a meaning.
    pub fn level(&self, key: KeyId) -> u64 {
        self.tree.level(key, self.groups.group(key))
    }

    /// The node below which the key is. Keys with the same home are siblings.
    pub fn home(&self, key: KeyId) -> Slot {
        self.tree.home_of(self.groups.group(key))
    }

    /// Returns true if the key, or its group, has been served more by this many levels: the nearest ones above the two keys that are
    /// siblings are compared.
    pub fn leads(&self, key: KeyId, other: KeyId, levels: u64) -> bool {
        let siblings = self.tree.siblings(key, other);
        siblings.is_some_and(|(own, other)| level(own) >= level(other).saturating_add(levels))
    }

    pub fn group(&self, key: KeyId) -> Option<GroupId> {
        self.groups.group(key)
    }

    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub fn waiting(&self) -> usize {
        self.tree.waiting() as usize
    }

    pub fn is_index_right(&self) -> bool {
        self.tree.is_index_right()
    }
}
