//! The reports as JSON: durations in milliseconds with `_ms`, everything else as in the table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::front;
use super::setup::Setup;
use super::table;
use pool::ShadowCosts;
use sim::replay::{Bound, ForecastReport, Report, Tally, Waits};

#[derive(Serialize)]
struct Policy<'a> {
    policy: &'a str,
    #[serde(flatten)]
    all: Counts<'a>,
    reload_seconds_per_request: f64,
    /// The quantity that the pool minimises: an unserved request counts with its full queue timeout.
    wait_per_request_ms: f64,
    /// The costs that both eviction rules would have had.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadows: Option<Shadows>,
    cut: u64,
    inversions: u64,
    device_seconds_held: u64,
    device_seconds_idle: u64,
    device_seconds_empty: u64,
    /// Devices with nothing but sleepers on them.
    device_seconds_asleep: u64,
    /// Host memory held by sleepers.
    host_gib_seconds: u64,
    /// The modelled energy that devices with a model on them drew beyond empty ones.
    energy_kwh: f64,
    by_priority: BTreeMap<String, WaitsOf>,
    by_key: BTreeMap<String, WaitsOf>,
    /// Requests by whether they met `pool.targets`, by priority.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    targets: BTreeMap<String, TargetCounts>,
    /// Forecasts of waits of a second or longer, with `--forecasts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecasts: Option<Forecasts>,
    by_model: BTreeMap<&'a str, Counts<'a>>,
}

#[derive(Serialize)]
struct Forecasts {
    waits: u64,
    precise: u64,
    ranges: u64,
    right: u64,
    ratio_p10: f64,
    ratio_p50: f64,
    ratio_p90: f64,
}

impl Forecasts {
    fn new(found: &ForecastReport) -> Forecasts {
        let ratio = |thousandths: u32| f64::from(thousandths) / 1_000.0;
        Forecasts {
            waits: found.waits,
            precise: found.precise,
            ranges: found.ranges,
            right: found.right,
            ratio_p10: ratio(found.ratio_p10),
            ratio_p50: ratio(found.ratio_p50),
            ratio_p90: ratio(found.ratio_p90),
        }
    }
}

#[derive(Serialize)]
struct WaitsOf {
    wait_mean_ms: u64,
    wait_p50_ms: u64,
    wait_p95_ms: u64,
    wait_p99_ms: u64,
    wait_longest_ms: u64,
}

#[derive(Serialize)]
struct TargetCounts {
    target_ms: u64,
    met: u64,
    missed: u64,
}

fn targets(report: &Report) -> BTreeMap<String, TargetCounts> {
    let targets = report.targets.iter().map(|(priority, attainment)| {
        let counts = TargetCounts {
            target_ms: attainment.target.0,
            met: attainment.met,
            missed: attainment.missed,
        };
        (priority.to_string(), counts)
    });
    targets.collect()
}

fn waits_of<K: ToString>(waits: &BTreeMap<K, Waits>) -> BTreeMap<String, WaitsOf> {
    let waits = waits.iter().map(|(key, waits)| {
        let waits = WaitsOf {
            wait_mean_ms: waits.mean.0,
            wait_p50_ms: waits.p50.0,
            wait_p95_ms: waits.p95.0,
            wait_p99_ms: waits.p99.0,
            wait_longest_ms: waits.longest.0,
        };
        (key.to_string(), waits)
    });
    waits.collect()
}

#[derive(Serialize)]
struct Shadows {
    own_ms: u64,
    least_recent_use_ms: u64,
    followed_ms: u64,
    changes: u64,
    bound_ms: u64,
}

impl Shadows {
    fn new(costs: &ShadowCosts) -> Shadows {
        Shadows {
            own_ms: costs.own.0,
            least_recent_use_ms: costs.simple.0,
            followed_ms: costs.followed.0,
            changes: costs.changes,
            bound_ms: costs.bound().0,
        }
    }
}

#[derive(Serialize)]
struct Counts<'a> {
    requests: u64,
    served: u64,
    refused: &'a BTreeMap<String, u64>,
    timed_out: u64,
    cold: u64,
    loads: u64,
    wakes: u64,
    reload_ms: u64,
    evictions: &'a BTreeMap<String, u64>,
    wait_mean_ms: u64,
    wait_p50_ms: u64,
    wait_p95_ms: u64,
    wait_p99_ms: u64,
    wait_longest_ms: u64,
    held_gib_seconds: u64,
    idle_gib_seconds: u64,
}

impl<'a> Counts<'a> {
    fn new(tally: &'a Tally) -> Counts<'a> {
        Counts {
            requests: tally.requests,
            served: tally.served,
            refused: &tally.refused,
            timed_out: tally.timed_out,
            cold: tally.cold,
            loads: tally.loads,
            wakes: tally.wakes,
            reload_ms: tally.reload.0,
            evictions: &tally.evictions,
            wait_mean_ms: tally.waits.mean.0,
            wait_p50_ms: tally.waits.p50.0,
            wait_p95_ms: tally.waits.p95.0,
            wait_p99_ms: tally.waits.p99.0,
            wait_longest_ms: tally.waits.longest.0,
            held_gib_seconds: tally.held_gib_seconds,
            idle_gib_seconds: tally.idle_gib_seconds,
        }
    }
}

pub fn text(setup: &Setup, reports: &[Report], least: Option<&Bound>) -> String {
    let scenario = &setup.scenario;
    let policy = |report: &'_ Report| -> serde_json::Value {
        let by_model = report
            .by_model
            .iter()
            .map(|(id, tally)| {
                (
                    scenario.models[id.0 as usize].name.as_str(),
                    Counts::new(tally),
                )
            })
            .collect();
        let seconds = report.all.reload.0 as f64 / 1000.0;
        serde_json::to_value(Policy {
            policy: &report.policy,
            all: Counts::new(&report.all),
            reload_seconds_per_request: seconds / report.all.requests.max(1) as f64,
            wait_per_request_ms: front::wait_ms(report, scenario),
            shadows: report.shadows.as_ref().map(Shadows::new),
            cut: report.cut,
            inversions: report.inversions,
            device_seconds_held: report.device_seconds_held,
            device_seconds_idle: report.device_seconds_idle,
            device_seconds_empty: report.device_seconds_empty,
            device_seconds_asleep: report.device_seconds_asleep,
            host_gib_seconds: report.host_gib_seconds,
            energy_kwh: table::energy_kwh(report),
            by_priority: waits_of(&report.by_priority),
            by_key: waits_of(&report.by_key),
            targets: targets(report),
            forecasts: report.forecasts.as_ref().map(Forecasts::new),
            by_model,
        })
        .unwrap_or_default()
    };
    let devices: Vec<serde_json::Value> = scenario
        .devices
        .iter()
        .map(|(_, reading)| serde_json::json!({"name": reading.name, "total_bytes": reading.total.0}))
        .collect();
    let document = serde_json::json!({
        "workload": setup.workload.spec,
        "models": scenario.models.len(),
        "devices": devices,
        "bound_reload_ms": least.map(|bound| bound.reload.0),
        "reports": reports.iter().map(policy).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&document).unwrap_or_default()
}
