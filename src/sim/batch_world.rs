//! Seeded worlds for the forecasts of batches: a few devices, models that are used mostly by day, and batches with windows. The
//! forecasts at the creation of the batches are compared with their ends.

use alloc::string::String;
use alloc::vec::Vec;

use crate::random::Random;
use crate::replay::{
    Arrival, BatchArrival, BatchReport, BatchTimes, Options, Report, Scenario, run,
};
use pool::{
    Bytes, DeviceId, DeviceReading, KeyId, Limits, ModelId, ModelSpec, Priority, Span, Time,
};

const HOUR_MS: u64 = 3_600_000;
const DAYS: u64 = 3;
const DEVICE: Bytes = Bytes(24 * Bytes::GIB);
/// The hours in which most requests arrive.
const WORKDAY: core::ops::Range<u64> = 8..19;
/// Requests of a model in an hour of the workday, at most, and in the others.
const PER_HOUR_MAX: u64 = 14;
const NIGHT_PERMILLE: u64 = 60;
const BATCHES: (u64, u64) = (3, 7);
const WINDOWS_HOURS: [u64; 5] = [2, 4, 8, 16, 24];

/// A scenario with its requests.
#[derive(Clone, Debug)]
pub struct BatchWorld {
    pub scenario: Scenario,
    pub arrivals: Vec<Arrival>,
}

impl BatchWorld {
    /// The world of a seed.
    pub fn new(seed: u64) -> BatchWorld {
        let mut random = Random::new(seed ^ 0xBA7C);
        let devices = random.between(1, 3);
        let models = random.between(2, 3 + devices);
        let device = |nth: u64| {
            let reading = DeviceReading {
                name: format!("gpu{nth}"),
                total: DEVICE,
                ..DeviceReading::default()
            };
            (DeviceId(nth as u32), reading)
        };
        let specs: Vec<ModelSpec> = (0..models).map(|nth| spec(nth, &mut random)).collect();
        let batch_times = match random.below(3) {
            0 => BatchTimes::Always,
            1 => BatchTimes::Never,
            _ => BatchTimes::Daily {
                from: Span(21 * HOUR_MS),
                length: Span(10 * HOUR_MS),
            },
        };
        let arrivals = arrivals(models, &mut random);
        let batches = batches(models, &mut random);
        BatchWorld {
            scenario: Scenario {
                devices: (0..devices).map(device).collect(),
                models: specs,
                limits: Limits::default(),
                stop_takes: Span(random.between(200, 4_000)),
                batches,
                batch_times,
                deadline_evicts: random.chance(500),
                ..Scenario::default()
            },
            arrivals,
        }
    }

    /// Plays the world to its end, and checks the invariants after every `check_every` steps; 0 checks none.
    pub fn run(&self, check_every: u64) -> Report {
        let options = Options {
            check_every,
            ..Options::default()
        };
        let arrivals = self.arrivals.iter().copied();
        run(&self.scenario, arrivals, &options, &mut |_, _| {})
    }
}

fn spec(nth: u64, random: &mut Random) -> ModelSpec {
    let priority = match random.below(10) {
        0..=7 => 0,
        8 => 1,
        _ => 2,
    };
    ModelSpec {
        name: format!("model-{nth}"),
        bytes_per_device: Bytes(random.between(6, 22) * Bytes::GIB),
        priority: Priority(if nth == 0 { 0 } else { priority }),
        reload: Span(random.between(5_000, 120_000)),
        keep_hot: Span::from_secs(600),
        seats_per_replica: random.between(2, 16) as u32,
        queue_timeout: Span::from_secs(3_600),
        ..ModelSpec::default()
    }
}

fn arrivals(models: u64, random: &mut Random) -> Vec<Arrival> {
    let mut all = Vec::new();
    for model in 0..models {
        let usual = random.below(PER_HOUR_MAX);
        let service = random.between(1_000, 30_000);
        for hour in 0..DAYS * 24 {
            let is_work = WORKDAY.contains(&(hour % 24));
            // No day is like the other one.
            let mean = usual * random.between(500, 1_500) / 1_000;
            let count = if is_work {
                mean
            } else {
                u64::from(random.chance(mean * NIGHT_PERMILLE))
            };
            for _ in 0..count {
                all.push(Arrival {
                    at: Time(hour * HOUR_MS + random.below(HOUR_MS)),
                    model: ModelId(model as u32),
                    key: KeyId(random.below(4)),
                    service: Span(service * random.between(300, 2_000) / 1_000),
                });
            }
        }
    }
    all.sort_by_key(|arrival| (arrival.at, arrival.model, arrival.key));
    all
}

