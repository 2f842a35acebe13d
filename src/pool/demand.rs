//! How much a model is wanted: exponentially decayed request counts over an hour, a day and a week,
//! in integers, so that every machine computes the same. Gives the expected loss of evicting it (P5).

use super::ids::{Bytes, Span, Time};

/// Mean lifetimes of the three counts.
const WINDOWS_MS: [u64; 3] = [3_600_000, 86_400_000, 604_800_000];
/// One request in a count.
const UNIT: u64 = 1_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Decayed counts in millionths of a request, as of `at`.
    counts: [u64; 3],
    at: Time,
}

impl Demand {
    /// Plain numbers for the store.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.at.0).chain(self.counts)
    }

    pub(super) fn from_numbers(numbers: &[u64]) -> Option<Demand> {
        let &[at, first, second, third] = numbers else {
            return None;
        };
        Some(Demand {
            counts: [first, second, third],
            at: Time(at),
        })
    }

    pub(super) fn add(&mut self, now: Time, requests: u64) {
        self.counts = self.decayed(now);
        self.at = self.at.max(now);
        for count in &mut self.counts {
            *count = count.saturating_add(requests.saturating_mul(UNIT));
        }
    }

    /// Requests per 10⁹ ms: the mean of the three decayed rates, at most one per idle time. The cap
    /// keeps a model that was busy yesterday and is silent now from being kept for its past.
    pub(super) fn rate(&self, now: Time, idle: Span) -> u64 {
        let sum: u64 = self
            .decayed(now)
            .iter()
            .zip(WINDOWS_MS)
            .map(|(count, window)| (u128::from(*count) * 1000 / u128::from(window)) as u64)
            .sum();
        let cap = 1_000_000_000 / idle.0.max(1);
        (sum / 3).min(cap)
    }

    fn decayed(&self, now: Time) -> [u64; 3] {
        let elapsed = now.since(self.at).0;
        let mut counts = self.counts;
        for (count, window) in counts.iter_mut().zip(WINDOWS_MS) {
            // ln 2 = 0.693147: the half-life of an exponential with this mean lifetime.
            let half_life = window / 1000 * 693;
            let halvings = (elapsed / half_life).min(63);
            let rest = elapsed % half_life;
            let whole = *count >> halvings;
            *count =
                whole - (u128::from(whole / 2) * u128::from(rest) / u128::from(half_life)) as u64;
        }
        counts
    }
}

/// Expected seconds lost per second if the replica is gone, in 10⁻⁹ (rate × reload time).
pub(super) fn loss(rate: u64, reload: Span) -> u64 {
    rate.saturating_mul(reload.0)
}

/// Loss per GiB: what greedy eviction sorts by.
pub(super) fn loss_per_gib(loss: u64, bytes: Bytes) -> u64 {
    let scaled = u128::from(loss) * u128::from(Bytes::GIB) / u128::from(bytes.0.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_count_halves_after_the_half_life_of_each_window() {
        let mut demand = Demand::default();
        demand.add(Time(0), 1000);
        let half_life = HOUR / 1000 * 693;
        let counts = demand.decayed(Time(half_life));
        assert_eq!(counts[0], 500 * UNIT);
        assert!(
            counts[2] > 990 * UNIT,
            "a week forgets slowly: {}",
            counts[2]
        );
        assert_eq!(demand.decayed(Time(u64::MAX))[0], 0);
    }

    #[test]
    fn a_model_that_fell_silent_is_worth_at_most_one_request_per_idle_time() {
        let mut demand = Demand::default();
        demand.add(Time(0), 100_000);
        let busy = demand.rate(Time(1000), Span::ZERO);
        let silent = demand.rate(Time(HOUR), Span(HOUR));
        assert_eq!(silent, 1_000_000_000 / HOUR);
        assert!(busy > silent * 100);
    }

    #[test]
    fn small_and_often_wanted_is_worth_more_per_byte_than_large_and_seldom() {
        let often = loss_per_gib(loss(1000, Span(5000)), Bytes(Bytes::GIB));
        let seldom = loss_per_gib(loss(10, Span(50_000)), Bytes(50 * Bytes::GIB));
        assert!(often > seldom);
    }
}
