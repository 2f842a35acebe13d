//! Activity during a period, per model and in total, as JSON, CSV, or an HTML page for mail.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use utoipa::ToSchema;

use super::forecasts_report::ForecastsReport;
use super::group_report::{self, GroupReport};
use super::nodes::NodeUseView;
use super::values::at;
use pool::Time;
use store::{EventCount, UseCount};

const CSS: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1c1f24;background:#fff}\
h1{font-size:1.4rem}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.35rem .6rem;border-bottom:1px solid #d8dce2;text-align:right;vertical-align:top}\
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere;width:30%}tfoot td{font-weight:600;border-top:2px solid #1c1f24}\
small{color:#5b6472}\
@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#14171b}th,td{border-color:#333a43}tfoot td{border-top-color:#e6e8eb}small{color:#9aa4b2}}";

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ReportView {
    #[schema(example = "2026-01-24T20:15:00.000Z")]
    pub from: String,
    #[schema(example = "2026-01-31T20:15:00.000Z")]
    pub to: String,
    /// Models with activity, by name.
    pub models: Vec<ModelReport>,
    /// Sums over all models, including events of the pool itself.
    pub total: ModelReport,
    /// Groups with activity, by path.
    pub groups: Vec<GroupReport>,
    /// Events of nodes, by kind.
    #[schema(example = json!({"node_requested": 2, "node_joined": 2, "node_released": 1}))]
    pub nodes: BTreeMap<String, u64>,
    /// Forecasts of waits since the start of the service, compared with the waits.
    pub forecasts: ForecastsReport,
    /// The use of requested nodes in the current day and month, with its cost. Empty without a cluster.
    pub node_use: Vec<NodeUseView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ModelReport {
    #[schema(example = "tiny-chat")]
    pub model: String,
    /// Requests that got a seat.
    pub requests: u64,
    /// Requests that waited in a queue first.
    pub waited: u64,
    /// Sum of their waiting times.
    pub waited_seconds: f64,
    /// Requests whose first token came within the target of the model's priority (`pool.targets`).
    pub in_time: u64,
    /// Requests with a target whose first token came later, or that were refused after they had waited.
    pub late: u64,
    /// Loads that were started for a waiting request.
    pub cold_starts: u64,
    /// Successful loads, and the sum of their durations.
    pub loads: u64,
    pub load_seconds: f64,
    pub load_seconds_longest: f64,
    pub failed_loads: u64,
    /// Ready replicas whose engine exited unexpectedly.
    pub crashes: u64,
    /// Evictions in favour of another model, by reason.
    #[schema(example = json!({"preempted": 3, "yielded": 1}))]
    pub evictions: BTreeMap<String, u64>,
    /// Other unloads, by reason.
    #[schema(example = json!({"keep_hot": 12}))]
    pub unloads: BTreeMap<String, u64>,
    /// Events of refused requests and orders, by reason. Repetitions within a minute are combined into one or two events.
    #[schema(example = json!({"queue_full": 2}))]
    pub refusals: BTreeMap<String, u64>,
}

impl ReportView {
    pub fn new(from: Time, to: Time, events: &[EventCount], uses: &[UseCount]) -> ReportView {
        let mut models: BTreeMap<String, ModelReport> = BTreeMap::new();
        let mut total = ModelReport {
            model: "total".to_owned(),
            ..ModelReport::default()
        };
        let mut nodes = BTreeMap::new();
        for count in events {
            total.count(count);
            if count.kind.starts_with("node_") {
                *nodes.entry(count.kind.clone()).or_default() += count.count;
            }
            if let Some(model) = &count.model {
                models.entry(model.clone()).or_default().count(count);
            }
        }
        for count in uses {
            total.used(count);
            models.entry(count.model.clone()).or_default().used(count);
        }
        let named = models
            .into_iter()
            .map(|(model, report)| ModelReport { model, ..report });
        ReportView {
            from: at(from),
            to: at(to),
            models: named.filter(ModelReport::has_any).collect(),
            total,
            groups: Vec::new(),
            nodes,
            forecasts: ForecastsReport::default(),
            node_use: Vec::new(),
        }
    }

    /// One line per model, and a total.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "model,requests,waited,waited_seconds,in_time,late,cold_starts,loads,load_seconds,load_seconds_longest,failed_loads,crashes,evictions,evictions_by_reason,unloads,unloads_by_reason,refusals,refusals_by_reason\r\n",
        );
        for report in self.models.iter().chain([&self.total]) {
            let _ = write!(
                text,
                "{},{},{},{:.3},{},{},{},{},{:.3},{:.3},{},{},{},{},{},{},{},{}\r\n",
                csv_text(&report.model),
                report.requests,
                report.waited,
                report.waited_seconds,
                report.in_time,
                report.late,
                report.cold_starts,
                report.loads,
                report.load_seconds,
                report.load_seconds_longest,
                report.failed_loads,
                report.crashes,
                sum(&report.evictions),
                csv_text(&listed(&report.evictions)),
                sum(&report.unloads),
                csv_text(&listed(&report.unloads)),
                sum(&report.refusals),
                csv_text(&listed(&report.refusals)),
            );
        }
        text
    }

    /// One line per group.
    pub fn groups_csv(&self) -> String {
        group_report::csv(&self.groups)
    }

    /// A self-contained HTML page. `nonce` permits its style sheet.
    pub fn html(&self, nonce: &str) -> String {
        const HEADS: [&str; 11] = [
            "Model",
            "Requests",
            "Waited",
            "Mean wait",
            "In time",
            "Cold starts",
            "Loads",
            "Mean load",
            "Failed",
            "Evicted",
            "Refused",
        ];
        let heads: String = HEADS
            .iter()
            .map(|head| format!("<th>{head}</th>"))
            .collect();
        let rows: String = self.models.iter().map(row).collect();
        let (from, to, total) = (&self.from, &self.to, row(&self.total));
        let groups = group_report::table(&self.groups);
        let nodes = self.nodes_line();
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>model-pool: {from} to {to}</title><style nonce=\"{nonce}\">{CSS}</style></head>\n\
             <body><h1>What the pool did</h1><p>{from} to {to}</p>\n\
             <table><thead><tr>{heads}</tr></thead>\n<tbody>{rows}</tbody>\n<tfoot>{total}</tfoot></table>{groups}{nodes}</body></html>\n"
        )
    }

    /// A paragraph about nodes, such as `Nodes: node_joined 2. Of this day: 3.5 GPU hours, cost 5.60.`
    fn nodes_line(&self) -> String {
        let mut parts = Vec::new();
        if !self.nodes.is_empty() {
            parts.push(format!("Nodes: {}.", listed(&self.nodes)));
        }
        parts.extend(self.node_use.iter().map(|used| {
            let (period, hours, cost) = (used.period_text(), used.gpu_hours, used.cost);
            format!("Of this {period}: {hours} GPU hours, cost {cost:.2}.")
        }));
        if parts.is_empty() {
            String::new()
        } else {
            format!("\n<p>{}</p>", parts.join(" "))
        }
    }
}

