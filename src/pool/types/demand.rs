//! Tracks how much a model is used: the gaps before requests and their recent frequency. Uses integers, so every machine computes
//! the same. Yields the expected loss of an eviction (P5).
//!
//! ```text
//! index = max over T of  P(idle < gap ≤ T) / E[min(gap, T) − idle]      from the model's own gaps
//! rate  = min( (λ(1 h) + λ(24 h) + λ(7 d)) / 3 , 2 / idle )             busy periods per time
//! value = √(index × rate)
//! loss  = value × reload time                       seconds lost per second if it is gone
//! sort key of greedy eviction = loss / bytes
//! ```
//!
//! `index` is the Gittins index of keeping the model, given how long it has been idle: the best chance per time that it is needed
//! again, over every patience T. It recognises a model that is used every night. `rate` is a decayed count over three windows with
//! an age cap, as in LNC-R (Scheuermann et al., VLDB 1996). It recognises a model that became popular. Their geometric mean was
//! better than either, and better than LRU, on eighteen traces at four capacities; `model-pool simulate --bench` measures it
//! against other systems' rules. Busy periods are counted instead of requests, because a hundred requests in a row need only one
//! load.

use crate::types::ids::{Bytes, Span, Time};

/// Mean lifetimes of the three counts.
const WINDOWS_MS: [u64; 3] = [3_600_000, 86_400_000, 604_800_000];
/// The weight of a busy period in a count.
const UNIT: u64 = 1 << 20;
/// A request that follows the previous one within the time of a load belongs to the same busy period, because no other model could
/// have used the pause. After this time it begins another period in any case.
const SAME_BURST_MAX: Span = Span::from_secs(30);

/// Gaps are kept in octaves: `[0, 2)` s, `[2, 4)` s, … , and everything above 2²³ s.
pub(crate) const OCTAVES: usize = 24;
/// The weight of a gap in an octave.
const GAP_UNIT: u32 = 1 << 16;
/// Each new gap reduces the older ones by one part in this power of two.
const GAP_FADES_SHIFT: u32 = 7;
/// The prior of every octave: a twentieth of a gap, which makes the index of an unknown model decrease with its idle time.
const GAP_PRIOR: u64 = GAP_UNIT as u64 / 20;

/// Fewer gaps than this do not predict the next one.
const GAPS_LEAST: u64 = 3;

/// The number of recent gaps kept exactly. Octaves of seconds cannot show whether a request comes within the time of a swap.
const LAST_GAPS: usize = 8;
/// The number of these gaps that must agree to predict a request soon.
const LAST_GAPS_LEAST: usize = 2;
/// Gaps shorter than this part of the time until which a request may come are rounded up to it.
const GAPS_APART: u64 = 16;

/// The loss of a model in use, by least recent use.
const RECENT: u64 = 1 << 50;

/// Rates are in units of 2⁻⁶⁰ per millisecond.
const RATE_BITS: u32 = 60;
/// Losses are in units of 10⁻¹².
const LOSS_UNIT: u128 = 1_000_000_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The frequency of each octave of gaps, weighted towards recent gaps.
    gaps: [u32; OCTAVES],
    /// Decayed counts of busy periods, as of `at`.
    counts: [u64; 3],
    at: Time,
    /// The last gaps in milliseconds plus one, newest first; 0 if absent.
    last_gaps: [u64; LAST_GAPS],
}

