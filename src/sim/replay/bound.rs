//! Computes a lower bound for every policy: the reload time that the requests cost even with perfect knowledge.
//!
//! Between two uses of a model, either its memory is kept, or it is loaded again. That is a packing of intervals into the pool's
//! memory (the flow-based offline optimum of Berger, Beckmann and Harchol-Balter, "Practical bounds on optimal caching with
//! variable object sizes", 2018). It is bounded here by Lagrangian relaxation: with a price λₜ ≥ 0 for the entire memory during
//! each slice of time, each interval pays for its memory or for its reload, whichever is less, and
//!
//! ```text
//! L(λ) = Σⱼ min(reloadⱼ, sizeⱼ · Σₜ λₜ · shareⱼₜ) − Σₜ λₜ      (sizes as parts of the total memory)
//! ```
//!
//! is below the optimum for every λ, so the largest value found is a bound, however the search went.
//!
//! The bound is optimistic: requests are served when they arrive, memory is one piece over all devices, and loads run
//! simultaneously and never wait. A policy that lets requests wait can serve several bursts with one load and therefore go below
//! it, at the price of the wait. Sums are computed in a fixed order, which makes the figure reproducible.

use alloc::vec::Vec;

use super::scenario::{Arrival, Scenario};
use pool::{Span, Time};

/// Slices of time with separate prices.
const SLICES: usize = 4096;
/// The number of search steps.
const STEPS: u32 = 300;

/// A lower bound, and its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bound {
    /// The reload time that every policy needs, including first loads.
    pub reload: Span,
    /// The part of it that the first loads need.
    pub first_loads: Span,
    /// The reload time if no model were ever kept between uses; an upper bound, not a policy.
    pub without_keeping: Span,
    /// The number of intervals between uses during which a model could have been kept.
    pub intervals: u64,
}

/// The time between two uses of a model. Positions are in slices, with fractions.
struct Interval {
    from: f64,
    to: f64,
    /// The part of the entire memory.
    size: f64,
    /// Seconds.
    reload: f64,
}

/// The bound for these requests. Models that need more than the entire memory cost nothing.
pub fn bound(scenario: &Scenario, arrivals: impl IntoIterator<Item = Arrival>) -> Bound {
    let room = |reading: &pool::DeviceReading| {
        let free = reading.total.saturating_sub(reading.headroom);
        free.saturating_sub(reading.foreign).0 as f64
    };
    let memory: f64 = scenario
        .devices
        .iter()
        .map(|(_, reading)| room(reading))
        .sum();
    let mut gaps: Vec<(Time, Time, usize)> = Vec::new();
    let mut busy_until: Vec<Option<Time>> = vec![None; scenario.models.len()];
    let mut found = Bound::default();
    let (mut start, mut end) = (Time(u64::MAX), Time(0));
    let size = |model: usize| {
        let spec = &scenario.models[model];
        spec.bytes_per_device.0 as f64 * f64::from(spec.devices_per_replica.max(1)) / memory
    };
    for Arrival {
        at, model, service, ..
    } in arrivals
    {
        let nth = model.0 as usize;
        if memory <= 0.0 || size(nth) > 1.0 {
            continue;
        }
        start = start.min(at);
        end = end.max(at);
        let ends = at + service;
        match busy_until[nth] {
            None => {
                let reload = found.first_loads.0 + scenario.models[nth].reload.0;
                found.first_loads = Span(reload);
                busy_until[nth] = Some(ends);
            }
            Some(before) => {
                // While a model serves, its memory cannot be taken, so it is certainly kept.
                if before < at {
                    gaps.push((before, at, nth));
                }
                busy_until[nth] = Some(before.max(ends));
            }
        }
    }
    let length = (end.since(start).0 as f64 / SLICES as f64).max(1.0);
    let place = |at: Time| (at.since(start).0 as f64 / length).min(SLICES as f64);
    let intervals: Vec<Interval> = gaps
        .into_iter()
        .map(|(from, to, nth)| Interval {
            from: place(from),
            to: place(to),
            size: size(nth),
            reload: scenario.models[nth].reload.0 as f64 / 1000.0,
        })
        .collect();
    let all: f64 = intervals.iter().map(|interval| interval.reload).sum();
    let least = search(&intervals, all);
    found.intervals = intervals.len() as u64;
    // Rounded down: a bound that is rounded up is not a bound.
    found.reload = Span(found.first_loads.0 + (least * 1000.0 * (1.0 - 1e-9)) as u64);
    found.without_keeping = Span(found.first_loads.0 + (all * 1000.0) as u64);
    found
}

