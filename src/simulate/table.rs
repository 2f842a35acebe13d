//! The reports as a table for a terminal.

use std::fmt::Write;

use super::setup::Setup;
use super::{forecasts, front};
use pool::{ShadowCosts, Span};
use sim::replay::{Report, Waits};
use terminal::style::Style;
use terminal::table::{Cell, column, table};

pub fn text(setup: &Setup, reports: &[Report]) -> String {
    let mut out = String::new();
    let first = &reports[0];
    let days = first.to.since(first.from).0 as f64 / 86_400_000.0;
    let memory: u64 = setup
        .scenario
        .devices
        .iter()
        .map(|(_, reading)| reading.total.0)
        .sum();
    let _ = writeln!(
        out,
        "{}: {} requests for {} models over {days:.2} days, on {} device{} with {} in all",
        setup.workload.spec,
        first.all.requests,
        setup.scenario.models.len(),
        setup.scenario.devices.len(),
        if setup.scenario.devices.len() == 1 {
            ""
        } else {
            "s"
        },
        pool::Bytes(memory),
    );
    let lru = reports.iter().find(|report| report.policy == "lru");
    let head = [
        "policy",
        "served",
        "refused",
        "timed out",
        "cut",
        "cold",
        "wait mean",
        "p50",
        "p95",
        "p99",
        "loads",
        "reload s",
        "s/request",
        "evictions",
        "GPU·h held",
        "idle",
        "inversions",
        "vs lru: reload",
        "wait",
    ];
    let rows = reports.iter().map(|report| {
        let cells = row(report, lru).into_iter();
        cells.map(Cell::from).collect()
    });
    let mut columns = head.map(|name| column(name).right());
    columns[0] = column(head[0]);
    out += &table(&columns, rows, "", Style::PLAIN);
    for report in reports {
        let reasons = |counts: &std::collections::BTreeMap<String, u64>| {
            let texts: Vec<String> = counts
                .iter()
                .map(|(why, count)| format!("{why} {count}"))
                .collect();
            texts.join(", ")
        };
        let _ = writeln!(out, "{}", memory_held(report));
        let _ = writeln!(out, "{}", waits_of_groups(report));
        if !report.targets.is_empty() {
            let _ = writeln!(out, "{}", targets(report));
        }
        if !report.all.evictions.is_empty() {
            let _ = writeln!(
                out,
                "{} left because: {}",
                report.policy,
                reasons(&report.all.evictions)
            );
        }
        if report.policy == "model-pool" {
            let wait = front::wait_ms(report, &setup.scenario);
            let _ = writeln!(
                out,
                "the objective: {:.2} s of waiting per request, with the full queue timeout for each unserved request",
                wait / 1000.0
            );
        }
        if let Some(costs) = report.shadows.filter(|costs| costs.better() > Span::ZERO) {
            let _ = writeln!(out, "{}", shadows(&costs, report.all.reload));
        }
        if let Some(forecasts) = &report.forecasts {
            let _ = writeln!(out, "{}", forecasts::line(forecasts));
        }
        if !report.all.refused.is_empty() {
            let _ = writeln!(
                out,
                "{} refused because: {}",
                report.policy,
                reasons(&report.all.refused)
            );
        }
    }
    out
}

/// A device with a model on it draws this much more than an empty one: 26 to 66 W were measured, nearly independent of the memory
/// held.
const LOADED_DEVICE_WATTS: f64 = 46.0;

/// The energy that devices with a model on them drew beyond empty ones.
pub fn energy_kwh(report: &Report) -> f64 {
    let seconds = report.device_seconds_in_all() as f64 - report.device_seconds_empty as f64;
    seconds.max(0.0) / 3600.0 * LOADED_DEVICE_WATTS / 1000.0
}

fn memory_held(report: &Report) -> String {
    let empty = report.device_seconds_empty as f64 / 3600.0;
    let all = report.device_seconds_in_all() as f64 / 3600.0;
    format!(
        "{}: devices were empty for {empty:.1} of {all:.1} GPU·h ({:.1} %), models held {:.1} GiB·h, and devices with a model on them drew {:.2} kWh more than empty ones (modelled with {LOADED_DEVICE_WATTS} W each){}",
        report.policy,
        100.0 * empty / all.max(f64::MIN_POSITIVE),
        report.all.held_gib_seconds as f64 / 3600.0,
        energy_kwh(report),
        asleep(report),
    )
}

