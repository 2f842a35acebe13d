//! The seconds of a minute in which requests arrived, in one integer.

use std::ops::BitOr;

use pool::Time;

const SECONDS: u64 = 60;
const EARLIER: u64 = 1 << SECONDS;

/// The seconds in which the requests that got their seat in a minute arrived: bit `n` for second `n`, and one more bit for requests
/// that arrived before the minute and waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(u64);

impl Seconds {
    pub const EARLIER: Seconds = Seconds(EARLIER);
    /// The number of bits. All others are 0, which keeps the integer non-negative.
    pub const BITS: u32 = 61;

    /// The second of this Unix time.
    pub fn from_time(at: Time) -> Seconds {
        Seconds(1 << (at.0 / 1_000 % SECONDS))
    }

    pub fn from_bits(bits: u64) -> Seconds {
        Seconds(bits & ((1_u64 << Seconds::BITS) - 1))
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if a request arrived before the minute.
    pub fn has_earlier(self) -> bool {
        self.0 & EARLIER != 0
    }

    /// The seconds of the minute in which requests arrived, from 0 to 59.
    pub fn of_minute(self) -> impl Iterator<Item = u64> {
        (0..SECONDS).filter(move |second| (self.0 >> second) & 1 == 1)
    }
}

impl BitOr for Seconds {
    type Output = Seconds;

    fn bitor(self, other: Seconds) -> Seconds {
        Seconds(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_stored_as_bits_with_a_separate_bit_for_earlier_requests() {
        let minute = 29_000_000 * 60_000;
        let all = Seconds::from_time(Time(minute + 999))
            | Seconds::from_time(Time(minute + 7_000))
            | Seconds::from_time(Time(minute + 59_999));
        assert_eq!(all.of_minute().collect::<Vec<u64>>(), [0, 7, 59]);
        assert!(!all.has_earlier() && !all.is_empty());
        let earlier = all | Seconds::EARLIER;
        assert!(earlier.has_earlier());
        assert!(earlier.of_minute().eq(all.of_minute()));
        assert_eq!(Seconds::from_bits(earlier.bits()), earlier);
        // Further bits of a later version are not seconds.
        assert_eq!(
            Seconds::from_bits(u64::MAX).bits().count_ones(),
            Seconds::BITS
        );
    }
}
