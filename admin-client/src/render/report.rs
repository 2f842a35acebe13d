//! The report as tables: a line for each model and a total, and a line for each group of callers. Pure.

use std::collections::BTreeMap;

use crate::decisions::{GroupReport, ModelReport, Report};
use crate::render::fold::sentence;
use crate::render::nodes::spent;
use crate::render::quantity::seconds;
use crate::render::table::{Column, Row, column, table};
use crate::style::{Style, clean_line};
use terminal::row;

const COLUMNS: [Column; 9] = [
    column("MODEL").shortens_to(14),
    column("REQUESTS").right(),
    column("WAITED").right(),
    column("MEAN WAIT").right().leaves(2),
    column("COLD").right(),
    column("LOADS").right(),
    column("MEAN LOAD").right().leaves(1),
    column("FAILED").right(),
    column("EVICTED, REFUSED").goes_below(),
];

const GROUP_COLUMNS: [Column; 7] = [
    column("GROUP").shortens_to(14),
    column("REQUESTS").right(),
    column("WAITED").right(),
    column("MEAN WAIT").right().leaves(1),
    column("COLD").right(),
    column("TOKENS").right(),
    column("REFUSED").goes_below(),
];

pub fn report(report: &Report, style: Style) -> String {
    let all = report.models.iter().chain([&report.total]);
    let period = format!("{} to {}", report.from, report.to);
    let mut text = format!(
        "{}\n{}",
        sentence(&clean_line(&period), style),
        table(&COLUMNS, all.map(row), "No activity in this period.", style)
    );
    if !report.groups.is_empty() {
        let groups = report.groups.iter().map(group_row);
        text += &format!("\n\n{}", table(&GROUP_COLUMNS, groups, "", style));
    }
    if !report.nodes.is_empty() {
        let nodes = format!("nodes: {}", listed(&report.nodes));
        text += &format!("\n{}", sentence(&clean_line(&nodes), style));
    }
    text.extend(report.node_use.iter().map(|used| spent(used, style)));
    text
}

fn mean(sum: f64, count: u64) -> Option<String> {
    (count > 0).then(|| seconds(sum / count as f64))
}

fn group_row(report: &GroupReport) -> Row {
    row![
        &report.group,
        report.requests,
        report.waited,
        mean(report.waited_seconds, report.waited),
        report.cold_starts,
        report.tokens,
        (!report.refusals.is_empty()).then(|| listed(&report.refusals)),
    ]
}

fn row(report: &ModelReport) -> Row {
    let parts = [
        ("evicted", &report.evictions),
        ("refused", &report.refusals),
    ];
    let parts = parts.into_iter().filter(|(_, reasons)| !reasons.is_empty());
    let parts_shown: Vec<String> = parts
        .map(|(what, reasons)| format!("{what} {}", listed(reasons)))
        .collect();
    row![
        &report.model,
        report.requests,
        report.waited,
        mean(report.waited_seconds, report.waited),
        report.cold_starts,
        report.loads,
        mean(report.load_seconds, report.loads),
        report.failed_loads + report.crashes,
        (!parts_shown.is_empty()).then(|| parts_shown.join("; ")),
    ]
}

/// `preempted 3, yielded 1`.
fn listed(reasons: &BTreeMap<String, u64>) -> String {
    let parts = reasons
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"));
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_report_has_a_row_per_model_and_a_total() {
        let view: Report = serde_json::from_value(json!({
            "from": "a", "to": "b",
            "models": [{"model": "org/m", "requests": 10, "waited": 4, "waited_seconds": 6.0, "cold_starts": 1, "loads": 2,
                "load_seconds": 8.0, "failed_loads": 1, "crashes": 1, "evictions": {"preempted": 3}, "refusals": {"no_room": 1}}],
            "total": {"model": "total", "requests": 10},
            "groups": [{"group": "physics/lab", "requests": 8, "waited": 2, "waited_seconds": 5.0, "cold_starts": 1,
                "refusals": {"queue_full": 3}, "tokens": 4321}], "nodes": {"node_joined": 2},
            "node_use": [{"period": "day", "gpu_hours": 3.5, "cost": 5.6}]}))
        .expect("a report");
        let text = report(&view, Style::PLAIN);
        assert!(
            text.contains("evicted preempted 3; refused no_room 1"),
            "{text}"
        );
        assert!(text.lines().any(|line| line.starts_with("total")), "{text}");
        assert!(
            text.contains("nodes: node_joined 2") && text.contains("3.5"),
            "{text}"
        );
        assert!(text.contains("1.5 s") && text.contains("4.0 s"), "{text}");
        let of_group = text.lines().find(|line| line.starts_with("physics/lab"));
        let of_group = of_group.expect("a line of the group");
        assert!(
            of_group.contains("2.5 s") && of_group.contains("4321"),
            "{text}"
        );
        assert!(text.contains("queue_full 3"), "{text}");
    }
}
