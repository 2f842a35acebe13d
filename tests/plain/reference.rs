//! The reference pages generated from the code: configuration keys, and events with their reasons. `UPDATE=1` writes them;
//! otherwise an outdated page fails. `tests/program/reference.rs` generates the other pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use model_pool::config::{Applies, Config, ENVIRONMENT_PREFIX, applies};
use model_pool::pool::{END_CAUSES, LOAD_CAUSES, REFUSAL_CAUSES, RecordKind, causes};
use serde_json::Value;

fn check(name: &str, made: &str) {
    support::reference::check(name, made, "plain");
}

/// A bar would end the cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// The resolved schema, and the description of the key itself.
fn resolved<'a>(schema: &'a Value, place: &'a Value) -> &'a Value {
    let alone = |schema: &&Value| schema["type"] != "null";
    let some = place["anyOf"]
        .as_array()
        .and_then(|schemas| schemas.iter().find(alone));
    let place = some.unwrap_or(place);
    match place["$ref"].as_str() {
        Some(path) => schema.pointer(path.trim_start_matches('#')).unwrap(),
        None => place,
    }
}

fn default_of(value: &Value) -> String {
    match value {
        Value::Null => "`null`".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// The keys of a section, followed by its nested sections.
fn rows(schema: &Value, section: &Value, path: &str, default: &Value, text: &mut String) {
    for (name, place) in section["properties"].as_object().unwrap() {
        let key = format!("{path}.{name}");
        let target = resolved(schema, place);
        let default = &default[name];
        let inner = target["properties"].is_object();
        if inner && !default.is_null() {
            rows(schema, target, &key, default, text);
            continue;
        }
        let when = match applies(&key).expect("every key has its class") {
            Applies::AtOnce => "reload",
            Applies::ToNewEngines => "reload, for new engines",
            Applies::ByRestart => "restart",
        };
        let shown = cell(&default_of(default));
        text.push_str(&format!("| `{key}` | {shown} | {when} |\n"));
        if inner {
            // Absent by default: lists the keys that it would have.
            for (name, place) in target["properties"].as_object().unwrap() {
                let default = match place.get("default") {
                    Some(value) => default_of(value),
                    None => "required".to_owned(),
                };
                let shown = cell(&default);
                text.push_str(&format!("| `{key}.{name}` | {shown} | {when} |\n"));
            }
        }
    }
}

#[test]
fn the_reference_of_configuration_keys_is_up_to_date() {
    let (schema, effective) = (Config::schema(), Config::default().effective_json());
    let mut text = format!(
        "\nThe key `section.key` is also the variable `{ENVIRONMENT_PREFIX}SECTION__KEY`. The last column says what applies a change.\n\n\
         A test generates this part from the code; edits are overwritten.\n\n\
         | key | default | in force by |\n|---|---|---|\n"
    );
    for (name, place) in schema["properties"].as_object().unwrap() {
        let section = resolved(&schema, place);
        let entry = &section["additionalProperties"];
        if entry.is_object() {
            // A section whose keys are names.
            text.push_str(&format!("| `{name}` | `{{}}` | reload |\n"));
            let entry = resolved(&schema, entry);
            for (key, place) in entry["properties"].as_object().unwrap() {
                let shown = cell(&default_of(&place["default"]));
                text.push_str(&format!("| `{name}.NAME.{key}` | {shown} | reload |\n"));
            }
            continue;
        }
        rows(&schema, section, name, &effective[name], &mut text);
    }
    for (section, keys) in effective.as_object().unwrap() {
        for key in keys.as_object().unwrap().keys() {
            assert!(
                text.contains(&format!("| `{section}.{key}")),
                "{section}.{key}"
            );
        }
    }
    let heading = "Every key and its default";
    support::reference::check_below("configuration.md", heading, &text, "plain");
}

fn table(title: &str, rows: &[(&str, &str)]) -> String {
    let rows: String = rows
        .iter()
        .map(|(name, meaning)| format!("| `{name}` | {} |\n", cell(meaning)))
        .collect();
    format!("| {title} | meaning |\n|---|---|\n{rows}")
}

#[test]
fn the_reference_of_events_is_up_to_date() {
    let kinds = RecordKind::ALL.map(|kind| (kind.name(), kind.meaning()));
    let text = format!(
        "# Events and reasons\n\n\
         The pool records its decisions in its history: see `admin-client events`, `GET /llm/admin/events` (also live, as a stream), and the\n\
         dashboard. Each event has a kind, and most have a reason. You can filter by both: `admin-client events --kind evict --reason preempted`.\n\
         A sentence with figures explains the reason. Rules such as P2 are in [rules.md](rules.md).\n\n\
         A test generates this page from the code; edits are overwritten.\n\n\
         ## Kinds\n\n{}\n## Why a model is loaded\n\n{}\n## Why a replica leaves\n\n{}\n## Why something is refused\n\n{}",
        table("kind", &kinds),
        table("reason", LOAD_CAUSES),
        table("reason", END_CAUSES),
        table("reason", REFUSAL_CAUSES),
    );
    check("events.md", &text);
}

/// The strings that the function `name` in these files returns.
fn names_in(files: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = fs::read_to_string(path).unwrap();
        let functions = text.split("pub fn name(").skip(1);
        for function in functions {
            let body = function.split("\n    }\n").next().unwrap();
            let arms = body.lines().filter_map(|line| line.split_once("=> \""));
            names.extend(arms.map(|(_, rest)| rest.split('"').next().unwrap().to_owned()));
        }
    }
    names
}

#[test]
fn every_event_kind_and_reason_is_explained() {
    let named = names_in(&["src/pool/types/cause.rs", "src/pool/types/refusal_sums.rs"]);
    let with_meaning: BTreeSet<String> = causes().map(str::to_owned).collect();
    assert!(named.len() > 50, "{named:?}");
    assert_eq!(named, with_meaning);
    let kinds = names_in(&["src/pool/types/action.rs"]);
    let all: BTreeSet<String> = RecordKind::ALL.map(|kind| kind.name().to_owned()).into();
    assert_eq!(kinds, all);
}
