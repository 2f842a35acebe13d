//! A small lab and the cost of a rule on it: scenario, replay, and the figures relative to another rule.
//!
//! An unserved request counts with its full queue timeout, so refusing is not a way to look fast. Every rule gets the same requests
//! with the same service times (common random numbers).

use super::draw::arrivals;
use super::estimate::Estimate;
use crate::lru_best::LruBest;
use crate::models;
use pool::{Bytes, Loader, LoaderId, ModelSpec, Part, Policy, Span};
use sim::replay::{
    Fifo, LlamaCppRouter, LlamaSwap, Lru, Ollama, Options, Scenario, run, run_baseline,
};

const MODELS: [u32; 4] = [2, 4, 6, 10];
const DEVICES: [u32; 3] = [1, 2, 4];
pub(super) const LOADS: [Span; 4] = [Span(30), Span(3_000), Span(30_000), Span(180_000)];
/// Requested seconds of service, per second and device.
pub(super) const USE_PERCENT: [u32; 3] = [30, 70, 120];
const QUEUE_TIMEOUT: Span = Span::from_secs(300);
/// A client with a deadline waits this long, and two loads.
const DEADLINE: Span = Span::from_secs(20);

/// The shape of a lab's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Independent requests (Poisson).
    Single,
    /// Eight requests of a person who reads each response for twelve seconds.
    Sessions,
    /// Sixteen requests of a script within two seconds.
    Bursts,
    /// Independent requests of clients that give up soon.
    Deadlines,
    /// Bursts of clients that give up soon.
    Rushes,
}

impl Shape {
    pub const ALL: [Shape; 5] = [
        Shape::Single,
        Shape::Sessions,
        Shape::Bursts,
        Shape::Deadlines,
        Shape::Rushes,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Single => "single",
            Shape::Sessions => "sessions",
            Shape::Bursts => "bursts",
            Shape::Deadlines => "deadlines",
            Shape::Rushes => "rushes",
        }
    }

    fn has_deadline(self) -> bool {
        matches!(self, Shape::Deadlines | Shape::Rushes)
    }
}

/// A kind of lab.
#[derive(Clone, Copy, Debug)]
pub struct Lab {
    pub models: u32,
    pub devices: u32,
    pub load: Span,
    pub use_percent: u32,
    pub shape: Shape,
}

impl Lab {
    /// The time after which an unserved request is given up.
    fn patience(self) -> Span {
        if self.shape.has_deadline() {
            Span(DEADLINE.0 + 2 * self.load.0).min(QUEUE_TIMEOUT)
        } else {
            QUEUE_TIMEOUT
        }
    }
}

/// All kinds of labs with more models than devices.
pub fn all() -> impl Iterator<Item = Lab> {
    let kinds = Shape::ALL.into_iter().flat_map(|shape| {
        MODELS.into_iter().flat_map(move |models| {
            DEVICES.into_iter().flat_map(move |devices| {
                LOADS.into_iter().flat_map(move |load| {
                    USE_PERCENT.into_iter().map(move |use_percent| Lab {
                        models,
                        devices,
                        load,
                        use_percent,
                        shape,
                    })
                })
            })
        })
    });
    kinds.filter(|lab| lab.models > lab.devices)
}

/// The names of the rules that are compared on the labs.
pub const RULES: [&str; 8] = [
    "model-pool",
    "policy: lru",
    "lru",
    "lru-best",
    "fifo",
    "llamacpp-router",
    "ollama",
    "llama-swap",
];

/// The parts that an ablation leaves out, with their names.
pub const PARTS: [(Part, &str); 6] = [
    (Part::ExpectedLoss, "expected loss"),
    (Part::Shadows, "shadows"),
    (Part::LoadOrder, "load order"),
    (Part::Turns, "turns"),
    (Part::NextRequest, "next request"),
    (Part::LateEviction, "late eviction"),
];

/// The cost of a rule on a lab, for one seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The total wait of all requests in milliseconds, with the full timeout for each unserved request.
    pub waited: f64,
    pub reload: f64,
    /// The wait that 99 of 100 requests do not exceed, in milliseconds.
    pub p99: f64,
    pub unserved: u64,
    pub requests: u64,
}

/// The pool's figures relative to LRU's, over all seeds.
#[derive(Clone, Debug)]
pub struct Compared {
    pub wait: Estimate,
    pub p99: Estimate,
    pub reload: Estimate,
    /// The pool's unserved requests minus LRU's, per thousand requests.
    pub unserved_more: Estimate,
    /// The pool's and LRU's totals.
    pub unserved: [u64; 2],
    pub requests: u64,
    /// The pool's mean wait.
    pub mean_wait: Span,
}

/// # Errors
/// A rule that the pool broke.
pub fn compare(lab: Lab, seed: u64, seeds: u64) -> Result<Compared, String> {
    let costs = |rule: &str| -> Result<Vec<Cost>, String> {
        (seed..seed + seeds)
            .map(|seed| cost(lab, rule, seed))
            .collect()
    };
    Ok(Compared::new(&costs("model-pool")?, &costs("lru")?))
}

