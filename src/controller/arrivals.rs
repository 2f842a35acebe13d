//! In which seconds of a minute requests for one model came, for replays of the past. Requests mark them without the loop,
//! which takes the seconds of a minute when it ends.

use std::sync::atomic::{AtomicU64, Ordering};

use super::usage::Minute;
use pool::Time;
use store::Seconds;

/// Above the bits of the seconds a word has the last bits of its minute's number.
const MINUTE_SHIFT: u32 = Seconds::BITS;

/// One word for minutes of even numbers and one for the others: requests come in the next minute before the loop has taken
/// the last one.
#[derive(Debug, Default)]
pub(super) struct Arrivals([AtomicU64; 2]);

impl Arrivals {
    /// A request came and has its seat.
    pub fn came(&self, at: Time) {
        self.mark(Minute::of(at), Seconds::of(at));
    }

    /// A request that came at `from` has its seat now: it counts in this minute.
    pub fn waited(&self, from: Time, now: Time) {
        let minute = Minute::of(now);
        let seconds = match Minute::of(from) == minute {
            true => Seconds::of(from),
            false => Seconds::EARLIER,
        };
        self.mark(minute, seconds);
    }

    /// Takes the seconds of a minute.
    pub fn take(&self, minute: Minute) -> Seconds {
        let empty = empty_word(minute);
        // The word of an older minute would be that of a later one when the few bits of its number come round again. The next
        // minute of the same word may have begun only if the loop is late.
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
            // Where many requests come, most find their second marked and write nothing.
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

/// A word of this minute in which no request came.
fn empty_word(minute: Minute) -> u64 {
    (minute.number() / 2) << MINUTE_SHIFT
}

/// The last bits of the number of the next minute with the same word.
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
        let seconds = arrivals.take(Minute::of(at(minute, 0)));
        (seconds.of_minute().collect(), seconds.has_earlier())
    }

    #[test]
    fn requests_of_the_next_minute_are_not_those_of_the_one_that_is_taken() {
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
    fn a_request_that_waited_counts_in_the_minute_of_its_seat_and_has_its_second_if_it_came_in_it()
    {
        let arrivals = Arrivals::default();
        arrivals.waited(at(8, 10), at(8, 40));
        assert_eq!(taken(&arrivals, 8), (vec![10], false));
        arrivals.waited(at(8, 50), at(9, 5));
        arrivals.waited(at(9, 2), at(9, 5));
        assert_eq!(taken(&arrivals, 8), (vec![], false));
        assert_eq!(taken(&arrivals, 9), (vec![2], true));
    }

    #[test]
    fn a_minute_that_was_never_taken_is_no_part_of_a_later_one() {
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
