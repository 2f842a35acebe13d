//! Chooses how long an idle model is worth its memory, from the model's gaps (L2): the time with the least expected cost of loading
//! it too often and of keeping it for nothing.
//!
//! ```text
//! cost(T) = reload × P(gap > T) + price × GiB × E[min(gap, T)]
//! ```
//!
//! The price of a GiB·second is not configured. It moves until the chosen times cause as many reloads as a fixed time would have
//! caused on the same gaps, so the saving is memory. A model with few gaps borrows from the gaps of all models.

use crate::types::demand::{Demand, OCTAVES, octave, octave_ms};
use crate::types::ids::{Bytes, Span};
use crate::types::model::KeepHotBounds;

/// The fixed time whose number of reloads is matched.
const MATCHED: Span = Span::from_secs(600);
/// The weight of the pool's gaps, as a number of the model's gaps.
const PRIOR_GAPS: u64 = 3;
/// Each gap reduces the pool's older gaps by one part in this power of two.
const FADES_SHIFT: u32 = 10;
const UNIT: u64 = 1 << 16;
/// Prices are in units of 2⁻³² milliseconds of reload for a GiB·millisecond.
const PRICE_BITS: u32 = 32;
/// The first price: a load of 20 s for 20 GiB is worth ten minutes.
const FIRST_PRICE: u64 = (1 << PRICE_BITS) / 600;
/// The amount by which a gap moves the price: this many 4096ths for a load of mean duration, at most eight times that.
const STEP: u64 = 32;
const LARGEST_STEP: u64 = 8 * STEP;
const STEP_WHOLE: u64 = 4096;

#[derive(Clone, Debug)]
pub struct Market {
    gaps: [u64; OCTAVES],
    price: u64,
    /// The mean load that gaps would have caused, in milliseconds; moves slowly.
    mean_reload: u64,
}

impl Default for Market {
    fn default() -> Market {
        Market {
            gaps: [0; OCTAVES],
            price: FIRST_PRICE,
            mean_reload: 20_000,
        }
    }
}

impl Market {
    pub(crate) fn keep_hot(
        &self,
        demand: &Demand,
        reload: Span,
        bytes: Bytes,
        bounds: KeepHotBounds,
    ) -> Span {
        let all: u64 = self.gaps.iter().sum();
        let weight = |nth: usize| {
            let own = u64::from(demand.gaps()[nth]);
            // Without any data, all octaves are equally likely.
            let pooled = (self.gaps[nth] * PRIOR_GAPS * UNIT)
                .checked_div(all)
                .unwrap_or(UNIT / 8);
            own + pooled
        };
        let weights: [u64; OCTAVES] = core::array::from_fn(weight);
        let mebibytes = u128::from(bytes.0.div_ceil(Bytes::MIB));
        let per_ms = u128::from(self.price) * mebibytes / 1024;
        let mut longer: u64 = weights.iter().sum();
        // Weighted milliseconds of keeping the model for gaps that ended before the time.
        let mut kept = 0_u128;
        let mut best = (u128::MAX, Span::ZERO);
        for (nth, weight) in weights.into_iter().enumerate() {
            let (from, to) = octave_ms(nth);
            longer -= weight;
            kept += u128::from(weight) * u128::from(from.midpoint(to));
            let held = kept + u128::from(longer) * u128::from(to);
            let reloads = (u128::from(longer) * u128::from(reload.0)) << PRICE_BITS;
            let cost = reloads.saturating_add(held.saturating_mul(per_ms));
            if cost < best.0 {
                best = (cost, Span(to));
            }
        }
        best.1.clamp(bounds.least, bounds.most.max(bounds.least))
    }

    /// Records an ended gap for which the model would have been kept hot for `chosen`.
    pub(crate) fn observe(&mut self, gap: Span, chosen: Span, reload: Span) {
        for seen in &mut self.gaps {
            *seen -= *seen >> FADES_SHIFT;
        }
        self.gaps[octave(gap)] += UNIT;
        let (cold, cold_if_fixed) = (gap > chosen, gap > MATCHED);
        let step = (STEP.saturating_mul(reload.0) / self.mean_reload.max(1)).min(LARGEST_STEP);
        // With fewer reloads than the fixed time, memory may cost more. With more, it costs less. The price falls slightly faster
        // to correct a first guess that was too high.
        self.price = match (cold, cold_if_fixed) {
            (false, true) => self.price + (self.price / STEP_WHOLE * step * 4 / 5).max(1),
            (true, false) => self.price - self.price / STEP_WHOLE * step,
            _ => self.price,
        }
        .clamp(1 << 12, 1 << 60);
        if cold || cold_if_fixed {
            let mean = (u128::from(self.mean_reload) * 63 + u128::from(reload.0)) / 64;
            self.mean_reload = u64::try_from(mean).unwrap_or(u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::Time;

    const BOUNDS: KeepHotBounds = KeepHotBounds {
        least: Span::from_secs(60),
        most: Span::from_secs(86_400),
    };
    const RELOAD: Span = Span::from_secs(20);
    const SIZE: Bytes = Bytes(20 * Bytes::GIB);

    fn wanted_every(gap: Span, times: u64) -> Demand {
        let mut demand = Demand::default();
        for nth in 0..times {
            demand.wanted(Time(1 + nth * gap.0), Some(gap), RELOAD);
        }
        demand
    }

    #[test]
    fn a_model_used_every_few_minutes_is_kept_and_one_used_daily_is_not() {
        let market = Market::default();
        let often = wanted_every(Span::from_secs(180), 40);
        let daily = wanted_every(Span::from_secs(86_400), 40);
        let kept = market.keep_hot(&often, RELOAD, SIZE, BOUNDS);
        assert!(
            kept >= Span::from_secs(180) && kept < Span::from_secs(600),
            "{kept}"
        );
        assert_eq!(market.keep_hot(&daily, RELOAD, SIZE, BOUNDS), BOUNDS.least);
    }

    #[test]
    fn the_largest_load_times_do_not_overflow() {
        let mut market = Market::default();
        let most = Span(u64::MAX);
        for _ in 0..1_000 {
            market.observe(most, Span::ZERO, most);
        }
        let daily = wanted_every(Span::from_secs(86_400), 40);
        let kept = market.keep_hot(&daily, most, Bytes(u64::MAX), BOUNDS);
        assert!(kept >= BOUNDS.least && kept <= BOUNDS.most, "{kept}");
    }

    #[test]
    fn a_small_or_slow_to_load_model_is_kept_longer() {
        let market = Market::default();
        let demand = wanted_every(Span::from_secs(1_000), 40);
        let kept = |reload: u64, gib: u64| {
            let (reload, size) = (Span::from_secs(reload), Bytes(gib * Bytes::GIB));
            market.keep_hot(&demand, reload, size, BOUNDS)
        };
        assert!(kept(60, 4) > Span::from_secs(1_000));
        assert_eq!(kept(2, 60), BOUNDS.least);
    }

    #[test]
    fn the_price_falls_while_the_chosen_times_cause_more_reloads_than_the_fixed_one() {
        let mut market = Market::default();
        let first = market.price;
        for _ in 0..50 {
            market.observe(Span::from_secs(300), Span::from_secs(60), RELOAD);
        }
        assert!(market.price < first / 4 * 3, "{}", market.price);
        for _ in 0..100 {
            market.observe(Span::from_secs(900), Span::from_secs(1_200), RELOAD);
        }
        assert!(market.price > first, "{}", market.price);
    }
}
