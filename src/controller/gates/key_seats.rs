//! The seats and tokens that each key takes at a gate, for fair shares (F1, P9) and for the account of device time. Requests count
//! themselves; the loop takes the counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::seat_user::SeatUser;
use pool::{KeyId, KeySeats, Span, Time, Tokens};

/// The maximum number of keys without a seat whose ended requests are counted until the loop takes them.
const ENDED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct GateKeys {
    counts: Mutex<Counts>,
    reports_tokens: AtomicBool,
}

#[derive(Debug, Default)]
struct Counts {
    keys: Vec<KeySeats>,
    /// The part of `keys` that requests of batches take.
    batches: Vec<KeySeats>,
    has_changed: bool,
    /// Requests inside, including requests that an earlier controller serves.
    inside: u32,
    /// The start of the current time with a request inside.
    busy_since: Time,
    /// The earlier time with a request inside.
    busy: Span,
    last_key: Option<KeyId>,
}

/// The use of a gate since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GateUse {
    /// The time with a request inside.
    pub busy: Span,
    pub in_flight: u32,
    /// The key whose request ended last.
    pub last_key: Option<KeyId>,
    /// The engine has reported the tokens of a request.
    pub reports_tokens: bool,
    /// The part of the seats and tokens of each key that requests of batches take.
    pub batches: Vec<KeySeats>,
}

/// A request inside: its user, and the time at which it took its seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest<'a> {
    pub user: &'a SeatUser,
    pub entered: Time,
}

impl GateKeys {
    /// A request enters, which weighs this many tokens in the account of device time.
    pub fn enters(&self, user: &SeatUser, weight: u64, now: Time) {
        let mut counts = self.lock();
        counts.has_changed = true;
        counts.inside(1, now);
        for seats in counts.lists(user).map(|keys| entry(keys, user)) {
            seats.enters(now);
            seats.expected = seats.expected + user.expected;
            seats.token_time.changes(now, 0, weight);
        }
    }

    /// The engine has reported the tokens of a request.
    pub fn tokens_are_reported(&self) {
        if !self.reports_tokens.load(Ordering::Relaxed) {
            self.reports_tokens.store(true, Ordering::Relaxed);
        }
    }

    /// A request inside has taken these tokens, of which `fulfilled` had been expected. Its weight changes from `before` to `after`.
    pub fn takes(
        &self,
        guest: Guest<'_>,
        (tokens, fulfilled): (Tokens, Tokens),
        (before, after): (u64, u64),
    ) {
        let mut counts = self.lock();
        counts.has_changed = true;
        for seats in counts.all_of(guest.user) {
            seats.served = seats.served + tokens;
            seats.expected = seats.expected.less(fulfilled);
            seats.token_time.changes(guest.entered, before, after);
        }
    }

    /// A request leaves. `unfulfilled`: the expected tokens that it has not taken. Its weight changes from `before` to `after`.
    pub fn leaves(
        &self,
        guest: Guest<'_>,
        unfulfilled: Tokens,
        (before, after): (u64, u64),
        now: Time,
    ) {
        let mut counts = self.lock();
        counts.has_changed = true;
        counts.inside(-1, now);
        counts.last_key = Some(guest.user.key);
        for seats in counts.all_of(guest.user) {
            seats.leaves(guest.entered, now);
            seats.expected = seats.expected.less(unfulfilled);
            seats.token_time.changes(guest.entered, before, after);
            seats.token_time.leaves(guest.entered, now, after);
        }
    }

    /// Counts requests without a key that enter, or leave for a negative number.
    pub fn guests(&self, more: i64, now: Time) {
        let mut counts = self.lock();
        counts.has_changed = true;
        counts.inside(more, now);
    }

