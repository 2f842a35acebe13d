//! Groups that administrators set with the API and `admin-client`, with the real program: stored, checked together with the
//! configuration, and in the audit.

use serde_json::{Value, json};
use support::net::stub;
use support::service::Pool;

use crate::admin_client::client;
use crate::permissions::admin;

const CONFIG: &str = "auth: {inference: key}\ngroups: {physics: {weight: 2, keys: [ann]}}\n";

fn pool() -> Pool {
    Pool::with_models(&[stub("one", &["--tokens", "5"])], CONFIG)
}

fn set(pool: &Pool, name: &str, group: &Value) -> (u16, Value) {
    admin(
        pool,
        &pool.admin_key(),
        "PUT",
        &format!("/groups/{name}"),
        group,
    )
}

fn remove(pool: &Pool, name: &str) -> (u16, Value) {
    admin(
        pool,
        &pool.admin_key(),
        "DELETE",
        &format!("/groups/{name}"),
        &Value::Null,
    )
}

/// The groups in force with their sources.
fn groups(pool: &Pool) -> Vec<(String, String)> {
    let (status, list) = admin(pool, &pool.admin_key(), "GET", "/groups", &Value::Null);
    assert_eq!(status, 200, "{list}");
    let text = |group: &Value, name: &str| group[name].as_str().unwrap().to_owned();
    let all = list["groups"].as_array().unwrap().iter();
    all.map(|group| (text(group, "path"), text(group, "source")))
        .collect()
}

fn group(path: &str, source: &str) -> (String, String) {
    (path.to_owned(), source.to_owned())
}

#[test]
fn a_group_that_an_administrator_sets_is_in_force_and_survives_a_kill() {
    let mut pool = pool();
    let wish = json!({"name": "bob", "role": "user"});
    let (_, made) = admin(&pool, &pool.admin_key(), "POST", "/keys", &wish);
    let bob = made["key"].as_str().unwrap().to_owned();
    let course = json!({"parent": "physics", "keys": ["bob"], "class_max": "flex", "quota": {"tokens": 1, "at_end": "refuse"}});
    let (status, changed) = set(&pool, "course", &course);
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        changed,
        json!({"group": "course", "warnings": ["groups.physics.keys: no API key has the id or name `ann`; correct it, or create the key"]})
    );
    let both = [
        group("physics", "configuration"),
        group("physics/course", "api"),
    ];
    assert_eq!(groups(&pool), both);
    let body = json!({"model": "one", "messages": [{"role": "user", "content": "x"}]}).to_string();
    let chat = |pool: &Pool| pool.request("POST", "/v1/chat/completions", &body, Some(&bob));
    let (status, text, head) = chat(&pool);
    assert_eq!(status, 200, "{text}");
    assert!(head.contains("x-model-pool-class: flex"), "{head}");
    assert_eq!(chat(&pool).0, 429);

    pool.kill_and_restart();
    assert_eq!(groups(&pool), both);
    let (status, changed) = set(&pool, "course", &json!({"keys": ["bob"]}));
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        groups(&pool),
        [group("course", "api"), group("physics", "configuration")]
    );
    assert_eq!(chat(&pool).0, 200, "without a quota");
    let (status, changed) = remove(&pool, "course");
    assert_eq!(status, 200, "{changed}");
    assert_eq!(groups(&pool), [group("physics", "configuration")]);
    pool.kill_and_restart();
    assert_eq!(groups(&pool), [group("physics", "configuration")]);
    let (_, audit) = admin(
        &pool,
        &pool.admin_key(),
        "GET",
        "/audit?path=/admin/groups",
        &Value::Null,
    );
    let entries = audit["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 3, "{audit}");
    assert!(
        audit.to_string().contains("\"parent\":\"physics\""),
        "{audit}"
    );
}