impl Compared {
    /// Compares the costs of two rules for the same seeds.
    pub fn new(ours: &[Cost], lru: &[Cost]) -> Compared {
        let pairs = |of: fn(&Cost) -> f64| -> Vec<(f64, f64)> {
            let pair = |(ours, lru)| (of(ours), of(lru));
            ours.iter().zip(lru).map(pair).collect()
        };
        let sum = |of: fn(&Cost) -> u64, costs: &[Cost]| costs.iter().map(of).sum::<u64>();
        let requests = sum(|cost| cost.requests, ours);
        let waited: f64 = ours.iter().map(|cost| cost.waited).sum();
        let more: Vec<(f64, f64)> = ours
            .iter()
            .zip(lru)
            .map(|(ours, lru)| {
                let more = ours.unserved as f64 - lru.unserved as f64;
                (1_000.0 * more, ours.requests as f64)
            })
            .collect();
        Compared {
            // Adds a millisecond per request on both sides, to make the ratio defined when nothing waits.
            wait: Estimate::of_ratio(&pairs(|cost| cost.waited + cost.requests as f64)),
            p99: Estimate::of_ratio(&pairs(|cost| cost.p99 + 1.0)),
            reload: Estimate::of_ratio(&pairs(|cost| cost.reload + 1.0)),
            unserved_more: Estimate::of_ratio(&more),
            unserved: [
                sum(|cost| cost.unserved, ours),
                sum(|cost| cost.unserved, lru),
            ],
            requests,
            mean_wait: Span((waited / requests.max(1) as f64) as u64),
        }
    }
}

/// # Errors
/// The pool broke a rule; an unknown eviction rule.
pub fn cost(lab: Lab, rule: &str, seed: u64) -> Result<Cost, String> {
    let mut random = models::seeded(seed * 1_000 + u64::from(lab.models * 8 + lab.devices));
    let mut scenario = scenario(lab);
    let arrivals = arrivals(lab, &mut random);
    let (options, nothing) = (Options::default(), &mut |_, _| {});
    let report = match rule {
        "model-pool" => run(&scenario, arrivals, &options, nothing),
        "policy: lru" => {
            scenario.limits.policy = Policy::LRU;
            run(&scenario, arrivals, &options, nothing)
        }
        part if part.starts_with("without ") => {
            let left_out = PARTS.iter().find(|(_, name)| part.ends_with(name));
            let (left_out, _) = left_out.ok_or_else(|| format!("there is no part `{part}`"))?;
            scenario.limits.policy = Policy::ADAPTIVE.without(*left_out);
            run(&scenario, arrivals, &options, nothing)
        }
        "lru" => run_baseline(&scenario, Lru, arrivals, &options, nothing),
        "lru-best" => run_baseline(&scenario, LruBest, arrivals, &options, nothing),
        "fifo" => run_baseline(&scenario, Fifo, arrivals, &options, nothing),
        "llamacpp-router" => run_baseline(&scenario, LlamaCppRouter, arrivals, &options, nothing),
        "ollama" => run_baseline(&scenario, Ollama, arrivals, &options, nothing),
        "llama-swap" => run_baseline(&scenario, LlamaSwap, arrivals, &options, nothing),
        other => return Err(format!("there is no rule `{other}` for the labs")),
    };
    match report.broken.first() {
        Some(broken) => Err(format!("{lab:?}, seed {seed}: {broken}")),
        None => Ok(Cost {
            waited: report.waits_of_all.mean.0 as f64 * report.all.requests as f64,
            reload: report.all.reload.0 as f64,
            p99: report.waits_of_all.p99.0 as f64,
            unserved: report.all.requests - report.all.served,
            requests: report.all.requests,
        }),
    }
}

fn scenario(lab: Lab) -> Scenario {
    let model = |nth: u32| ModelSpec {
        name: format!("model-{nth}"),
        bytes_per_device: Bytes(if nth % 3 == 2 { 5 } else { 8 } * Bytes::GIB),
        need_is_fixed: true,
        reload: lab.load,
        loader: Some(Loader {
            loader: LoaderId(0),
            takes: lab.load,
        }),
        keep_hot: Span::from_secs(600),
        queue_timeout: lab.patience(),
        ..ModelSpec::default()
    };
    let devices = models::devices(lab.devices, Bytes(10 * Bytes::GIB));
    Scenario {
        stop_takes: Span((lab.load.0 / 50).max(20)),
        ..models::scenario((0..lab.models).map(model).collect(), devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P3, P5: with loads of three minutes hardly any request is served in time by any rule, and measuring that needs more seeds
    /// than a test has time for.
    #[test]
    fn a_small_busy_lab_waits_no_longer_than_under_lru() {
        let is_usual = |lab: &Lab| matches!(lab.shape, Shape::Single | Shape::Sessions);
        let tells = |lab: &Lab| lab.models == 6 && lab.load < Span(180_000) && is_usual(lab);
        for lab in all().filter(tells) {
            let cell = compare(lab, 0, 2).expect("no rule is broken");
            assert!(cell.wait.value <= 1.1, "{lab:?}: {cell:?}");
            let more = cell.unserved[0].saturating_sub(cell.unserved[1]);
            assert!(more * 1_000 <= cell.requests, "{lab:?}: {cell:?}");
        }
    }
}
