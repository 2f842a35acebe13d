//! How much a model is wanted: exponentially decayed counts of its busy periods over an hour, a day and
//! a week, in integers, so that every machine computes the same. Gives the expected loss of evicting it
//! (P5).
//!
//! ```text
//! rate  = min( (2 × λ(1 h) + 3 × λ(24 h) + 5 × λ(7 d)) / 10 , 1 / idle )      busy periods per time
//! λ(w)  = decayed count / min(w, 3 × time since first wanted)
//! loss  = rate × reload time                                   seconds lost per second if it is gone
//! value = loss / bytes                                         what greedy eviction sorts by
//! ```
//!
//! The form, decayed rates over several windows with the age cap 1/idle and pruning of redundant
//! victims, is the one that was better than LRU on every trace of a comparison of sixteen policies; it
//! descends from LNC-R (Scheuermann et al., VLDB 1996) and GreedyDual-Size (Cao and Irani, USITS 1997).
//! Two things are new here and measured with `model-pool simulate --bench`: what is counted is a burst,
//! not a request, since a hundred requests in a row need one load; and a window that is older than the
//! model does not dilute it, or new models would be evicted first for being new.

use super::ids::{Bytes, Span, Time};

/// Mean lifetimes of the three counts.
const WINDOWS_MS: [u64; 3] = [3_600_000, 86_400_000, 604_800_000];
/// What each rate counts, in tenths.
const WEIGHTS: [u64; 3] = [2, 3, 5];
/// One busy period in a count.
const UNIT: u64 = 1_000_000;
/// Requests that follow the last one sooner belong to the same busy period: nothing that is evicted
/// is back by then.
const SAME_BURST: Span = Span::from_secs(10);
/// A window counts for as long as the model has been known, times this.
const AGE_FACTOR: u64 = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Decayed counts in millionths of a busy period, as of `at`.
    counts: [u64; 3],
    at: Time,
    /// When it was first wanted; zero: never.
    first: Time,
}

impl Demand {
    /// Plain numbers for the store.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        [self.at.0, self.first.0].into_iter().chain(self.counts)
    }

    pub(super) fn from_numbers(numbers: &[u64]) -> Option<Demand> {
        let &[at, first, one, two, three] = numbers else {
            return None;
        };
        Some(Demand {
            // A count beyond all use would overflow what is computed from it.
            counts: [one, two, three].map(|count| count.min(u64::MAX >> 20)),
            at: Time(at),
            first: Time(first),
        })
    }

    /// Requests began to come at `now`, after nobody had used the model for `gap`; `None`: ever.
    pub(super) fn wanted(&mut self, now: Time, gap: Option<Span>) {
        if gap.is_some_and(|gap| gap < SAME_BURST) {
            return;
        }
        self.counts = self.decayed(now);
        self.at = self.at.max(now);
        if self.first == Time(0) {
            self.first = now;
        }
        for count in &mut self.counts {
            *count = count.saturating_add(UNIT);
        }
    }

    /// Busy periods per 10⁹ ms, at most one per idle time. The cap keeps a model that was busy
    /// yesterday and is silent now from being kept for its past.
    pub(super) fn rate(&self, now: Time, idle: Span) -> u64 {
        let age = now.since(self.first).0.max(1000).saturating_mul(AGE_FACTOR);
        let sum: u64 = self
            .decayed(now)
            .iter()
            .zip(WINDOWS_MS)
            .zip(WEIGHTS)
            .map(|((count, window), weight)| {
                let per_time = u128::from(*count) * 1000 / u128::from(window.min(age));
                (per_time as u64).saturating_mul(weight)
            })
            .fold(0, u64::saturating_add);
        let cap = 1_000_000_000 / idle.0.max(1);
        (sum / WEIGHTS.iter().sum::<u64>()).min(cap)
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

    fn bursts(count: u64, every: Span) -> Demand {
        let mut demand = Demand::default();
        for nth in 0..count {
            demand.wanted(Time(HOUR + nth * every.0), Some(every));
        }
        demand
    }

    #[test]
    fn a_count_halves_after_the_half_life_of_each_window() {
        let mut demand = Demand::default();
        demand.wanted(Time(1), None);
        let half_life = HOUR / 1000 * 693;
        let counts = demand.decayed(Time(1 + half_life));
        assert_eq!(counts[0], UNIT / 2);
        assert!(
            counts[2] > UNIT / 100 * 99,
            "a week forgets slowly: {}",
            counts[2]
        );
        assert_eq!(demand.decayed(Time(u64::MAX))[0], 0);
    }

    #[test]
    fn a_burst_of_requests_counts_as_one_wish_for_the_model() {
        let mut often = Demand::default();
        often.wanted(Time(HOUR), None);
        let once = often.clone();
        often.wanted(Time(HOUR + 2_000), Some(Span(1_000)));
        assert_eq!(often, once);
        often.wanted(Time(HOUR + 60_000), Some(Span(58_000)));
        assert_ne!(often, once);
    }

    #[test]
    fn a_model_that_fell_silent_is_worth_at_most_one_wish_per_idle_time() {
        let demand = bursts(1000, Span::from_secs(20));
        let last = HOUR + 999 * 20_000;
        let busy = demand.rate(Time(last + 1000), Span::ZERO);
        let silent = demand.rate(Time(last + HOUR), Span(HOUR));
        assert_eq!(silent, 1_000_000_000 / HOUR);
        assert!(busy > silent * 50, "{busy} {silent}");
    }

    #[test]
    fn a_new_model_is_not_evicted_first_for_being_new() {
        let old = bursts(24 * 7, Span(HOUR));
        let now = Time(HOUR + 24 * 7 * HOUR);
        let mut new = Demand::default();
        new.wanted(Time(now.0 - 60_000), None);
        let idle = Span(60_000);
        assert!(new.rate(now, idle) > old.rate(now, idle));
    }

    #[test]
    fn small_and_often_wanted_is_worth_more_per_byte_than_large_and_seldom() {
        let often = loss_per_gib(loss(1000, Span(5000)), Bytes(Bytes::GIB));
        let seldom = loss_per_gib(loss(10, Span(50_000)), Bytes(50 * Bytes::GIB));
        assert!(often > seldom);
    }

    #[test]
    fn numbers_from_the_store_give_the_same_demand_and_rubbish_gives_none() {
        let demand = bursts(7, Span(HOUR));
        let numbers: Vec<u64> = demand.numbers().collect();
        assert_eq!(Demand::from_numbers(&numbers), Some(demand));
        assert_eq!(Demand::from_numbers(&numbers[1..]), None);
        let most = Demand::from_numbers(&[u64::MAX; 5]).expect("five numbers");
        assert!(most.rate(Time(1), Span::ZERO) > 0);
    }
}
