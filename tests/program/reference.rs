//! The reference pages generated from the programs: every command's help, and the metrics. `UPDATE=1` writes them; otherwise an
//! outdated page fails. `tests/plain/reference.rs` generates the other pages.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::json;
use support::servers::dead_url;
use support::service::{Pool, wait_for};

const MADE: &str = "A test generates this part from the program; edits are overwritten.";

/// The heading of a page of commands, above their help.
const COMMANDS: &str = "Every command";

fn check(name: &str, made: &str) {
    support::reference::check(name, made, "program");
}

/// The help of a command. The environment is empty because the help shows its variables.
fn help(program: &str, words: &[String]) -> Option<String> {
    let output = Command::new(support::profile_dir().join(program))
        .args(words)
        .arg("--help")
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let usage = [&[format!("Usage: {program}")][..], words]
        .concat()
        .join(" ");
    // A word that is not a command shows the help of the command before it, or an error.
    let is_it = text
        .lines()
        .any(|line| line == usage || line.starts_with(&format!("{usage} ")));
    (output.status.success() && is_it).then_some(text)
}

/// Words that may be commands: indented, and before the arguments and options.
fn commands(help: &str) -> Vec<String> {
    let mut lines = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    lines.next();
    let lines = lines.take_while(|line| !["Options:", "Arguments:"].contains(line));
    let words = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let is_name = |word: &&str| {
        word.starts_with(|letter: char| letter.is_ascii_lowercase())
            && word
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '-')
    };
    let words = words.filter(is_name).filter(|word| *word != "help");
    words.map(str::to_owned).collect()
}

fn write(program: &str, words: &[String], text: &mut String, found: &mut usize) {
    let Some(help) = help(program, words) else {
        return;
    };
    *found += 1;
    let name = [&[program.to_owned()][..], words].concat().join(" ");
    let shown: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!(
        "\n### {name}\n\n```text\n{}\n```\n",
        shown.join("\n").trim_end()
    ));
    for command in commands(&help) {
        write(program, &[words, &[command]].concat(), text, found);
    }
}

#[test]
fn the_reference_of_the_server_commands_matches_their_help() {
    let mut text = format!("\n{MADE}\n");
    let mut found = 0;
    write("model-pool", &[], &mut text, &mut found);
    assert!(found > 15, "{found}");
    support::reference::check_below("model-pool.md", COMMANDS, &text, "program");
}

#[test]
fn the_reference_of_the_admin_client_commands_matches_their_help() {
    let mut text = format!("\n{MADE}\n");
    let mut found = 0;
    write("admin-client", &[], &mut text, &mut found);
    assert!(found > 30, "{found}");
    support::reference::check_below("admin-client.md", COMMANDS, &text, "program");
}

/// Labels of metric families without samples in this test: adapters, downloads, nodes, and engines' own metrics.
const LABELS: &[(&str, &[&str])] = &[
    ("model_pool_adapter_loads_total", &["model"]),
    ("model_pool_cooldown", &["model"]),
    (
        "model_pool_device_energy_joules_total",
        &["device", "state"],
    ),
    ("model_pool_device_seconds_total", &["device", "state"]),
    ("model_pool_engine_cache_used_ratio", &["model", "replica"]),
    ("model_pool_engine_requests", &["model", "replica", "state"]),
    ("model_pool_fetch_bytes", &["model", "kind"]),
    ("model_pool_memory_estimate_ratio", &["model"]),
    ("model_pool_node_cost", &["period"]),
    ("model_pool_node_gpu_hours", &["period"]),
    ("model_pool_node_lease_seconds", &["node"]),
    ("model_pool_node_replicas", &["node"]),
    ("model_pool_node_request_seconds", &["size"]),
    ("model_pool_node_size_available", &["size"]),
    ("model_pool_node_size_cost_per_hour", &["size"]),
    ("model_pool_node_size_held", &["size"]),
    ("model_pool_node_state", &["node", "state"]),
    ("model_pool_target_requests_total", &["model", "result"]),
];

#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    has_samples: bool,
}

/// Metric families by name.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut last = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            last = name.to_owned();
            families.entry(last.clone()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else {
            let family = families
                .get_mut(&last)
                .expect("a family before its samples");
            family.has_samples = true;
            let Some((_, labels)) = line.split_once('{') else {
                continue;
            };
            let names = labels.split("=\"").map(|part| {
                let start = part.rfind(['"', ',', '{']).map_or(0, |at| at + 1);
                &part[start..]
            });
            let mut names: Vec<&str> = names.collect();
            // The text after the last label.
            names.pop();
            let names = names.into_iter().filter(|name| *name != "le");
            family.labels.extend(names.map(str::to_owned));
        }
    }
    families
}

#[test]
fn the_reference_of_metrics_matches_a_running_service() {
    let model =
        |name: &str, more: &str| support::stub::model(name, &[], &format!("memory_gib: 10{more}"));
    let endpoint = dead_url().replace("/v1", "");
    let config = format!(
        "telemetry: {{endpoint: \"{endpoint}\"}}\ngroups: {{lab: {{quota: {{tokens: 1M}}}}}}\n"
    );
    let pool = Pool::with_models(&[model("low", ""), model("high", ", priority: 1")], &config);
    // A load, and a load that evicts it.
    for name in ["low", "high"] {
        let body = json!({"model": name, "stream": true, "messages": [{"role": "user", "content": "Hello"}]});
        let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
        assert_eq!(status, 200, "{text}");
    }
    let mut found = BTreeMap::new();
    wait_for("the eviction in the metrics", || {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        found = families(&text);
        let has = |name: &str| found.get(name).is_some_and(|family| family.has_samples);
        has("model_pool_evictions_total") && has("model_pool_loads_total")
    });
    let known: BTreeMap<&str, &[&str]> = LABELS.iter().copied().collect();
    let without: Vec<&String> = found
        .iter()
        .filter(|(name, family)| !family.has_samples && !known.contains_key(name.as_str()))
        .map(|(name, _)| name)
        .collect();
    assert!(
        without.is_empty(),
        "write the labels of {without:#?} into LABELS"
    );
    let mut text = String::from(
        "# Metrics\n\n\
         The metrics that `/metrics` exports to Prometheus. [keys.md](../guides/keys.md#prometheus) explains how to give Prometheus access, and\n\
         [operations.md](../guides/operations.md#alerts) has alerts and a dashboard. Label values are names of the catalogue and of groups,\n\
         and known codes, never text from a client. A histogram also has the label `le`.\n\n\
         A test generates this page from the program; edits are overwritten.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for (name, family) in &found {
        let labels: Vec<String> = match known.get(name.as_str()) {
            Some(labels) => {
                let labels: BTreeSet<String> =
                    labels.iter().map(|label| (*label).to_owned()).collect();
                assert!(
                    family.labels.is_subset(&labels),
                    "{name}: {:?}",
                    family.labels
                );
                labels.into_iter().collect()
            }
            None => family.labels.iter().cloned().collect(),
        };
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let help = family.help.replace('|', "\\|");
        text.push_str(&format!(
            "| `{name}` | {} | {} | {help} |\n",
            family.kind,
            labels.join(", ")
        ));
    }
    check("metrics.md", &text);
}
