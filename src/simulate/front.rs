//! `--front`: plays the pool with a range of objectives, and simple rules, on one workload. Shows waiting against loading and marks
//! the points that no other point beats in both.

use std::fmt::Write;

use super::args::SimulateArgs;
use super::compare;
use super::setup::Setup;
use pool::{Objective, Policy};
use sim::replay::{Options, Report, Scenario, run};

/// The objectives: seconds of waiting per second of loading.
const OBJECTIVES: [u32; 6] = [0, 1, 2, 4, 8, 16];
const SIMPLE: [&str; 3] = ["lru", "lru-best", "fifo"];

/// The cost of a rule on the workload.
#[derive(Clone, Debug)]
pub struct Point {
    pub rule: String,
    /// The wait per request; an unserved request counts with its full queue timeout.
    pub wait_ms: f64,
    pub reload_ms: f64,
    pub requests: u64,
    pub unserved: u64,
    /// No other rule is at least as good in both waiting and loading and better in one.
    pub is_on_front: bool,
}

impl Point {
    fn new(rule: String, report: &Report, scenario: &Scenario) -> Point {
        Point {
            rule,
            wait_ms: wait_ms(report, scenario),
            reload_ms: report.all.reload.0 as f64,
            requests: report.all.requests,
            unserved: report.all.requests.saturating_sub(report.all.served),
            is_on_front: false,
        }
    }

    fn is_better_than(&self, other: &Point) -> bool {
        let as_good = self.wait_ms <= other.wait_ms && self.reload_ms <= other.reload_ms;
        as_good && (self.wait_ms < other.wait_ms || self.reload_ms < other.reload_ms)
    }

    fn reload_seconds_per_request(&self) -> f64 {
        self.reload_ms / 1000.0 / self.requests.max(1) as f64
    }
}

/// The quantity that the pool minimises: milliseconds of waiting per request. An unserved request counts with its full queue
/// timeout.
pub fn wait_ms(report: &Report, scenario: &Scenario) -> f64 {
    let waited = report.by_model.iter().map(|(id, tally)| {
        let timeout = scenario.models[id.0 as usize].queue_timeout.0 as f64;
        let unserved = tally.requests.saturating_sub(tally.served) as f64;
        tally.waits.mean.0 as f64 * tally.served as f64 + timeout * unserved
    });
    waited.sum::<f64>() / report.all.requests.max(1) as f64
}

/// Plays every rule.
///
/// # Errors
/// An unknown policy; a workload that can no longer be read; a rule that the pool broke.
pub fn points(setup: &Setup, more: &[String]) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for weight in OBJECTIVES {
        let rule = named(Objective(weight));
        points.push(ours(setup, rule, |scenario| {
            scenario.limits.objective = Objective(weight);
        })?);
    }
    points.push(ours(setup, "policy: lru".to_owned(), |scenario| {
        scenario.limits.policy = Policy::LRU;
        scenario.limits.objective = Objective::WAIT;
    })?);
    let mut rules: Vec<&str> = SIMPLE.to_vec();
    for name in more {
        if name != "model-pool" && name != "bound" && !rules.contains(&name.as_str()) {
            rules.push(name);
        }
    }
    for rule in rules {
        let report = compare::one(setup, rule, false, &mut |_, _| {})?;
        points.push(Point::new(rule.to_owned(), &report, &setup.scenario));
    }
    mark(&mut points);
    Ok(points)
}

/// Runs the pool with changed limits.
fn ours(setup: &Setup, rule: String, change: impl Fn(&mut Scenario)) -> Result<Point, String> {
    let mut scenario = setup.scenario.clone();
    change(&mut scenario);
    let arrivals = setup.arrivals().map_err(|fault| fault.to_string())?;
    let report = run(&scenario, arrivals, &Options::default(), &mut |_, _| {});
    match report.broken.first() {
        Some(broken) => Err(format!("{rule}: {broken}")),
        None => Ok(Point::new(rule, &report, &scenario)),
    }
}

fn named(objective: Objective) -> String {
    match objective {
        Objective::WAIT => "objective: wait".to_owned(),
        Objective::BALANCED => "objective: balanced".to_owned(),
        Objective::RELOAD => "objective: reload".to_owned(),
        Objective(weight) => format!("objective: weight {weight}"),
    }
}

fn mark(points: &mut [Point]) {
    for nth in 0..points.len() {
        let beaten = points
            .iter()
            .any(|point| point.is_better_than(&points[nth]));
        points[nth].is_on_front = !beaten;
    }
}

/// Plays every rule and prints the points, or writes them as JSON.
pub(crate) fn show(setup: &Setup, args: &SimulateArgs) -> Result<(), String> {
    let points = points(setup, &args.compare)?;
    match &args.json {
        Some(path) if path.as_os_str() == "-" => println!("{}", json(setup, &points)),
        Some(path) => {
            std::fs::write(path, json(setup, &points))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            print!("{}", text(&points));
        }
        None => print!("{}", text(&points)),
    }
    Ok(())
}

fn text(points: &[Point]) -> String {
    let mut out = String::from(
        "waiting and loading by each rule; * where no other rule is better in both\n\n| rule | wait per request | loading per request | loading | not served | |\n|---|--:|--:|--:|--:|---|\n",
    );
    for point in points {
        let _ = writeln!(
            out,
            "| {} | {:.2} s | {:.3} s | {:.0} s | {} | {} |",
            point.rule,
            point.wait_ms / 1000.0,
            point.reload_seconds_per_request(),
            point.reload_ms / 1000.0,
            point.unserved,
            if point.is_on_front { "*" } else { "" },
        );
    }
    out
}

fn json(setup: &Setup, points: &[Point]) -> String {
    let point = |point: &Point| {
        serde_json::json!({
            "rule": point.rule,
            "wait_per_request_ms": point.wait_ms,
            "reload_seconds_per_request": point.reload_seconds_per_request(),
            "reload_ms": point.reload_ms,
            "requests": point.requests,
            "unserved": point.unserved,
            "on_front": point.is_on_front,
        })
    };
    let document = serde_json::json!({
        "workload": setup.workload.spec,
        "points": points.iter().map(point).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(wait_ms: f64, reload_ms: f64) -> Point {
        Point {
            rule: String::new(),
            wait_ms,
            reload_ms,
            requests: 1,
            unserved: 0,
            is_on_front: false,
        }
    }

    #[test]
    fn a_point_is_on_the_front_unless_another_dominates_it() {
        let mut points = [
            point(1.0, 9.0),
            point(2.0, 5.0),
            point(2.0, 6.0),
            point(3.0, 5.0),
            point(4.0, 4.0),
            point(4.0, 4.0),
        ];
        mark(&mut points);
        let front: Vec<bool> = points.iter().map(|point| point.is_on_front).collect();
        assert_eq!(front, [true, true, false, false, true, true]);
    }
}