impl ModelReport {
    fn count(&mut self, count: &EventCount) {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let by = |sums: &mut BTreeMap<String, u64>| {
            let cause = count.cause.clone().unwrap_or_else(|| "unknown".to_owned());
            *sums.entry(cause).or_default() += count.count;
        };
        match count.kind.as_str() {
            "load" if count.cause.as_deref() == Some("requests") => self.cold_starts += count.count,
            "ready" => {
                self.loads += count.count;
                self.load_seconds += seconds(count.took_ms);
                self.load_seconds_longest =
                    self.load_seconds_longest.max(seconds(count.longest_ms));
            }
            "load_failed" | "fetch_failed" => self.failed_loads += count.count,
            "crash" => self.crashes += count.count,
            "evict" => by(&mut self.evictions),
            "drain" | "unload" => by(&mut self.unloads),
            "refuse" => by(&mut self.refusals),
            _ => {}
        }
    }

    fn used(&mut self, count: &UseCount) {
        self.requests += count.requests;
        self.waited += count.waited;
        self.waited_seconds += count.waited_ms as f64 / 1000.0;
        self.in_time += count.in_time;
        self.late += count.late;
    }

    fn has_any(&self) -> bool {
        let nothing = ModelReport {
            model: self.model.clone(),
            ..ModelReport::default()
        };
        *self != nothing
    }
}

pub(super) fn sum(by_reason: &BTreeMap<String, u64>) -> u64 {
    by_reason.values().sum()
}

