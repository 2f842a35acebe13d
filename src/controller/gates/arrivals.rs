//! Records the seconds of each minute in which requests for a model came, for replays of the past. Requests set the marks without
//! the loop, which collects them when the minute ends.

use std::sync::atomic::{AtomicU64, Ordering};

use super::minute::Minute;
use pool::Time;
use store::Seconds;

/// The bits above the seconds hold the low bits of the minute's number.
const MINUTE_SHIFT: u32 = Seconds::BITS;

/// One word for even minutes and one for odd ones: requests of the next minute arrive before the loop has collected the last one.
#[derive(Debug, Default)]
pub(crate) struct Arrivals([AtomicU64; 2]);

impl Arrivals {
    /// Marks a request that got its seat on arrival.
    pub fn came(&self, at: Time) {
        self.mark(Minute::from_time(at), Seconds::from_time(at));
    }

    /// Marks a request that came at `from` and waited until `now`. It counts in the minute it got its seat.
    pub fn waited(&self, from: Time, now: Time) {
        let minute = Minute::from_time(now);
        let seconds = if Minute::from_time(from) == minute {
            Seconds::from_time(from)
        } else {
            Seconds::EARLIER
        };
        self.mark(minute, seconds);
    }

    /// Takes the marks of a minute.
    pub fn take(&self, minute: Minute) -> Seconds {
        let empty = empty_word(minute);
        // Keeps marks of the next minute that shares the word, which can exist only if the loop is late. Older marks are taken:
        // their few bits would otherwise match a later minute's number.
        let is_next = |word: u64| word >> MINUTE_SHIFT == after(empty >> MINUTE_SHIFT);
        let take = |word: u64| (!is_next(word)).then_some(empty);
        let before = self
            .word(minute)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let own = before.ok().filter(|word| is_of(*word, minute));
        own.map_or(Seconds::default(), Seconds::from_bits)
    }

    fn mark(&self, minute: Minute, seconds: Seconds) {
        let empty = empty_word(minute);
        let mark = |word: u64| {
            let before = if is_of(word, minute) { word } else { empty };
            let after = before | seconds.bits();
            // Under load, most requests find their second marked and write nothing.
            (after != word).then_some(after)
        };
        let _ = self
            .word(minute)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark);
    }

    fn word(&self, minute: Minute) -> &AtomicU64 {
        let [even, odd] = &self.0;
        match minute.number() % 2 {
            0 => even,
            _ => odd,
        }
    }
}

/// The word of this minute without any mark.
fn empty_word(minute: Minute) -> u64 {
    (minute.number() / 2) << MINUTE_SHIFT
}

/// The low bits of the number of the next minute that shares the word.
fn after(number: u64) -> u64 {
    (number + 1) & (u64::MAX >> MINUTE_SHIFT)
}

fn is_of(word: u64, minute: Minute) -> bool {
    word >> MINUTE_SHIFT == empty_word(minute) >> MINUTE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u64, second: u64) -> Time {
        Time(minute * 60_000 + second * 1_000 + 17)
    }

    fn taken(arrivals: &Arrivals, minute: u64) -> (Vec<u64>, bool) {
        let seconds = arrivals.take(Minute::from_time(at(minute, 0)));
        (seconds.of_minute().collect(), seconds.has_earlier())
    }

    #[test]
    fn requests_of_the_next_minute_are_not_counted_in_the_one_being_taken() {
        let arrivals = Arrivals::default();
        for second in [0, 7, 7, 59] {
            arrivals.came(at(29_000_000, second));
        }
        arrivals.came(at(29_000_001, 3));
        assert_eq!(taken(&arrivals, 29_000_000), (vec![0, 7, 59], false));
        assert_eq!(taken(&arrivals, 29_000_000), (vec![], false));
        assert_eq!(taken(&arrivals, 29_000_001), (vec![3], false));
    }

    #[test]
    fn a_waiting_request_counts_in_the_minute_of_its_seat_and_keeps_only_its_own_second() {
        let arrivals = Arrivals::default();
        arrivals.waited(at(8, 10), at(8, 40));
        assert_eq!(taken(&arrivals, 8), (vec![10], false));
        arrivals.waited(at(8, 50), at(9, 5));
        arrivals.waited(at(9, 2), at(9, 5));
        assert_eq!(taken(&arrivals, 8), (vec![], false));
        assert_eq!(taken(&arrivals, 9), (vec![2], true));
    }

    #[test]
    fn a_skipped_minute_does_not_leak_into_a_later_one() {
        let arrivals = Arrivals::default();
        arrivals.came(at(8, 10));
        assert_eq!(taken(&arrivals, 10), (vec![], false));
        arrivals.came(at(12, 20));
        assert_eq!(taken(&arrivals, 12), (vec![20], false));
        arrivals.came(at(14, 30));
        assert_eq!(taken(&arrivals, 20), (vec![], false));
        assert_eq!(taken(&arrivals, 30), (vec![], false), "16 minutes later");
    }
}
