//! The admin API of virtual models: stored, checked against the configuration and the catalogue, and in the audit.

use serde_json::{Value, json};
use support::net::stub;
use support::service::Pool;

use super::ask;

const PATH: &str = "/llm/admin/virtual_models";

fn pool(config: &str) -> Pool {
    let models = ["a", "b"].map(|name| stub(name, &["--tokens", "1"]));
    Pool::with_models(&models, config)
}

fn set(pool: &Pool, name: &str, model: &Value) -> (u16, Value) {
    pool.admin("PUT", &format!("{PATH}?model={name}"), model)
}

fn remove(pool: &Pool, name: &str) -> (u16, Value) {
    pool.admin("DELETE", &format!("{PATH}?model={name}"), &Value::Null)
}

/// The names of all virtual models with their kinds and sources.
fn listed(pool: &Pool) -> Vec<[String; 3]> {
    let (status, list) = pool.admin("GET", PATH, &Value::Null);
    assert_eq!(status, 200, "{list}");
    let text = |model: &Value, name: &str| model[name].as_str().unwrap().to_owned();
    let all = list["virtual_models"].as_array().unwrap().iter();
    all.map(|model| ["name", "kind", "source"].map(|field| text(model, field)))
        .collect()
}

fn row(name: &str, kind: &str, source: &str) -> [String; 3] {
    [name, kind, source].map(str::to_owned)
}

#[test]
fn a_virtual_model_that_an_administrator_sets_replaces_the_configured_one_and_survives_a_kill() {
    let mut pool = pool("virtual_models: {coder: {fallback: [a, b]}}\n");
    assert_eq!(listed(&pool), [row("coder", "fallback", "configuration")]);
    let (status, view) = set(&pool, "coder", &json!({"any_of": ["b"]}));
    assert_eq!(status, 200, "{view}");
    assert_eq!(view["next"]["member"], "b", "{view}");
    let (status, view) = set(&pool, "lab/new", &json!({"split": {"a": 1, "b": 0.5}}));
    assert_eq!(status, 200, "{view}");
    assert_eq!(view["members"][1]["weight"], 0.5, "{view}");
    let both = [
        row("coder", "any_of", "api"),
        row("lab/new", "split", "api"),
    ];
    assert_eq!(listed(&pool), both);
    assert_eq!(ask(&pool, "coder").2, "b");
    pool.kill_and_restart();
    assert_eq!(listed(&pool), both);
    let (status, removed) = remove(&pool, "coder");
    assert_eq!(
        (status, removed),
        (200, json!({"name": "coder", "is_in_configuration": true}))
    );
    assert_eq!(ask(&pool, "coder").2, "a");
    let (status, error) = remove(&pool, "coder");
    assert_eq!(status, 409, "{error}");
    assert_eq!(remove(&pool, "lab/new").0, 200);
    assert_eq!(remove(&pool, "lab/new").0, 404);
    assert_eq!(listed(&pool), [row("coder", "fallback", "configuration")]);
    let (_, audit) = pool.admin(
        "GET",
        &format!("/llm/admin/audit?path={}", &PATH[4..]),
        &Value::Null,
    );
    let entries = audit["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 6, "{audit}");
    assert!(
        audit.to_string().contains("\"model\":\"lab/new\""),
        "{audit}"
    );
}

#[test]
fn a_virtual_model_that_cannot_be_used_is_refused_and_changes_nothing() {
    let pool = pool("virtual_models: {coder: {any_of: [a]}}\n");
    let many: Vec<String> = (0..10_000).map(|nth| format!("m{nth}")).collect();
    for (name, model, part) in [
        ("x", json!({"any_of": ["x"]}), "the virtual model itself"),
        (
            "x",
            json!({"any_of": ["coder"]}),
            "which is a virtual model",
        ),
        ("x", json!({"any_of": []}), "is empty"),
        ("x", json!({}), "has no rule"),
        ("x", json!({"split": {"a": 0}}), "is 0; allowed"),
        (
            "x",
            json!({"any_of": ["nothing"]}),
            "no model is called `nothing`",
        ),
        ("x", json!({"any_of": many}), "10000 members"),
        ("x", json!({"some_of": ["a"]}), "some_of"),
        ("x%20y", json!({"any_of": ["a"]}), "is not a name"),
        ("a", json!({"any_of": ["b"]}), "has the name a"),
        ("x", json!(["a"]), "must be a JSON object"),
    ] {
        let (status, error) = set(&pool, name, &model);
        assert!(
            matches!(status, 400 | 409),
            "{name} {part}: {status} {error}"
        );
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(listed(&pool), [row("coder", "any_of", "configuration")]);
}

#[test]
fn members_that_are_not_served_are_reported_and_skipped() {
    let pool = pool("virtual_models: {coder: {any_of: [a, gone]}}\n");
    pool.wait_for_log("virtual_models.coder names gone, and no such model is served");
    assert_eq!(ask(&pool, "coder").2, "a");
    let (_, list) = pool.admin("GET", PATH, &Value::Null);
    let first = &list["virtual_models"][0];
    assert_eq!(first["members"][1]["state"], Value::Null, "{list}");
    assert_eq!(first["warnings"].as_array().unwrap().len(), 1, "{list}");
}
