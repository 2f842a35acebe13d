//! The reports as a table for a terminal.

use std::fmt::Write;

use super::front;
use super::setup::Setup;
use pool::{ShadowCosts, Span};
use sim::replay::Report;

pub fn text(setup: &Setup, reports: &[Report]) -> String {
    let mut out = String::new();
    let first = &reports[0];
    let days = first.to.since(first.from).0 as f64 / 86_400_000.0;
    let memory: u64 = setup
        .scenario
        .devices
        .iter()
        .map(|(_, it)| it.total.0)
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
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(|it| (*it).to_owned()).collect()];
    rows.extend(reports.iter().map(|report| row(report, lru)));
    let widths: Vec<usize> = (0..head.len())
        .map(|nth| {
            rows.iter()
                .map(|row| row[nth].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let mut line = String::new();
        for (nth, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[nth] - cell.chars().count());
            if nth == 0 {
                let _ = write!(line, "{cell}{pad}");
            } else {
                let _ = write!(line, "  {pad}{cell}");
            }
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for report in reports {
        let reasons = |counts: &std::collections::BTreeMap<String, u64>| {
            let texts: Vec<String> = counts
                .iter()
                .map(|(why, count)| format!("{why} {count}"))
                .collect();
            texts.join(", ")
        };
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
                "the objective: {:.2} s of waiting per request, with the whole queue timeout for each that was not served",
                wait / 1000.0
            );
        }
        if let Some(costs) = report.shadows.filter(|it| it.better() > Span::ZERO) {
            let _ = writeln!(out, "{}", shadows(&costs, report.all.reload));
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

/// Both rules for victims, what was followed of them, and the bound.
fn shadows(costs: &ShadowCosts, reload: Span) -> String {
    let seconds = |span: Span| span.0 / 1000;
    let more = 100.0 * (reload.0 as f64 / costs.better().0 as f64 - 1.0);
    format!(
        "by the two rules for victims alone, loads would have taken {} s (the pool's own estimate) and {} s (least recent use), {} s by following them with {} change{}, and at most {} s by the bound; the pool itself took {} s, {more:+.1} % of the better rule",
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
    let per_request = |it: &Report| it.all.reload.0 as f64 / 1000.0 / it.all.requests.max(1) as f64;
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

/// A wait in the unit that makes it short.
pub fn short(span: Span) -> String {
    match span.0 {
        ms if ms < 1000 => format!("{ms} ms"),
        ms if ms < 600_000 => format!("{:.1} s", ms as f64 / 1000.0),
        ms => format!("{:.1} min", ms as f64 / 60_000.0),
    }
}