/// For example `preempted 3; yielded 1`.
pub(super) fn listed(by_reason: &BTreeMap<String, u64>) -> String {
    let parts = by_reason
        .iter()
        .map(|(cause, count)| format!("{cause} {count}"));
    parts.collect::<Vec<_>>().join("; ")
}

/// A quoted field. Spreadsheet programs would read a leading character of this set as a formula.
pub(super) fn csv_text(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let guard = if is_formula { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

/// The mean of a sum of seconds.
pub(super) fn mean(sum: f64, count: u64) -> String {
    match count {
        0 => "–".to_owned(),
        count => match sum / count as f64 {
            mean if mean < 0.95 => format!("{:.0} ms", mean * 1000.0),
            mean => format!("{mean:.1} s"),
        },
    }
}

fn row(report: &ModelReport) -> String {
    let share = |part: u64, all: u64| match all {
        0 => "–".to_owned(),
        all => format!("{:.1} %", 100.0 * part as f64 / all as f64),
    };
    let by = |reasons: &BTreeMap<String, u64>| match listed(reasons) {
        none if none.is_empty() => "0".to_owned(),
        all => format!("{}<br><small>{}</small>", sum(reasons), escaped(&all)),
    };
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(&report.model),
        report.requests,
        report.waited,
        mean(report.waited_seconds, report.waited),
        share(report.in_time, report.in_time + report.late),
        report.cold_starts,
        report.loads,
        mean(report.load_seconds, report.loads),
        report.failed_loads + report.crashes,
        by(&report.evictions),
        by(&report.refusals),
    )
}

/// Escapes HTML: a name can contain any character.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(kind: &str, model: &str, cause: Option<&str>, count: u64) -> EventCount {
        EventCount {
            kind: kind.to_owned(),
            model: Some(model.to_owned()),
            cause: cause.map(str::to_owned),
            count,
            took_ms: 1000 * count,
            longest_ms: 1500,
        }
    }

    fn report() -> ReportView {
        let events = [
            count("load", "a", Some("requests"), 3),
            count("load", "a", Some("order"), 1),
            count("ready", "a", None, 4),
            count("evict", "a", Some("preempted"), 2),
            count("evict", "<b>", Some("yielded"), 1),
            count("drain", "a", Some("keep_hot"), 1),
            count("load_failed", "<b>", None, 1),
            count("set", "quiet", None, 7),
            EventCount {
                model: None,
                ..count("node_joined", "", None, 2)
            },
        ];
        let uses = [UseCount {
            model: "=a()".to_owned(),
            requests: 10,
            waited: 4,
            waited_ms: 6000,
            in_time: 9,
            late: 1,
        }];
        ReportView::new(Time(0), Time(1000), &events, &uses)
    }

    #[test]
    fn the_total_is_the_sum_of_the_models() {
        let report = report();
        let names: Vec<&str> = report
            .models
            .iter()
            .map(|model| model.model.as_str())
            .collect();
        assert_eq!(
            names,
            ["<b>", "=a()", "a"],
            "nothing is reported of a model at rest"
        );
        let a = &report.models[2];
        assert_eq!((a.cold_starts, a.loads, a.load_seconds), (3, 4, 4.0));
        assert_eq!((a.evictions["preempted"], a.unloads["keep_hot"]), (2, 1));
        let total = &report.total;
        assert_eq!((total.requests, total.waited_seconds), (10, 6.0));
        assert_eq!((total.in_time, total.late), (9, 1));
        assert_eq!(report.nodes["node_joined"], 2);
        assert_eq!(sum(&total.evictions), 3);
        assert_eq!(total.failed_loads, 1);
    }

    #[test]
    fn names_are_escaped_in_html_and_csv() {
        let (html, csv) = (report().html("n"), report().csv());
        assert!(
            html.contains("&lt;b&gt;") && !html.contains("<b>"),
            "{html}"
        );
        assert!(csv.contains("\"'=a()\""), "{csv}");
        assert!(html.contains("<td>90.0 %</td>"), "{html}");
        assert!(html.contains("<p>Nodes: node_joined 2.</p>"), "{html}");
        let quick = [UseCount {
            model: "a".to_owned(),
            requests: 2,
            waited: 2,
            waited_ms: 88,
            in_time: 0,
            late: 0,
        }];
        let html = ReportView::new(Time(0), Time(1000), &[], &quick).html("n");
        assert!(html.contains("<td>44 ms</td>"), "{html}");
        assert_eq!(csv.lines().count(), 5);
    }
}
