//! Seats of batch requests at a gate (B5). They are outside of the gate's word: an interactive request never waits for them, and the
//! pool sees the replica as idle. They take the room that interactive requests leave, and are cut when that room shrinks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use pool::{Span, Tokens};

/// An interactive request may take this many per mille longer for each token while batch requests run next to it.
const SLOWER_MAX_PERMILLE: u64 = 50;
/// The number of interactive requests between two attempts to run one more batch request next to them.
const PROBE_EVERY: u32 = 256;
/// The number of interactive requests after which the room next to them grows by one, if they are not slower.
const GROW_EVERY: u32 = 8;
/// The weight of the latest request in the moving averages, as a part.
const AVERAGE_PART: u64 = 8;
/// The number of interactive requests without company that make a baseline.
const ALONE_MIN: u32 = 4;
/// The number of interactive requests with company before they are compared with the baseline.
const ACCOMPANIED_MIN: u32 = 2;
/// All free seats.
const UNLIMITED: u32 = u32::MAX;

/// Wakes the runner of batches when a gate may have room. Gates signal only while it waits.
#[derive(Debug, Default)]
pub struct BatchRoom {
    is_awaited: AtomicBool,
    appeared: Notify,
}

impl BatchRoom {
    /// Has gates signal from here on.
    pub fn await_signal(&self) {
        self.is_awaited.store(true, Ordering::Release);
    }

    /// Completes when room has appeared since [`BatchRoom::await_signal`]. Spurious wake-ups are possible.
    pub async fn appears(&self) {
        self.appeared.notified().await;
    }

    pub(super) fn signal(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.is_awaited.store(false, Ordering::Relaxed);
            self.appeared.notify_one();
        }
    }
}

/// The batch requests at a gate.
#[derive(Debug, Default)]
pub(crate) struct BatchSeats {
    taken: Mutex<Taken>,
    count: AtomicU32,
    entries: AtomicU64,
    interactive: InteractiveSpeed,
}

#[derive(Debug, Default)]
struct Taken {
    last: u64,
    /// Oldest first.
    seats: Vec<(u64, CancellationToken)>,
}

impl BatchSeats {
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The number of batch requests that have ever entered.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Acquire)
    }

    /// The number of batch requests that may run next to this many interactive ones.
    pub fn room(&self, seats: u64, in_flight: u64) -> u32 {
        let free = u32::try_from(seats.saturating_sub(in_flight)).unwrap_or(u32::MAX);
        if in_flight == 0 {
            free
        } else {
            free.min(self.interactive.room())
        }
    }

    /// Takes a seat if fewer than `room` are taken. `cut` fires when the seat is lost.
    pub fn enter(&self, room: u32, cut: CancellationToken) -> Option<u64> {
        let mut taken = self.lock();
        if taken.seats.len() >= room as usize {
            return None;
        }
        taken.last += 1;
        let seat = taken.last;
        taken.seats.push((seat, cut));
        self.entries.store(taken.last, Ordering::Release);
        self.store_count(&taken);
        Some(seat)
    }

    /// Gives a seat back, unless it was cut.
    pub fn leave(&self, seat: u64) {
        let mut taken = self.lock();
        taken.seats.retain(|(known, _)| *known != seat);
        self.store_count(&taken);
    }

    /// Cuts the latest requests beyond `room`. The latest have lost the least work.
    pub fn shrink_to(&self, room: u32) {
        if self.count() <= room {
            return;
        }
        let mut taken = self.lock();
        while taken.seats.len() > room as usize {
            if let Some((_, cut)) = taken.seats.pop() {
                cut.cancel();
            }
        }
        self.store_count(&taken);
    }

    /// Learns from an interactive request that has ended: its tokens and the time after its first one. `was_alone`: no batch request
    /// has run next to it.
    pub fn observe(&self, tokens: Tokens, rest: Span, was_alone: bool) {
        let count = self.count();
        self.interactive.observe(tokens, rest, was_alone, count);
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store_count(&self, taken: &Taken) {
        let count = u32::try_from(taken.seats.len()).unwrap_or(u32::MAX);
        self.count.store(count, Ordering::Release);
    }
}

/// The time per token of interactive requests, alone and next to batch requests, and the room that follows from it. There is none
/// before a baseline is known. Then all free seats are room, half as many once the others are slower, and one more while they are not.
#[derive(Debug, Default)]
struct InteractiveSpeed {
    alone: Average,
    accompanied: Average,
    room: AtomicU32,
    ended: AtomicU32,
}

/// A moving average of microseconds per token. Only approximate while requests end at the same time.
#[derive(Debug, Default)]
struct Average {
    micros: AtomicU64,
    samples: AtomicU32,
}

impl Average {
    /// Returns the average and the number of samples.
    fn add(&self, per_token: u64) -> (u64, u32) {
        let samples = self.samples.fetch_add(1, Ordering::Relaxed) + 1;
        let before = self.micros.load(Ordering::Relaxed);
        let after = if samples == 1 {
            per_token
        } else {
            (before * (AVERAGE_PART - 1) + per_token) / AVERAGE_PART
        };
        self.micros.store(after, Ordering::Relaxed);
        (after, samples)
    }