fn batches(models: u64, random: &mut Random) -> Vec<BatchArrival> {
    let mut all = Vec::new();
    let services: Vec<u64> = (0..models).map(|_| random.between(1_000, 20_000)).collect();
    for _ in 0..random.between(BATCHES.0, BATCHES.1) {
        let model = random.below(models);
        // The requests of a batch are longer or shorter than those before.
        let service = services[model as usize] * random.between(800, 1_250) / 1_000;
        let window = WINDOWS_HOURS[random.below(WINDOWS_HOURS.len() as u64) as usize];
        // From a few minutes to more than the window, in seats of a usual replica.
        let work = window * HOUR_MS * random.between(10, 1_100) / 1_000 * 8;
        all.push(BatchArrival {
            at: Time(random.between(6, DAYS * 24 - 30) * HOUR_MS + random.below(HOUR_MS)),
            model: ModelId(model as u32),
            lines: (work / service).max(1),
            service: Span(service),
            window: Span(window * HOUR_MS),
        });
    }
    all.sort_by_key(|batch| (batch.at, batch.model));
    all
}

/// The forecasts and loads of several replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTotals {
    pub batches: u64,
    /// Forecasts "will hold" at the creation, and the number that came true.
    pub promised: u64,
    pub kept: u64,
    /// The same for forecasts in the first quarter of the windows.
    pub promised_early: u64,
    pub kept_early: u64,
    /// Batches that held their windows, and those without a forecast.
    pub held: u64,
    pub unknown: u64,
    /// Batches that missed their windows, and those with a warning before.
    pub missed: u64,
    pub warned: u64,
    /// Warnings about batches that held their windows.
    pub false_warnings: u64,
    pub loads: u64,
    pub forced: u64,
}

impl BatchTotals {
    pub fn add(&mut self, report: &BatchReport) {
        self.loads += report.loads;
        self.forced += report.forced;
        for batch in &report.batches {
            let is_held = batch.ended.is_some();
            self.batches += 1;
            match batch.will_hold() {
                Some(true) => {
                    self.promised += 1;
                    self.kept += u64::from(is_held);
                }
                Some(false) => {}
                None => self.unknown += 1,
            }
            if batch.is_promised_early() {
                self.promised_early += 1;
                self.kept_early += u64::from(is_held);
            }
            let was_warned = batch.warned.is_some_and(|at| at < batch.deadline());
            if is_held {
                self.held += 1;
                self.false_warnings += u64::from(was_warned);
            } else {
                self.missed += 1;
                self.warned += u64::from(was_warned);
            }
        }
    }

    /// The loads for batches in thousandths of the forced ones.
    pub fn loads_permille(&self) -> u64 {
        self.loads * 1_000 / self.forced.max(1)
    }

    /// The kept part of the forecasts "will hold", in thousandths.
    pub fn kept_permille(&self) -> u64 {
        self.kept * 1_000 / self.promised.max(1)
    }

    /// A line for people.
    pub fn text(&self) -> String {
        format!(
            "{} batches: {} promised to hold at their creation, {} of them did; {} promised in the first quarter of their windows, {} of them did; {} held, {} unknown; {} missed, {} with a warning before; {} false warnings; {} loads, {} forced",
            self.batches,
            self.promised,
            self.kept,
            self.promised_early,
            self.kept_early,
            self.held,
            self.unknown,
            self.missed,
            self.warned,
            self.false_warnings,
            self.loads,
            self.forced
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLDS: u64 = 60;

    #[test]
    fn batches_evict_only_in_their_hours_on_the_first_morning() {
        // Loads for batches are blocked when the night before the first day ends.
        for seed in [280, 333, 961] {
            let report = BatchWorld::new(seed).run(0);
            assert_eq!(report.broken, Vec::<String>::new(), "seed {seed}");
        }
    }

    #[test]
    fn of_the_forecasts_that_a_batch_will_hold_99_in_100_are_right_in_60_worlds() {
        let mut totals = BatchTotals::default();
        for seed in 0..WORLDS {
            let report = BatchWorld::new(seed).run(if seed < 6 { 7 } else { 0 });
            assert_eq!(report.broken, Vec::<String>::new(), "seed {seed}");
            totals.add(&report.batches.expect("it has batches"));
        }
        let text = totals.text();
        assert!(totals.kept_permille() >= 990, "{text}");
        assert!(totals.loads_permille() <= 1_200, "{text}");
        // A pool that promises nothing would keep all its promises.
        assert!(totals.promised * 3 >= totals.held, "{text}");
        // Most speeds are measured in the first quarter of a window.
        assert!(totals.promised_early * 2 >= totals.held, "{text}");
        assert!(
            totals.kept_early * 1_000 >= totals.promised_early * 990,
            "{text}"
        );
        assert!(totals.warned * 10 >= totals.missed * 9, "{text}");
        assert!(
            totals.missed > 0 && totals.unknown * 4 < totals.batches,
            "{text}"
        );
    }
}