/// Subgradient ascent. The step size follows from the distance to a target above the best bound; the target moves closer whenever
/// it proves too far.
fn search(intervals: &[Interval], all: f64) -> f64 {
    let mut prices = best_flat_price(intervals);
    let (mut best, mut best_prices) = (0.0, prices.clone());
    let (mut reach, mut without_gain) = (0.5, 0);
    let mut used = vec![0.0; SLICES];
    for _ in 0..STEPS {
        let value = evaluate(intervals, &prices, &mut used);
        if value > best * (1.0 + 1e-6) {
            (best, without_gain) = (value, 0);
            best_prices.clone_from(&prices);
        } else {
            without_gain += 1;
            if without_gain >= 8 {
                (reach, without_gain) = (reach / 2.0, 0);
                prices.clone_from(&best_prices);
                continue;
            }
        }
        // Unused memory at price zero cannot become cheaper, so it does not influence the direction.
        let slope = |(price, used): (&f64, &f64)| {
            let slope = used - 1.0;
            if *price <= 0.0 && slope < 0.0 {
                0.0
            } else {
                slope
            }
        };
        let square: f64 = prices
            .iter()
            .zip(&used)
            .map(|pair| slope(pair) * slope(pair))
            .sum();
        let target = reach * (all - value).max(0.0);
        if square <= 0.0 || target <= 0.0 {
            break;
        }
        let step = target / square;
        for (price, used) in prices.iter_mut().zip(&used) {
            let slope = used - 1.0;
            *price = (*price + step * slope).max(0.0);
        }
    }
    best
}

/// The best constant price, from a geometric series.
fn best_flat_price(intervals: &[Interval]) -> Vec<f64> {
    let mut used = vec![0.0; SLICES];
    let mut best = (0.0, 0.0);
    let seconds: f64 = intervals.iter().map(|interval| interval.reload).sum();
    let mut price = seconds / SLICES as f64;
    for _ in 0..24 {
        let value = evaluate(intervals, &vec![price; SLICES], &mut used);
        if value > best.0 {
            best = (value, price);
        }
        price /= 2.0;
    }
    vec![best.1; SLICES]
}

/// Computes L(λ), and in `used` the part of the memory that would be kept in each slice.
fn evaluate(intervals: &[Interval], prices: &[f64], used: &mut [f64]) -> f64 {
    // Prefix sums of prices, to get an interval's price from one difference.
    let mut sums = Vec::with_capacity(prices.len() + 1);
    let mut sum = 0.0;
    sums.push(0.0);
    for price in prices {
        sum += price;
        sums.push(sum);
    }
    let up_to = |place: f64| {
        let slice = (place as usize).min(prices.len() - 1);
        sums[slice] + prices[slice] * (place - slice as f64)
    };
    // Kept sizes as steps at the slices' edges, with corrections for the first and last slice.
    let mut steps = vec![0.0; prices.len() + 1];
    used.fill(0.0);
    let mut value = -sum;
    for interval in intervals {
        let price = interval.size * (up_to(interval.to) - up_to(interval.from));
        if price >= interval.reload {
            value += interval.reload;
            continue;
        }
        value += price;
        let first = (interval.from as usize).min(prices.len() - 1);
        let last = (interval.to as usize).min(prices.len() - 1);
        steps[first] += interval.size;
        steps[last + 1] -= interval.size;
        used[first] -= interval.size * (interval.from - first as f64);
        used[last] -= interval.size * (last as f64 + 1.0 - interval.to);
    }
    let mut kept = 0.0;
    for (slice, used) in used.iter_mut().enumerate() {
        kept += steps[slice];
        *used += kept;
    }
    value
}