#[test]
fn a_group_that_cannot_be_used_is_refused_with_the_reason_and_changes_nothing() {
    let pool = pool();
    assert_eq!(set(&pool, "a", &json!({"keys": ["k7"]})).0, 200);
    assert_eq!(set(&pool, "b", &json!({"parent": "a"})).0, 200);
    let before = groups(&pool);
    for (name, body, status, words) in [
        ("physics", json!({}), 409, "group_in_configuration"),
        (
            "a",
            json!({"parent": "b"}),
            400,
            "groups contain each other",
        ),
        ("c", json!({"parent": "nobody"}), 400, "groups.c.parent"),
        ("c", json!({"weight": 0}), 400, "is 0; allowed: 1 to 1000"),
        ("c", json!({"weight": -1}), 400, "non-negative"),
        ("c", json!({"keys": ["k7"]}), 400, "already belongs to"),
        ("c", json!({"keys": ["ann"]}), 400, "already belongs to"),
        (
            "c",
            json!({"quota": {"tokens": -1}}),
            400,
            "is -1; allowed: 1 to 1000T",
        ),
        (
            "c",
            json!({"quota": {"gpu_hours": -1}}),
            400,
            "is -1; allowed: more than 0",
        ),
        ("c", json!({"quota": {}}), 400, "limits nothing"),
        ("c", json!({"models": []}), 400, "is empty"),
        ("c", json!({"wieght": 2}), 400, "did you mean `weight`"),
        ("c", json!([]), 400, ""),
        ("a%20b", json!({}), 400, "is not a name for a group"),
        ("a%0A%7B%7D", json!({}), 400, "is not a name for a group"),
        ("%3Cscript%3E", json!({}), 400, "is not a name for a group"),
        ("..%2Fa", json!({}), 404, "there is nothing at"),
    ] {
        let (found, refused) = set(&pool, name, &body);
        assert_eq!(found, status, "{name} {body}: {refused}");
        assert!(
            refused.to_string().contains(words),
            "{name} {body}: {refused}"
        );
    }
    for (name, status, words) in [
        ("physics", 409, "group_in_configuration"),
        ("none", 404, "there is no group"),
        ("a", 400, "groups.b.parent"),
    ] {
        let (found, refused) = remove(&pool, name);
        assert_eq!(found, status, "{name}: {refused}");
        assert!(refused.to_string().contains(words), "{name}: {refused}");
    }
    assert_eq!(groups(&pool), before);
}

#[test]
fn a_configuration_that_takes_the_name_or_a_member_of_a_stored_group_leaves_it_out_with_a_warning()
{
    let pool = pool();
    assert_eq!(set(&pool, "a", &json!({"keys": ["k7"]})).0, 200);
    assert_eq!(set(&pool, "b", &json!({"keys": ["k8"]})).0, 200);
    let file = pool.folder().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let write = |groups: &str| {
        std::fs::write(
            &file,
            text.replace("{physics: {weight: 2, keys: [ann]}}", groups),
        )
        .unwrap();
        let (status, reloaded) = admin(&pool, &pool.admin_key(), "POST", "/reload", &Value::Null);
        assert_eq!(status, 200, "{reloaded}");
        reloaded["warnings"].to_string()
    };
    let warnings = write("{a: {}, top: {keys: [k8]}}");
    for words in [
        "the group a, which was set with the API, is left out",
        "the group b, which",
    ] {
        assert!(warnings.contains(words), "{words}: {warnings}");
    }
    assert_eq!(
        groups(&pool),
        [group("a", "configuration"), group("top", "configuration")]
    );
    assert_eq!(remove(&pool, "a").0, 200, "the stored one");
    let (status, refused) = remove(&pool, "a");
    assert_eq!(status, 409, "{refused}");
    assert_eq!(set(&pool, "c", &json!({})).0, 200);
    assert!(!write("{}").contains("left out"));
    assert_eq!(groups(&pool), [group("b", "api"), group("c", "api")]);
}

#[test]
fn admin_client_sets_shows_and_removes_groups() {
    let pool = pool();
    let words = "groups set course --parent physics --weight 3 --tokens 10M --at-end lowest";
    let words: Vec<&str> = words.split(' ').collect();
    let made = client(&pool, &words);
    assert_eq!(made.status, 0, "{made:?}");
    assert!(made.stdout.starts_with("group course is set"), "{made:?}");
    let shown = client(&pool, &["groups"]).stdout;
    for words in ["physics", "  course", "10000000 tokens, then lowest"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let json = client(&pool, &["groups", "list", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["groups"][1]["weight"], 3);
    let refused = client(&pool, &["groups", "remove", "physics"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(client(&pool, &["groups", "remove", "course"]).status, 0);
    assert!(!client(&pool, &["groups"]).stdout.contains("course"));
}