    /// The counts since the last call; `None` if no request has entered, left or taken tokens.
    pub fn take(&self, now: Time) -> Option<(Vec<KeySeats>, GateUse)> {
        let mut counts = self.lock();
        if !std::mem::take(&mut counts.has_changed) {
            return None;
        }
        let all = taken(&mut counts.keys);
        let used = GateUse {
            reports_tokens: self.reports_tokens.load(Ordering::Relaxed),
            batches: taken(&mut counts.batches),
            ..counts.gate_use(now)
        };
        Some((all, used))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// The lists that count this user.
    fn lists(&mut self, user: &SeatUser) -> impl Iterator<Item = &mut Vec<KeySeats>> {
        let batches = user.is_batch.then_some(&mut self.batches);
        std::iter::once(&mut self.keys).chain(batches)
    }

    /// The counts of this user.
    fn all_of(&mut self, user: &SeatUser) -> impl Iterator<Item = &mut KeySeats> {
        let id = (user.key, user.class);
        self.lists(user).filter_map(move |keys| {
            let mut keys = keys.iter_mut();
            keys.find(|seats| (seats.key, seats.class) == id)
        })
    }

    /// Counts requests that enter or leave.
    fn inside(&mut self, more: i64, now: Time) {
        let before = self.inside;
        let inside = i64::from(before).saturating_add(more).max(0);
        self.inside = u32::try_from(inside).unwrap_or(u32::MAX);
        if before == 0 {
            self.busy_since = now;
        } else if self.inside == 0 {
            self.busy = self.busy + now.since(self.busy_since);
        }
    }

    fn gate_use(&self, now: Time) -> GateUse {
        let current = if self.inside > 0 {
            now.since(self.busy_since)
        } else {
            Span::ZERO
        };
        GateUse {
            busy: self.busy + current,
            in_flight: self.inside,
            last_key: self.last_key,
            reports_tokens: false,
            batches: Vec::new(),
        }
    }
}

/// The count of this user in a list.
fn entry<'a>(keys: &'a mut Vec<KeySeats>, user: &SeatUser) -> &'a mut KeySeats {
    let id = (user.key, user.class);
    let nth = keys
        .iter()
        .position(|seats| (seats.key, seats.class) == id)
        .unwrap_or_else(|| {
            make_room(keys);
            keys.push(KeySeats::with_class(user.key, user.class));
            keys.len() - 1
        });
    &mut keys[nth]
}

/// Drops the least count of a key without a seat if there are too many.
fn make_room(keys: &mut Vec<KeySeats>) {
    let ended = keys.iter().filter(|seats| seats.in_flight == 0);
    if ended.count() < ENDED_MAX {
        return;
    }
    let ended = keys.iter().enumerate();
    let ended = ended.filter(|(_, seats)| seats.in_flight == 0);
    if let Some((nth, _)) = ended.min_by_key(|(_, seats)| seats.ended_ms) {
        keys.swap_remove(nth);
    }
}

