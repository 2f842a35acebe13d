//! Generated workloads: `zipf:requests=100000,days=1,models=60,skew=1.1`, `diurnal:…`, `bursty:…`, `shifting:…`.

use std::collections::BTreeMap;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, Zipf};
use rand_pcg::Pcg64Mcg;

use super::error::WorkloadError;

const DAY_MS: f64 = 86_400_000.0;
/// The time for which a group of models is in use, and the number of groups.
const SHIFT_MS: f64 = 1_800_000.0;
const SHIFT_GROUPS: u32 = 6;

/// The distribution of requests over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rhythm {
    /// The same rate at every hour.
    Even,
    /// Nine tenths by day, with a separate peak for every model.
    Diurnal,
    /// Groups of models that are busy for an hour and silent for hours.
    Bursty,
    /// One group of models at a time, for half an hour: the models that people work with change unpredictably.
    Shifting,
}

#[derive(Clone, Debug)]
pub struct Generated {
    rhythm: Rhythm,
    requests: u64,
    days: f64,
    pub models: u32,
    skew: f64,
    service_ms: f64,
}

impl Generated {
    /// # Errors
    /// An unknown name, an unknown key, an invalid number.
    pub fn read(spec: &str) -> Option<Result<Generated, WorkloadError>> {
        let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
        let rhythm = match name {
            "zipf" => Rhythm::Even,
            "diurnal" => Rhythm::Diurnal,
            "bursty" => Rhythm::Bursty,
            "shifting" => Rhythm::Shifting,
            _ if rest.contains('=') && !rest.starts_with("//") && !Path::new(spec).exists() => {
                return Some(Err(WorkloadError::Spec {
                    spec: spec.to_owned(),
                    problem: format!(
                        "is not a file, and there is no generator `{name}`; write zipf, diurnal, bursty or shifting"
                    ),
                }));
            }
            _ => return None,
        };
        Some(
            Generated::with(rhythm, rest).map_err(|problem| WorkloadError::Spec {
                spec: spec.to_owned(),
                problem,
            }),
        )
    }

    fn with(rhythm: Rhythm, rest: &str) -> Result<Generated, String> {
        let mut values: BTreeMap<&str, f64> = BTreeMap::from([
            ("requests", 100_000.0),
            ("days", 1.0),
            ("models", 60.0),
            ("skew", 1.0),
            ("service_ms", 4_000.0),
        ]);
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not of the form key=number"))?;
            let known = values.keys().copied().collect::<Vec<_>>().join(", ");
            let slot = values
                .get_mut(key)
                .ok_or_else(|| format!("has no key `{key}`; its keys are {known}"))?;
            *slot = value
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && *number > 0.0)
                .ok_or_else(|| format!("`{key}` must be a number above 0, and is `{value}`"))?;
        }
        if values["models"] > 1e6 || values["requests"] > 1e10 {
            return Err("at most 10^6 models and 10^10 requests are drawn".to_owned());
        }
        Ok(Generated {
            rhythm,
            requests: values["requests"] as u64,
            days: values["days"],
            models: (values["models"] as u32).max(1),
            skew: values["skew"],
            service_ms: values["service_ms"],
        })
    }

    /// (milliseconds, model, duration of the request), in the order of time.
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = (u64, u32, u64)> + use<> {
        let this = self.clone();
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x6E6E);
        let zipf = Zipf::new(f64::from(this.models), this.skew).expect("both above 0");
        let mut ranks: Vec<u32> = (0..this.models).collect();
        for nth in (1..ranks.len()).rev() {
            ranks.swap(nth, random.random_range(0..=nth));
        }
        let gap = this.days * DAY_MS / this.requests as f64;
        let mut at = 0.0;
        let mut left = this.requests;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            loop {
                let drawn: f64 = random.sample(Exp1);
                // Compensates for the draws that are rejected below.
                at += drawn * gap * this.kept();
                let rank = zipf.sample(&mut random) as usize;
                let model = ranks[rank.clamp(1, ranks.len()) - 1];
                if random.random::<f64>() < this.weight(at, model) {
                    let length: f64 = random.sample(Exp1);
                    return Some((at as u64, model, 1 + (length * this.service_ms) as u64));
                }
            }
        })
    }

    /// The chance that a draw at this time for this model becomes a request.
    fn weight(&self, at_ms: f64, model: u32) -> f64 {
        let own = f64::from(model.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
        match self.rhythm {
            Rhythm::Even => 1.0,
            Rhythm::Diurnal => {
                let hour = (at_ms / DAY_MS + own / 4.0).fract();
                0.5 - 0.45 * (hour * std::f64::consts::TAU).cos()
            }
            // Twelve groups; two hours in twenty-four.
            Rhythm::Bursty => {
                let group = f64::from(model % 12) / 12.0;
                let hour = (at_ms / DAY_MS + group).fract();
                if hour < 1.0 / 12.0 { 1.0 } else { 0.02 }
            }
            Rhythm::Shifting => {
                let turn = (at_ms / SHIFT_MS) as u64;
                let drawn = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                f64::from(u8::from(
                    u64::from(model % SHIFT_GROUPS) == drawn % u64::from(SHIFT_GROUPS),
                ))
            }
        }
    }

    /// The share of draws that pass `weight`.
    fn kept(&self) -> f64 {
        match self.rhythm {
            Rhythm::Even => 1.0,
            Rhythm::Diurnal => 0.5,
            Rhythm::Bursty => 1.0 / 12.0 + 0.02 * 11.0 / 12.0,
            Rhythm::Shifting => 1.0 / f64::from(SHIFT_GROUPS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_kind_generates_the_requested_count_in_order_and_reproducibly() {
        for kind in ["zipf", "diurnal", "bursty", "shifting"] {
            let spec = format!("{kind}:requests=5000,days=2,models=20");
            let generated = Generated::read(&spec).expect("known").expect("right");
            let all: Vec<_> = generated.requests(3).collect();
            assert_eq!(all.len(), 5000, "{kind}");
            assert!(all.is_sorted_by_key(|(at, ..)| *at), "{kind}");
            let days = all[4999].0 as f64 / DAY_MS;
            assert!((1.6..2.4).contains(&days), "{kind}: {days}");
            assert_eq!(all, generated.requests(3).collect::<Vec<_>>());
            assert_ne!(all, generated.requests(4).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_invalid_workload_spec_is_refused_with_the_valid_keys() {
        let wrong = |spec: &str| {
            let read = Generated::read(spec).expect("known");
            read.expect_err(spec).to_string()
        };
        assert!(wrong("zipf:requests=-1").contains("`requests` must be a number above 0"));
        assert!(wrong("zipf:colour=3").contains("its keys are days, models, requests"));
        assert!(Generated::read("trace.csv").is_none());
    }
}