impl Demand {
    /// As plain numbers for the store.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let gaps = self.gaps.iter().map(|&seen| u64::from(seen));
        let times = core::iter::once(self.at.0).chain(self.counts);
        times.chain(gaps).chain(self.last_gaps)
    }

    pub(crate) fn from_numbers(numbers: &[u64]) -> Option<Demand> {
        let (&at, rest) = numbers.split_first()?;
        let (counts, rest) = rest.split_first_chunk::<3>()?;
        let (gaps, last) = rest.split_first_chunk::<OCTAVES>()?;
        // Data stored by an older version ends here.
        let last_gaps = match last {
            [] => [0; LAST_GAPS],
            last => last.try_into().ok()?,
        };
        Some(Demand {
            // Larger values cannot have been counted and would overflow below.
            gaps: gaps.map(|seen| u32::try_from(seen).unwrap_or(0).min(GAP_UNIT << 8)),
            counts: counts.map(|count| count.min(UNIT << 24)),
            at: Time(at),
            last_gaps,
        })
    }

    /// Records that requests begin at `now` after the model was unused for `gap`. `None` for its first use.
    pub(crate) fn wanted(&mut self, now: Time, gap: Option<Span>, reload: Span) {
        if let Some(gap) = gap {
            self.came_after(gap);
            for seen in &mut self.gaps {
                *seen -= *seen >> GAP_FADES_SHIFT;
            }
            self.gaps[octave(gap)] += GAP_UNIT;
            if gap < reload.min(SAME_BURST_MAX) {
                return;
            }
        }
        self.counts = self.decayed(now);
        self.at = self.at.max(now);
        for count in &mut self.counts {
            *count = count.saturating_add(UNIT);
        }
    }

    /// Records a request that came after this gap within a busy period.
    pub(crate) fn came_after(&mut self, gap: Span) {
        self.last_gaps.rotate_right(1);
        self.last_gaps[0] = gap.0.saturating_add(1);
    }

    /// The frequency of each octave of gaps, in 2⁻¹⁶.
    pub(crate) fn gaps(&self) -> &[u32; OCTAVES] {
        &self.gaps
    }

    /// The expected loss per second of the model's absence, in 10⁻¹² s.
    pub(crate) fn loss(&self, now: Time, idle: Span, reload: Span) -> u64 {
        let idle = idle.0.max(1000);
        let value = (u128::from(self.index(idle)) * u128::from(self.rate(now, idle))).isqrt();
        let lost = (value * u128::from(reload.0)).saturating_mul(LOSS_UNIT) >> RATE_BITS;
        u64::try_from(lost).unwrap_or(u64::MAX)
    }

    /// The Gittins index at an idle time. For every octave's end as the patience: the chance of a request up to then, divided by
    /// the time spent up to then. In 2⁻⁶⁰ per ms.
    fn index(&self, idle_ms: u64) -> u64 {
        let first = octave(Span(idle_ms));
        let (lower, upper) = octave_ms(first);
        let idle = idle_ms.min(upper - 1);
        let mut likely = [0_u64; OCTAVES];
        for (weight, seen) in likely.iter_mut().zip(self.gaps).skip(first) {
            *weight = u64::from(seen) + GAP_PRIOR;
        }
        // Only the rest of the current octave lies ahead.
        likely[first] = likely[first] * (upper - idle) / (upper - lower);
        let mut ahead: u64 = likely.iter().sum();
        let (mut seen, mut twice_time, mut from) = (0_u64, 0_u128, idle);
        // The chance and twice the time of the best patience so far. Candidates are compared by multiplication, which leaves a
        // single division of 128 bits instead of 24.
        let (mut best, mut best_time) = (0_u64, 1_u128);
        for (nth, &weight) in likely.iter().enumerate().skip(first) {
            let edge: u64 = 1000 << (nth + 1);
            seen += weight;
            ahead -= weight;
            twice_time += u128::from(edge - from) * u128::from(2 * ahead + weight);
            from = edge;
            if twice_time > 0 && u128::from(seen) * best_time > u128::from(best) * twice_time {
                (best, best_time) = (seen, twice_time);
            }
        }
        let best = (u128::from(best) << (RATE_BITS + 1)) / best_time;
        u64::try_from(best).unwrap_or(u64::MAX).min(1 << RATE_BITS)
    }

    /// The chance, in thousandths, of a request within a time, given the model's idle time. `None` until it has been used a few
    /// times. Within an octave the chance is spread evenly.
    pub(crate) fn chance(&self, idle: Span, within: Span) -> Option<u32> {
        let seen: u64 = self.gaps.iter().map(|&seen| u64::from(seen)).sum();
        if seen < GAPS_LEAST * u64::from(GAP_UNIT) {
            return None;
        }
        let (from, to) = (idle.0, idle.0.saturating_add(within.0));
        let (mut soon, mut ahead) = (0_u128, 0_u128);
        for (nth, seen) in self.gaps.iter().enumerate() {
            let (lower, upper) = octave_ms(nth);
            let weight = u128::from(u64::from(*seen) + GAP_PRIOR);
            let part = |from: u64, to: u64| {
                let length = to.min(upper).saturating_sub(from.max(lower));
                weight * u128::from(length) / u128::from(upper - lower)
            };
            soon += part(from, to);
            ahead += part(from, u64::MAX);
        }
        let chance = (soon * 1000).checked_div(ahead).unwrap_or(0);
        Some(u32::try_from(chance).unwrap_or(1000))
    }

    /// Predicts whether the next request comes within this time, after `idle`: most of the last gaps that were at least as long
    /// ended by that time. Returns how long the prediction holds.
    ///
    /// Gaps that are short compared with that time are treated as equal: a client that took a millisecond eight times and now takes
    /// three is only slightly late.
    pub(crate) fn expected_for(&self, idle: Span, within: Span) -> Option<Span> {
        let until = idle.0.saturating_add(within.0);
        let shortest = until / GAPS_APART;
        let gaps = self.last_gaps.iter().filter_map(|gap| gap.checked_sub(1));
        let ahead = gaps
            .map(|gap| gap.max(shortest))
            .filter(|gap| *gap >= idle.0);
        let (mut near, mut all, mut first) = (0, 0, until);
        for gap in ahead {
            all += 1;
            if gap <= until {
                near += 1;
                first = first.min(gap);
            }
        }
        (near >= LAST_GAPS_LEAST && 2 * near >= all).then_some(Span(first - idle.0 + 1))
    }

    /// Busy periods per time, at most two per idle time. A model that was popular yesterday and is silent now is not kept for its
    /// past. In 2⁻⁶⁰ per ms.
    fn rate(&self, now: Time, idle_ms: u64) -> u64 {
        let sum: u128 = self
            .decayed(now)
            .iter()
            .zip(WINDOWS_MS)
            .map(|(&count, window)| {
                (u128::from(count) << (RATE_BITS - UNIT.ilog2())) / u128::from(window)
            })
            .sum();
        let cap = (2_u128 << RATE_BITS) / u128::from(idle_ms);
        u64::try_from((sum / 3).min(cap)).unwrap_or(u64::MAX)
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

pub(crate) fn octave(gap: Span) -> usize {
    let seconds = gap.0 / 1000;
    (seconds.max(1).ilog2() as usize).min(OCTAVES - 1)
}

/// The shortest and the longest gap of an octave, in milliseconds.
pub(crate) fn octave_ms(nth: usize) -> (u64, u64) {
    let from = if nth == 0 { 0 } else { 1000 << nth };
    (from, 1000 << (nth + 1))
}

/// The loss by least recent use: it falls with the idle time.
pub(crate) fn recency(idle: Span) -> u64 {
    RECENT / idle.0.saturating_add(1)
}

/// The loss per GiB, the sort key of greedy eviction.
pub(crate) fn loss_per_gib(loss: u64, bytes: Bytes) -> u64 {
    let scaled = u128::from(loss) * u128::from(Bytes::GIB) / u128::from(bytes.0.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SECOND: u64 = 1000;
    const HOUR: u64 = 3600 * SECOND;
    const RELOAD: Span = Span(10 * SECOND);

    /// `count` busy periods, each after the same gap; returns the end of the last one.
    fn periodic(count: u64, gap: Span) -> (Demand, Time) {
        let mut demand = Demand::default();
        let mut now = Time(HOUR);
        demand.wanted(now, None, RELOAD);
        for _ in 1..count {
            now = now + gap;
            demand.wanted(now, Some(gap), RELOAD);
        }
        (demand, now)
    }

    #[test]
    fn demand_counts_halve_after_the_half_life_of_their_window() {
        let (demand, now) = periodic(1, Span(HOUR));
        let half_life = HOUR / 1000 * 693;
        let counts = demand.decayed(now + Span(half_life));
        assert_eq!(counts[0], UNIT / 2);
        assert!(
            counts[2] > UNIT / 100 * 99,
            "a week forgets slowly: {}",
            counts[2]
        );
        assert_eq!(demand.decayed(Time(u64::MAX))[0], 0);
    }

    #[test]
    fn consecutive_requests_count_as_one_busy_period() {
        let (once, now) = periodic(1, Span(HOUR));
        let mut often = once.clone();
        often.wanted(now + Span(2 * SECOND), Some(Span(SECOND)), RELOAD);
        assert_eq!(often.counts, once.counts);
        often.wanted(now + Span(15 * SECOND), Some(Span(12 * SECOND)), RELOAD);
        assert_ne!(
            often.counts, once.counts,
            "others could load in the meantime"
        );
        let mut slow = once.clone();
        let hour = Span(HOUR);
        slow.wanted(now + Span(60 * SECOND), Some(Span(58 * SECOND)), hour);
        assert_ne!(slow.counts, once.counts, "however long a load takes");
    }

    #[test]
    fn the_eviction_loss_of_a_model_falls_with_its_idle_time() {
        let (demand, last) = periodic(100, Span(120 * SECOND));
        let losses: Vec<u64> = [1, 200, 3_600, 86_400]
            .map(|seconds| {
                demand.loss(
                    last + Span(seconds * SECOND),
                    Span(seconds * SECOND),
                    RELOAD,
                )
            })
            .into();
        assert!(losses.is_sorted_by(|one, next| one > next), "{losses:?}");
    }

    #[test]
    fn an_hourly_model_is_worth_more_shortly_before_the_hour_than_a_model_requested_once() {
        let (hourly, last) = periodic(50, Span(HOUR));
        let mut once = Demand::default();
        once.wanted(last, None, RELOAD);
        let idle = Span(50 * 60 * SECOND);
        let now = last + idle;
        assert!(hourly.loss(now, idle, RELOAD) > 2 * once.loss(now, idle, RELOAD));
    }

    #[test]
    fn a_model_that_was_never_requested_has_no_loss_and_can_be_ranked() {
        let unknown = Demand::default();
        assert_eq!(unknown.loss(Time(HOUR), Span::ZERO, RELOAD), 0);
        assert!(unknown.index(60 * SECOND) > unknown.index(600 * SECOND));
    }

    #[test]
    fn the_eviction_loss_grows_with_reload_time_and_falls_with_size() {
        let (demand, last) = periodic(10, Span(HOUR));
        let quick = demand.loss(last, Span::ZERO, RELOAD);
        let slow = demand.loss(last, Span::ZERO, Span(RELOAD.0 * 5));
        assert!(slow.abs_diff(quick * 5) < 10, "{quick} {slow}");
        assert!(loss_per_gib(slow, Bytes(Bytes::GIB)) > loss_per_gib(slow, Bytes(9 * Bytes::GIB)));
    }

    #[test]
    fn a_request_is_expected_soon_if_most_recent_gaps_agree() {
        let (demand, _) = periodic(10, Span(300));
        assert_eq!(demand.expected_for(Span(100), Span(200)), Some(Span(201)));
        assert_eq!(demand.expected_for(Span(100), Span(150)), None);
        assert_eq!(
            demand.expected_for(Span(301), Span(300)),
            None,
            "it did not come when it used to"
        );
        let (quick, _) = periodic(10, Span(1));
        assert_eq!(
            quick.expected_for(Span(5), Span(155)),
            Some(Span(6)),
            "a little late is no sign that it stays away"
        );
        assert_eq!(quick.expected_for(Span(11), Span(149)), None);
        let (twice, _) = periodic(2, Span(300));
        assert_eq!(
            twice.expected_for(Span(0), Span(HOUR)),
            None,
            "one gap proves nothing"
        );
    }

    #[test]
    fn demand_round_trips_through_its_numbers_and_invalid_numbers_are_harmless() {
        let (demand, _) = periodic(7, Span(HOUR));
        let numbers: Vec<u64> = demand.numbers().collect();
        assert_eq!(Demand::from_numbers(&numbers), Some(demand.clone()));
        assert_eq!(Demand::from_numbers(&numbers[1..]), None);
        let older = Demand::from_numbers(&numbers[..28]).expect("an older version's numbers");
        assert_eq!((older.gaps, older.counts), (demand.gaps, demand.counts));
        let mut most = Demand::from_numbers(&[u64::MAX; 28]).expect("as many numbers");
        most.wanted(Time(u64::MAX), Some(Span(u64::MAX)), RELOAD);
        let loss = most.loss(Time(1), Span::ZERO, Span(u64::MAX >> 1));
        assert!(loss > 0);
    }
}
