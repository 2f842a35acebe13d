//! The requests of a small lab, drawn from its seed: models are chosen with Zipf weights, and each request has an exponentially
//! distributed service time.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::lab::{Lab, Shape};
use pool::{KeyId, ModelId, Span, Time};
use sim::replay::Arrival;

const SERVICE_MS: f64 = 4_000.0;
const HOUR_MS: f64 = 3_600_000.0;

/// Requests that begin together, and the mean time from one to the next.
fn group(shape: Shape) -> (usize, f64) {
    match shape {
        Shape::Single | Shape::Deadlines => (1, 0.0),
        Shape::Sessions => (8, 3.0 * SERVICE_MS),
        Shape::Bursts | Shape::Rushes => (16, 125.0),
    }
}

pub(super) fn arrivals(lab: Lab, random: &mut Pcg64Mcg) -> Vec<Arrival> {
    let weight = |nth: u32| 1.0 / f64::from(nth + 1);
    let weights: f64 = (0..lab.models).map(weight).sum();
    let per_ms = f64::from(lab.use_percent * lab.devices) / 100.0 / SERVICE_MS;
    // Long loads need a longer period to tell the rules apart.
    let end = HOUR_MS * (lab.load.0 as f64 / 3_000.0).clamp(0.5, 12.0);
    let (burst, pause) = group(lab.shape);
    let mut times: Vec<(Time, ModelId)> = Vec::new();
    for nth in 0..lab.models {
        let mean_gap = burst as f64 / (per_ms * weight(nth) / weights);
        let mut start = exponential(random, mean_gap);
        while start < end {
            let mut at = start;
            for _ in 0..burst {
                times.push((Time(at as u64), ModelId(nth)));
                at += exponential(random, pause);
            }
            start += exponential(random, mean_gap);
        }
    }
    times.sort();
    let arrival = |(at, model): (Time, ModelId)| Arrival {
        at,
        model,
        key: KeyId(u64::from(model.0)),
        service: Span(exponential(random, SERVICE_MS) as u64 + 1),
    };
    times.into_iter().map(arrival).collect()
}

fn exponential(random: &mut Pcg64Mcg, mean: f64) -> f64 {
    let uniform: f64 = random.random_range(f64::MIN_POSITIVE..1.0);
    -uniform.ln() * mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;

    fn drawn(shape: Shape) -> Vec<Arrival> {
        let lab = Lab {
            models: 4,
            devices: 1,
            load: Span(3_000),
            use_percent: 70,
            shape,
        };
        arrivals(lab, &mut models::seeded(5))
    }

    #[test]
    fn every_shape_requests_about_the_same_service_time() {
        for shape in Shape::ALL {
            let all = drawn(shape);
            let requested: u64 = all.iter().map(|arrival| arrival.service.0).sum();
            let share = requested as f64 / HOUR_MS;
            assert!((0.45..1.0).contains(&share), "{shape:?}: {share}");
            assert!(all.is_sorted_by_key(|arrival| arrival.at), "{shape:?}");
        }
    }

    #[test]
    fn a_burst_is_concentrated_in_a_few_seconds_and_a_session_is_not() {
        // The share of requests that come within a second after another one for the same model.
        let close = |shape: Shape| {
            let all = drawn(shape);
            let follows = |nth: &usize| {
                let own = all[*nth];
                let before = all[..*nth]
                    .iter()
                    .rev()
                    .find(|other| other.model == own.model);
                before.is_some_and(|before| own.at.since(before.at) < Span(1_000))
            };
            (0..all.len()).filter(follows).count() as f64 / all.len() as f64
        };
        assert!(close(Shape::Bursts) > 0.8, "{}", close(Shape::Bursts));
        assert!(close(Shape::Sessions) < 0.4, "{}", close(Shape::Sessions));
        assert!(close(Shape::Single) < 0.4, "{}", close(Shape::Single));
    }
}