fn asleep(report: &Report) -> String {
    let Some(slept) = report.all.evictions.get("sleep") else {
        return String::new();
    };
    format!(
        "; engines fell asleep {slept} times, {} of {} loads woke one, sleepers held {:.1} GiB·h of host memory, and nothing else was on the devices for {:.1} GPU·h",
        report.all.wakes,
        report.all.loads,
        report.host_gib_seconds as f64 / 3600.0,
        report.device_seconds_asleep as f64 / 3600.0,
    )
}

/// The waits by priority, and of the key that waited longest at p95.
fn waits_of_groups(report: &Report) -> String {
    let spread = |waits: &Waits| {
        let figures = [waits.p50, waits.p95, waits.p99, waits.longest].map(short);
        format!(
            "p50 {}, p95 {}, p99 {}, longest {}",
            figures[0], figures[1], figures[2], figures[3]
        )
    };
    let by_priority = report.by_priority.iter();
    let mut parts: Vec<String> = by_priority
        .map(|(priority, waits)| format!("priority {priority}: {}", spread(waits)))
        .collect();
    let longest = report.by_key.iter().max_by_key(|(_, waits)| waits.p95);
    if let Some((_, waits)) = longest.filter(|_| report.by_key.len() > 1) {
        parts.push(format!(
            "the longest wait of {} keys: {}",
            report.by_key.len(),
            spread(waits)
        ));
    }
    format!("{} waits: {}", report.policy, parts.join("; "))
}

/// The share of requests that met the target of their priority.
fn targets(report: &Report) -> String {
    let parts = report.targets.iter().map(|(priority, attainment)| {
        let all = attainment.met + attainment.missed;
        let share = 100.0 * attainment.met as f64 / all.max(1) as f64;
        format!(
            "priority {priority} within {}: {share:.1} % of {all} requests",
            attainment.target
        )
    });
    let parts: Vec<String> = parts.collect();
    format!("{} targets: {}", report.policy, parts.join("; "))
}

/// The costs of both eviction rules and of the followed one, and the bound.
fn shadows(costs: &ShadowCosts, reload: Span) -> String {
    let seconds = |span: Span| span.0 / 1000;
    let more = 100.0 * (reload.0 as f64 / costs.better().0 as f64 - 1.0);
    format!(
        "with each of the two eviction rules alone, loads would have taken {} s (the pool's own estimate) and {} s (least recent use), {} s by following them with {} change{}, and at most {} s by the bound; the pool itself took {} s, {more:+.1} % of the better rule",
        seconds(costs.own),
        seconds(costs.simple),
        seconds(costs.followed),
        costs.changes,
        if costs.changes == 1 { "" } else { "s" },
        seconds(costs.bound()),
        seconds(reload),
    )
}

fn row(report: &Report, lru: Option<&Report>) -> Vec<String> {
    let all = &report.all;
    let refused: u64 = all.refused.values().sum();
    let evictions: u64 = all.evictions.values().sum();
    let per_request =
        |report: &Report| report.all.reload.0 as f64 / 1000.0 / report.all.requests.max(1) as f64;
    let ratio = |own: f64, other: f64| {
        if other > 0.0 {
            format!("{:.3}", own / other)
        } else {
            "-".to_owned()
        }
    };
    let hours = |seconds: u64| format!("{:.1}", seconds as f64 / 3600.0);
    vec![
        report.policy.clone(),
        all.served.to_string(),
        refused.to_string(),
        all.timed_out.to_string(),
        report.cut.to_string(),
        format!(
            "{:.2} %",
            100.0 * all.cold as f64 / all.requests.max(1) as f64
        ),
        short(all.waits.mean),
        short(all.waits.p50),
        short(all.waits.p95),
        short(all.waits.p99),
        all.loads.to_string(),
        (all.reload.0 / 1000).to_string(),
        format!("{:.3}", per_request(report)),
        evictions.to_string(),
        hours(report.device_seconds_held),
        hours(report.device_seconds_idle),
        report.inversions.to_string(),
        lru.map_or("-".to_owned(), |lru| {
            ratio(per_request(report), per_request(lru))
        }),
        lru.map_or("-".to_owned(), |lru| {
            ratio(all.waits.mean.0 as f64, lru.all.waits.mean.0 as f64)
        }),
    ]
}

/// Formats a wait in the unit that makes it shortest.
pub fn short(span: Span) -> String {
    match span.0 {
        ms if ms < 1000 => format!("{ms} ms"),
        ms if ms < 600_000 => format!("{:.1} s", ms as f64 / 1000.0),
        ms => format!("{:.1} min", ms as f64 / 60_000.0),
    }
}
