//! `--resample N`: compares the configured pool with the pool under the what-if flags, on the workload itself and on N others drawn
//! from its days. This distinguishes a lasting difference from an odd day.

use std::fmt::Write;

use rand::Rng;

use super::args::SimulateArgs;
use super::environment::Environment;
use super::models;
use super::setup::{self, Setup};
use super::table::short;
use pool::{Span, Time};
use sim::replay::{Arrival, Options, Report, run};

/// Requests are kept in memory to draw from them.
const REQUESTS_MAX: u64 = 5_000_000;
/// With fewer parts than this, their variation is unknown.
const PARTS_LEAST: u64 = 4;
/// Workloads are drawn by days, or by hours if they are short.
const PARTS: [(Span, &str); 2] = [
    (Span::from_secs(86_400), "days"),
    (Span::from_secs(3_600), "hours"),
];

/// The figures of a replay.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    wait_ms: f64,
    reload_per_request_ms: f64,
    loads: f64,
    unserved: f64,
}

impl Figures {
    fn new(report: &Report) -> Figures {
        let all = &report.all;
        Figures {
            wait_ms: all.waits.mean.0 as f64,
            reload_per_request_ms: all.reload.0 as f64 / all.requests.max(1) as f64,
            loads: all.loads as f64,
            unserved: (all.requests - all.served) as f64,
        }
    }
}

/// A row of the table: its name, its figure, and its format.
type Row = (&'static str, fn(&Figures) -> f64, fn(f64) -> String);

const ROWS: [Row; 4] = [
    ("wait mean", |figures| figures.wait_ms, time),
    (
        "load time per request",
        |figures| figures.reload_per_request_ms,
        time,
    ),
    ("loads", |figures| figures.loads, count),
    ("not served", |figures| figures.unserved, count),
];

fn time(ms: f64) -> String {
    let sign = if ms < 0.0 { "-" } else { "" };
    format!("{sign}{}", short(Span(ms.abs().round() as u64)))
}

fn count(number: f64) -> String {
    format!("{number:.0}")
}

/// Runs both pools and prints the comparison.
///
/// # Errors
/// The workload is too long or too short for this, or cannot be read; a pool broke a rule.
pub fn compare(
    spec: &str,
    args: &SimulateArgs,
    changed: &Setup,
    environment: &Environment<'_>,
) -> Result<String, String> {
    let samples = args.resample.unwrap_or(0);
    let configured = setup::prepare(spec, &args.as_configured(), environment)?;
    let requests = [all_of(&configured)?, all_of(changed)?];
    let scenes = [&configured.scenario, &changed.scenario];
    let end = requests[0].last().map_or(Time(0), |last| last.at);
    let parts = PARTS.into_iter().find_map(|(length, name)| {
        let parts = end.0.div_ceil(length.0);
        (parts >= PARTS_LEAST).then_some((length, name, parts))
    });
    let Some((length, name, parts)) = parts else {
        return Err(format!(
            "--resample draws from the workload's days or hours, and it has {:.1} hours: {PARTS_LEAST} are needed",
            end.0 as f64 / PARTS[1].0.0 as f64
        ));
    };
    let replay = |nth: usize, arrivals: Vec<Arrival>| {
        let report = run(scenes[nth], arrivals, &Options::default(), &mut |_, _| {});
        match report.broken.first() {
            Some(broken) => Err(broken.clone()),
            None => Ok(Figures::new(&report)),
        }
    };
    let both = |of: &dyn Fn(usize) -> Vec<Arrival>| -> Result<[Figures; 2], String> {
        Ok([replay(0, of(0))?, replay(1, of(1))?])
    };
    let as_it_was = both(&|nth| requests[nth].clone())?;
    let mut random = models::seeded(args.seed.wrapping_add(900));
    let mut drawn: Vec<[Figures; 2]> = Vec::new();
    for _ in 0..samples {
        let order: Vec<u64> = (0..parts).map(|_| random.random_range(0..parts)).collect();
        drawn.push(both(&|nth| in_order(&requests[nth], length, &order))?);
    }
    Ok(table(as_it_was, &drawn, &format!("{parts} {name}")))
}

fn all_of(setup: &Setup) -> Result<Vec<Arrival>, String> {
    let arrivals = setup.arrivals().map_err(|fault| fault.to_string())?;
    let all: Vec<Arrival> = arrivals.take(REQUESTS_MAX as usize + 1).collect();
    if all.len() as u64 > REQUESTS_MAX {
        return Err(format!(
            "--resample holds all requests in memory, at most {REQUESTS_MAX}; set --limit or --to"
        ));
    }
    Ok(all)
}

/// The requests of these parts of the workload, one part after the other.
fn in_order(all: &[Arrival], length: Span, order: &[u64]) -> Vec<Arrival> {
    let mut drawn = Vec::with_capacity(all.len());
    for (place, part) in order.iter().enumerate() {
        let (from, to) = (part * length.0, (part + 1) * length.0);
        let first = all.partition_point(|arrival| arrival.at.0 < from);
        let last = all.partition_point(|arrival| arrival.at.0 < to);
        drawn.extend(all[first..last].iter().map(|arrival| Arrival {
            at: Time(arrival.at.0 - from + place as u64 * length.0),
            ..*arrival
        }));
    }
    drawn
}

fn table(as_it_was: [Figures; 2], drawn: &[[Figures; 2]], parts: &str) -> String {
    let mut out = format!(
        "\nthe pool as configured and with the change, on this workload; in brackets the middle 90 % of {} workloads drawn from its {parts}\n",
        drawn.len()
    );
    for (name, figure, write) in ROWS {
        let range = |of: &dyn Fn(&[Figures; 2]) -> f64| {
            let mut all: Vec<f64> = drawn.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
            format!("({} to {})", write(at(0.05)), write(at(0.95)))
        };
        let [before, after] = as_it_was.each_ref().map(figure);
        let _ = writeln!(
            out,
            "{name:<22} {} {} | {} {} | difference {} {}",
            write(before),
            range(&|[before, _]| figure(before)),
            write(after),
            range(&|[_, after]| figure(after)),
            write(after - before),
            range(&|[before, after]| figure(after) - figure(before)),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{KeyId, ModelId};

    fn at(second: u64) -> Arrival {
        Arrival {
            at: Time(second * 1_000),
            model: ModelId(0),
            key: KeyId(0),
            service: Span(1),
        }
    }

    #[test]
    fn parts_follow_each_other_in_the_drawn_order_with_their_own_offsets() {
        let all = [at(1), at(9), at(12), at(25)];
        let drawn = in_order(&all, Span::from_secs(10), &[1, 0, 1]);
        let seconds: Vec<u64> = drawn.iter().map(|arrival| arrival.at.0 / 1_000).collect();
        assert_eq!(seconds, [2, 11, 19, 22]);
    }
}
