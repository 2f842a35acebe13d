//! The alerts and the dashboard in `deploy`, compared with a running service: every metric they name is exposed, and every alert
//! has a section in the documentation.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PREFIX: &str = "model_pool_";

fn read(path: &str) -> String {
    fs::read_to_string(format!("{ROOT}/{path}")).unwrap()
}

/// Metric families in an expression.
fn families(text: &str, exposed: &BTreeSet<String>) -> BTreeSet<String> {
    let names = text.match_indices(PREFIX).map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        rest[..end.unwrap_or(rest.len())].to_owned()
    });
    // A histogram is exposed as a family, and queried by its parts.
    let family = |name: String| {
        let parts = ["_bucket", "_sum", "_count"];
        let whole = parts.iter().find_map(|part| name.strip_suffix(part));
        match whole.filter(|whole| exposed.contains(*whole)) {
            Some(whole) => whole.to_owned(),
            None => name,
        }
    };
    names.map(family).collect()
}

#[test]
fn the_alerts_and_the_dashboard_name_metrics_that_are_exposed() {
    let pool = Pool::demo();
    let body = json!({"model": "tiny-guide", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let mut exposed = BTreeSet::new();
    wait_for("the load in the metrics", || {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        exposed = types
            .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
            .collect();
        exposed.len() > 20
    });
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/model-pool.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    // A row has only a title.
    let targets = panels
        .iter()
        .filter(|panel| panel["type"] != "row")
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect();
    assert!(expressions.len() > 12, "{expressions:?}");
    let rules = read("deploy/prometheus/rules.yml");
    let expressions_of_rules = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    for expression in expressions_of_rules.map(str::to_owned).chain(expressions) {
        let missing: Vec<String> = families(&expression, &exposed)
            .difference(&exposed)
            .cloned()
            .collect();
        assert!(
            missing.is_empty(),
            "{expression} names {missing:?}; exposed are {exposed:?}"
        );
    }
}

#[test]
fn every_alert_has_a_runbook() {
    let rules = read("deploy/prometheus/rules.yml");
    let headings: BTreeSet<String> = read("docs/guides/operations.md")
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect();
    let alerts = rules.matches("- alert: ").count();
    let runbooks = rules.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("runbook: docs/guides/operations.md#")
    });
    let runbooks: Vec<&str> = runbooks.collect();
    assert!(
        alerts > 6 && runbooks.len() == alerts,
        "{alerts} alerts, {runbooks:?}"
    );
    for anchor in runbooks {
        assert!(
            headings.contains(anchor),
            "docs/guides/operations.md has no section {anchor}"
        );
    }
}