/// The counts since the last call.
fn taken(keys: &mut Vec<KeySeats>) -> Vec<KeySeats> {
    let taken = keys.clone();
    keys.retain(|seats| seats.in_flight > 0);
    for seats in keys {
        (seats.ended_ms, seats.served) = (0, Tokens::ZERO);
        seats.token_time.ended = 0;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::ServiceClass;

    fn user(key: u64) -> SeatUser {
        KeyId(key).into()
    }

    fn enters(keys: &GateKeys, user: &SeatUser, now: u64) {
        keys.enters(user, 0, Time(now));
    }

    fn leaves(keys: &GateKeys, user: &SeatUser, unfulfilled: Tokens, (entered, now): (u64, u64)) {
        let entered = Time(entered);
        keys.leaves(Guest { user, entered }, unfulfilled, (0, 0), Time(now));
    }

    fn seats(key: u64, in_flight: u32, entered_sum: u64, ended_ms: u64) -> KeySeats {
        KeySeats {
            in_flight,
            entered_sum,
            ended_ms,
            ..KeySeats::new(KeyId(key))
        }
    }

    #[test]
    fn the_loop_gets_the_seats_of_each_key_and_what_has_ended_once() {
        let keys = GateKeys::default();
        assert_eq!(keys.take(Time(500)), None);
        enters(&keys, &user(1), 100);
        enters(&keys, &user(2), 200);
        enters(&keys, &user(1), 300);
        leaves(&keys, &user(1), Tokens::ZERO, (100, 400));
        leaves(&keys, &user(2), Tokens::ZERO, (200, 450));
        let first = vec![seats(1, 1, 300, 300), seats(2, 0, 0, 250)];
        let (taken, used) = keys.take(Time(460)).expect("requests came");
        assert_eq!(taken, first);
        let expected = GateUse {
            busy: Span(360),
            in_flight: 1,
            last_key: Some(KeyId(2)),
            reports_tokens: false,
            batches: Vec::new(),
        };
        assert_eq!(used, expected);
        assert_eq!(keys.take(Time(500)), None);
        leaves(&keys, &user(1), Tokens::ZERO, (300, 500));
        let (taken, used) = keys.take(Time(900)).expect("a request has ended");
        assert_eq!(taken, [seats(1, 0, 0, 200)]);
        assert_eq!((used.busy, used.in_flight), (Span(400), 0));
        enters(&keys, &user(3), 1_000);
        keys.guests(2, Time(1_100));
        leaves(&keys, &user(3), Tokens::ZERO, (1_000, 1_200));
        keys.guests(-2, Time(1_500));
        let (_, used) = keys.take(Time(9_000)).expect("requests came");
        assert_eq!((used.busy, used.in_flight), (Span(900), 0));
    }

    fn tokens(prompt: u64, output: u64) -> Tokens {
        Tokens { prompt, output }
    }

    #[test]
    fn tokens_are_reported_once_and_reduce_what_is_expected() {
        let keys = GateKeys::default();
        let guest = SeatUser {
            class: ServiceClass::Flex,
            expected: tokens(10, 100),
            ..user(1)
        };
        let taken = || keys.take(Time(200)).map(|(taken, _)| taken);
        let takes = |tokens, fulfilled| {
            let inside = Guest {
                user: &guest,
                entered: Time(100),
            };
            keys.takes(inside, (tokens, fulfilled), (0, 0));
        };
        enters(&keys, &user(1), 100);
        enters(&keys, &guest, 100);
        takes(tokens(12, 40), tokens(10, 40));
        let counted = |served, expected| KeySeats {
            class: ServiceClass::Flex,
            served,
            expected,
            ..seats(1, 1, 100, 0)
        };
        let first = vec![seats(1, 1, 100, 0), counted(tokens(12, 40), tokens(0, 60))];
        assert_eq!(taken(), Some(first));
        assert_eq!(taken(), None);
        takes(tokens(0, 5), tokens(0, 5));
        let second = counted(tokens(0, 5), tokens(0, 55));
        assert_eq!(taken().expect("tokens came")[1], second);
        leaves(&keys, &guest, tokens(0, 55), (100, 160));
        let last = KeySeats {
            class: ServiceClass::Flex,
            ..seats(1, 0, 0, 60)
        };
        assert_eq!(taken().expect("a request left")[1], last);
    }

    #[test]
    fn a_request_counts_with_all_of_its_tokens_for_the_time_of_its_seat() {
        let keys = GateKeys::default();
        let inside = Guest {
            user: &user(1),
            entered: Time(1_000),
        };
        keys.enters(inside.user, 100, inside.entered);
        keys.takes(inside, (tokens(0, 300), Tokens::ZERO), (100, 300));
        let token_time = |now| {
            let (taken, used) = keys.take(Time(now)).expect("the request did something");
            let counted = taken[0].token_time;
            (
                counted.inside(Time(now)),
                counted.ended,
                used.reports_tokens,
            )
        };
        assert_eq!(token_time(3_000), (300 * 2_000, 0, false));
        keys.tokens_are_reported();
        keys.leaves(inside, Tokens::ZERO, (300, 200), Time(5_000));
        assert_eq!(token_time(6_000), (0, 200 * 4_000, true));
    }

    #[test]
    fn requests_of_batches_are_counted_apart_and_with_all_others() {
        let keys = GateKeys::default();
        let of_batch = SeatUser {
            class: ServiceClass::Flex,
            is_batch: true,
            ..user(1)
        };
        let interactive = SeatUser {
            is_batch: false,
            ..of_batch
        };
        enters(&keys, &of_batch, 100);
        enters(&keys, &interactive, 100);
        let (all, used) = keys.take(Time(200)).expect("requests came");
        assert_eq!((all.len(), all[0].in_flight), (1, 2));
        assert_eq!((used.batches.len(), used.batches[0].in_flight), (1, 1));
        leaves(&keys, &of_batch, Tokens::ZERO, (100, 300));
        leaves(&keys, &interactive, Tokens::ZERO, (100, 500));
        let (all, used) = keys.take(Time(600)).expect("requests left");
        assert_eq!((all[0].ended_ms, used.batches[0].ended_ms), (600, 200));
        enters(&keys, &interactive, 700);
        let (_, used) = keys.take(Time(800)).expect("a request came");
        assert!(used.batches.is_empty());
    }

    #[test]
    fn a_thousand_keys_that_come_and_go_take_bounded_memory() {
        let keys = GateKeys::default();
        enters(&keys, &user(5_000), 0);
        for key in 0..1_000 {
            enters(&keys, &user(key), 0);
            leaves(&keys, &user(key), Tokens::ZERO, (0, key));
        }
        let (taken, _) = keys.take(Time(0)).expect("requests came");
        assert!(taken.len() <= ENDED_MAX + 1, "{}", taken.len());
        assert!(
            taken.contains(&seats(5_000, 1, 0, 0)),
            "a seat is never dropped"
        );
        assert!(taken.contains(&seats(999, 0, 0, 999)));
    }
}