    fn clear(&self) {
        self.samples.store(0, Ordering::Relaxed);
    }
}

impl InteractiveSpeed {
    fn room(&self) -> u32 {
        self.room.load(Ordering::Relaxed)
    }

    /// `count`: the batch requests inside.
    fn observe(&self, tokens: Tokens, rest: Span, was_alone: bool, count: u32) {
        let Some(per_token) = (rest.0 * 1_000).checked_div(tokens.output.saturating_sub(1)) else {
            return;
        };
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let room = self.room();
        if was_alone {
            let (_, samples) = self.alone.add(per_token);
            if samples == ALONE_MIN {
                self.room.store(UNLIMITED, Ordering::Relaxed);
            } else if room == 0 && samples > ALONE_MIN && ended.is_multiple_of(PROBE_EVERY) {
                // Without an attempt the room could never grow again.
                self.room.store(1, Ordering::Relaxed);
            }
            return;
        }
        let (accompanied, samples) = self.accompanied.add(per_token);
        let alone = self.alone.micros.load(Ordering::Relaxed);
        let most = alone + alone * SLOWER_MAX_PERMILLE / 1_000;
        if samples < ACCOMPANIED_MIN {
            return;
        }
        if accompanied > most {
            let room = room.min(count.max(1)) / 2;
            self.room.store(room, Ordering::Relaxed);
            // The smaller room starts from its own measurement.
            self.accompanied.clear();
        } else if samples.is_multiple_of(GROW_EVERY) && count >= room {
            self.room.store(room.saturating_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(output: u64) -> Tokens {
        Tokens { prompt: 10, output }
    }

    #[test]
    fn an_idle_gate_has_all_seats_for_batches_and_a_busy_one_only_the_room_that_was_learned() {
        let seats = BatchSeats::default();
        assert_eq!(seats.room(4, 0), 4);
        assert_eq!(seats.room(4, 1), 0, "unknown effects are not risked");
        assert_eq!(seats.room(4, 5), 0);
    }

    #[test]
    fn shrinking_cuts_the_latest_requests_and_leaves_the_others() {
        let seats = BatchSeats::default();
        let cuts: Vec<CancellationToken> = (0..3).map(|_| CancellationToken::new()).collect();
        let taken: Vec<u64> = cuts
            .iter()
            .filter_map(|cut| seats.enter(3, cut.clone()))
            .collect();
        assert_eq!(taken.len(), 3);
        assert_eq!(seats.enter(3, CancellationToken::new()), None);
        seats.shrink_to(1);
        let is_cut: Vec<bool> = cuts.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(is_cut, [false, true, true]);
        seats.leave(taken[2]);
        assert_eq!(seats.count(), 1, "a cut seat is not given back twice");
        seats.leave(taken[0]);
        assert_eq!(seats.count(), 0);
    }

    #[test]
    fn after_a_baseline_all_free_seats_are_room_until_interactive_requests_are_slower() {
        let seats = BatchSeats::default();
        for _ in 1..ALONE_MIN {
            seats.observe(tokens(101), Span(1_000), true);
            assert_eq!(seats.room(64, 1), 0);
        }
        seats.observe(tokens(101), Span(1_000), true);
        assert_eq!(seats.room(64, 1), 63);
        for _ in 0..40 {
            seats.enter(63, CancellationToken::new());
        }
        for _ in 0..100 {
            seats.observe(tokens(101), Span(1_040), false);
        }
        assert_eq!(seats.room(64, 1), 63, "4 % are allowed");
        let rooms = (0..12).map(|_| {
            seats.observe(tokens(101), Span(2_000), false);
            seats.shrink_to(seats.room(64, 1));
            seats.room(64, 1)
        });
        let rooms: Vec<u32> = rooms.collect();
        assert_eq!(rooms, [20, 20, 10, 10, 5, 5, 2, 2, 1, 1, 0, 0]);
    }

    #[test]
    fn a_small_room_grows_by_one_while_interactive_requests_keep_their_speed() {
        let seats = BatchSeats::default();
        (0..ALONE_MIN).for_each(|_| seats.observe(tokens(101), Span(1_000), true));
        for _ in 0..4 {
            seats.observe(tokens(101), Span(9_000), false);
        }
        assert_eq!(
            seats.room(64, 1),
            0,
            "one batch request at a time was too many"
        );
        (ALONE_MIN + 4..PROBE_EVERY).for_each(|_| seats.observe(tokens(101), Span(1_000), true));
        assert_eq!(seats.room(64, 1), 1, "an attempt");
        for _ in 0..8 * GROW_EVERY {
            seats.enter(seats.room(64, 1), CancellationToken::new());
            seats.observe(tokens(101), Span(1_020), false);
        }
        assert_eq!(seats.room(64, 1), 9);
    }

    #[test]
    fn responses_of_a_single_token_say_nothing_about_the_speed() {
        let speed = InteractiveSpeed::default();
        for output in [0, 1] {
            speed.observe(tokens(output), Span(5_000), true, 0);
        }
        assert_eq!(speed.alone.samples.load(Ordering::Relaxed), 0);
    }
}
