//! Administrators of groups, with the real program: their keys, loads and unloads, and everything that they are refused.

use serde_json::{Value, json};
use support::net::stub;
use support::service::{Pool, wait_for};

use crate::permissions::admin;

const CONFIG: &str = "auth: {inference: key}\ngroups: {physics: {priority_max: 3, models: [one, hot]}, lab: {parent: physics, priority_max: 1, limits: {requests_per_minute: 100}}, team: {parent: lab}, chemistry: {keys: [chem, k4]}}\n";

fn pool() -> Pool {
    let models = ["one", "two", "hot"].map(|name| stub(name, &["--tokens", "5"]));
    Pool::with_models(&models, CONFIG)
}

/// Creates a key, and returns its text and its id.
fn make(pool: &Pool, by: &str, wish: Value) -> (String, String) {
    let (status, made) = admin(pool, by, "POST", "/keys", &wish);
    assert_eq!(status, 200, "{wish}: {made}");
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

fn group_admin(pool: &Pool, name: &str, group: &str) -> (String, String) {
    let wish = json!({"name": name, "role": "group-admin", "group": group});
    make(pool, &pool.admin_key(), wish)
}

fn user(name: &str) -> Value {
    json!({"name": name, "role": "user"})
}

/// Calls the admin API, and returns the status and the code of the error.
fn call(pool: &Pool, by: &str, method: &str, path: &str, body: &Value) -> (u16, String, String) {
    let (status, response) = admin(pool, by, method, path, body);
    let code = response["error"]["code"].as_str().unwrap_or_default();
    (status, code.to_owned(), response.to_string())
}

fn chat(pool: &Pool, key: &str, model: &str) -> u16 {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": model, "messages": messages}).to_string();
    let (status, _, _) = pool.request("POST", "/v1/chat/completions", &body, Some(key));
    status
}

fn group_of(pool: &Pool, key: &str) -> Value {
    let (_, text, _) = pool.request("GET", "/llm/me", "", Some(key));
    let me: Value = serde_json::from_str(&text).unwrap();
    me["group"]["path"].clone()
}

fn names(list: &Value, all: &str, field: &str) -> Vec<String> {
    let all = list[all].as_array().unwrap().iter();
    all.map(|one| one[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_group_admin_creates_and_limits_a_key_and_loads_within_the_limit_of_the_group() {
    let pool = pool();
    let (tutor, _) = group_admin(&pool, "tutor", "lab");
    let wish = json!({"name": "ann", "role": "user", "limits": {"requests_per_minute": 50}});
    let (ann, id) = make(&pool, &tutor, wish);
    assert_eq!(group_of(&pool, &ann), "physics/lab");
    assert_eq!(chat(&pool, &ann, "one"), 200);
    assert_eq!(chat(&pool, &ann, "two"), 404, "not a model of the group");
    let path = format!("/keys?id={id}");
    let limits = json!({"limits": {"requests_per_minute": 1}});
    let (status, changed) = admin(&pool, &tutor, "PATCH", &path, &limits);
    assert_eq!(status, 200, "{changed}");
    assert_eq!(changed["group"], "lab", "{changed}");
    let statuses = [chat(&pool, &ann, "one"), chat(&pool, &ann, "one")];
    assert!(statuses.contains(&429), "{statuses:?}");

    let load = |priority: u32| json!({"model": "one", "priority": priority, "lease": "1h"});
    let (status, loaded) = admin(&pool, &tutor, "POST", "/load", &load(1));
    assert_eq!(
        (status, &loaded["status"]),
        (200, &json!("ready")),
        "{loaded}"
    );
    let (status, code, text) = call(&pool, &tutor, "POST", "/load", &load(2));
    assert_eq!(
        (status, code.as_str()),
        (403, "priority_above_group"),
        "{text}"
    );
    assert!(text.contains("priority: 2 is above 1"), "{text}");
    for path in ["/load", "/unload"] {
        let (status, _, text) = call(&pool, &tutor, "POST", path, &json!({"model": "two"}));
        assert_eq!(status, 404, "{text}");
    }
    let unloaded = call(&pool, &tutor, "POST", "/unload", &json!({"model": "one"}));
    assert_eq!(unloaded.0, 200, "{unloaded:?}");

    for body in [
        json!({"name": "x", "role": "user", "group": "chemistry"}),
        json!({"name": "x", "role": "user", "group": "physics"}),
    ] {
        let (status, code, text) = call(&pool, &tutor, "POST", "/keys", &body);
        assert_eq!(
            (status, code.as_str()),
            (403, "beyond_own_rights"),
            "{text}"
        );
        assert!(text.contains("group: the key is not in lab"), "{text}");
    }
    let (_, keys) = admin(&pool, &tutor, "GET", "/keys", &Value::Null);
    assert_eq!(names(&keys, "keys", "name"), ["tutor", "ann"]);
    let (_, groups) = admin(&pool, &tutor, "GET", "/groups", &Value::Null);
    let paths = names(&groups, "groups", "path");
    assert_eq!(paths, ["physics/lab", "physics/lab/team"]);
    let (status, usage) = admin(&pool, &tutor, "GET", "/usage?group=team", &Value::Null);
    assert_eq!((status, &usage["devices"]), (200, &json!([])), "{usage}");
    for query in ["group=chemistry", "group=physics", "group=x%2Flab"] {
        let path = format!("/usage?{query}");
        let (status, code, text) = call(&pool, &tutor, "GET", &path, &Value::Null);
        assert_eq!(
            (status, code.as_str()),
            (403, "outside_own_group"),
            "{text}"
        );
    }
    let (status, _, text) = call(&pool, &tutor, "DELETE", &path, &Value::Null);
    assert_eq!(status, 200, "{text}");
    assert_eq!(chat(&pool, &ann, "one"), 401);
    let first = pool.admin_key();
    let (_, audit) = admin(
        &pool,
        &first,
        "GET",
        "/audit?path=/admin/load",
        &Value::Null,
    );
    let entries = audit["entries"].as_array().unwrap();
    assert!(entries.len() >= 3, "{audit}");
    assert!(
        entries.iter().all(|entry| entry["name"] == "tutor"),
        "{audit}"
    );
}

#[test]
fn a_group_admin_is_refused_what_its_role_does_not_allow() {
    let pool = pool();
    let first = pool.admin_key();
    let (tutor, own) = group_admin(&pool, "tutor", "lab");
    let (_, ann) = make(&pool, &tutor, user("ann"));
    let colleague = json!({"name": "boss", "role": "admin", "group": "lab"});
    let (_, boss) = make(&pool, &first, colleague);
    let (_, chem) = make(&pool, &first, user("chem"));
    let new = |role: &str, group: Option<&str>| json!({"name": "x", "role": role, "group": group, "models": [], "routes": []});
    let keys = |id: &str| format!("/keys?id={id}");
    let beyond = "beyond_own_rights";
    let only = "only_a_group_admin";
    let mut refused = vec![
        (
            "POST",
            "/keys".to_owned(),
            new("admin", Some("lab")),
            beyond,
        ),
        (
            "POST",
            "/keys".to_owned(),
            new("viewer", Some("lab")),
            beyond,
        ),
        ("POST", "/keys".to_owned(), new("group-admin", None), beyond),
        (
            "POST",
            "/keys".to_owned(),
            new("group-admin", Some("physics")),
            beyond,
        ),
        ("PATCH", keys(&ann), json!({"group": "chemistry"}), beyond),
        ("PATCH", keys(&ann), json!({"group": null}), beyond),
        ("PATCH", keys(&ann), json!({"models": ["two"]}), beyond),
        (
            "PATCH",
            keys(&ann),
            json!({"limits": {"requests_per_minute": 101}}),
            beyond,
        ),
        ("PATCH", keys(&ann), json!({"log_prompts": true}), only),
        ("PATCH", keys(&own), json!({"limits": {}}), beyond),
        ("PATCH", keys(&own), json!({"group": "physics"}), beyond),
        ("DELETE", keys(&own), Value::Null, beyond),
        ("DELETE", keys(&boss), Value::Null, beyond),
        ("PATCH", keys(&boss), json!({"name": "mine"}), beyond),
        ("DELETE", keys("k1"), Value::Null, beyond),
        ("DELETE", keys(&chem), Value::Null, beyond),
        (
            "PUT",
            "/groups/lab".to_owned(),
            json!({"priority_max": 9}),
            only,
        ),
        ("DELETE", "/groups/team".to_owned(), Value::Null, only),
        (
            "PATCH",
            "/models?model=one".to_owned(),
            json!({"priority": 0}),
            only,
        ),
        ("POST", "/cleanup".to_owned(), json!({}), only),
        ("POST", "/plan".to_owned(), json!({"model": "one"}), only),
        ("GET", "/config".to_owned(), Value::Null, only),
        ("GET", "/audit".to_owned(), Value::Null, only),
        (
            "POST",
            "/unload".to_owned(),
            json!({"model": "one", "now": true}),
            only,
        ),
    ];
    for field in [
        json!({"force": true}),
        json!({"gpus": 1}),
        json!({"replicas": 2}),
    ] {
        let mut body = field;
        body["model"] = json!("one");
        refused.push(("POST", "/load".to_owned(), body, only));
    }
    for (method, path, body, expected) in &refused {
        let (status, code, text) = call(&pool, &tutor, method, path, body);
        let place = format!("{method} {path} {body}: {text}");
        assert_eq!((status, code.as_str()), (403, *expected), "{place}");
        if *expected == only {
            assert!(text.contains("the role admin"), "{place}");
        }
    }
    // Its own key, and all others, are as they were.
    let (_, list) = admin(&pool, &first, "GET", "/keys", &Value::Null);
    let all = list["keys"].as_array().unwrap();
    let unlimited = all.iter().all(|key| key["limits"].is_null());
    assert!(unlimited && all.len() == 5, "{list}");
}

#[test]
fn hostile_names_and_groups_do_not_move_a_key_to_another_group() {
    let pool = pool();
    let (tutor, _) = group_admin(&pool, "tutor", "lab");
    // The group chemistry lists the name chem, and the id that the second key gets.
    for name in [
        "chem",
        "chemistry",
        "k4",
        "lab/../chemistry",
        "<b>",
        "physics/lab",
    ] {
        let (key, id) = make(&pool, &tutor, user(name));
        assert_eq!(group_of(&pool, &key), "physics/lab", "{name} {id}");
        let path = format!("/keys?id={id}");
        let (status, _, text) = call(&pool, &tutor, "PATCH", &path, &json!({"name": "chem"}));
        assert_eq!(status, 200, "{text}");
        assert_eq!(group_of(&pool, &key), "physics/lab", "{name} {id}");
    }
    for group in ["nowhere", "lab\n", "../lab", "physics/lab", "LAB", ""] {
        let body = json!({"name": "x", "role": "user", "group": group});
        let (status, _, text) = call(&pool, &tutor, "POST", "/keys", &body);
        assert_eq!(status, 400, "{group:?}: {text}");
    }
    for name in ["", "a\nb", "\u{1b}[2J", &"x".repeat(101)] {
        let (status, _, text) = call(&pool, &tutor, "POST", "/keys", &user(name));
        assert_eq!(status, 400, "{name:?}: {text}");
    }
}

#[test]
fn an_admin_of_a_parent_administers_the_groups_below_and_an_admin_of_two_groups_only_one() {
    let pool = pool();
    let (physics, _) = group_admin(&pool, "physicist", "physics");
    let (lab, lab_id) = group_admin(&pool, "tutor", "lab");
    // Listed by its id in the configuration, too.
    let (both, id) = group_admin(&pool, "both", "team");
    assert_eq!(id, "k4");
    let (_, chem) = make(&pool, &pool.admin_key(), user("chem"));
    let (_, ann) = make(&pool, &lab, user("ann"));
    let (_, eve) = make(&pool, &both, user("eve"));
    let rename = |by: &str, id: &str| {
        let path = format!("/keys?id={id}");
        call(&pool, by, "PATCH", &path, &json!({"name": "renamed"})).0
    };
    assert_eq!(rename(&physics, &ann), 200);
    assert_eq!(
        rename(&physics, &lab_id),
        200,
        "the administrator of a group below"
    );
    assert_eq!(rename(&lab, &eve), 200, "a key of the team");
    assert_eq!(rename(&both, &ann), 403);
    assert_eq!(rename(&both, &chem), 403, "chemistry lists its id");
    assert_eq!(rename(&physics, &chem), 403);
    let helper = json!({"name": "helper", "role": "group-admin", "group": "team"});
    let (helper, _) = make(&pool, &lab, helper);
    assert_eq!(rename(&helper, &eve), 200);
    assert_eq!(rename(&helper, &lab_id), 403);
    let load = json!({"model": "one", "priority": 2, "wait": false});
    assert_eq!(call(&pool, &physics, "POST", "/load", &load).0 / 100, 2);
    assert_eq!(call(&pool, &lab, "POST", "/load", &load).0, 403);
}

#[test]
fn a_group_admin_without_its_group_may_administer_nothing_until_the_group_is_back() {
    let pool = pool();
    let first = pool.admin_key();
    let group = json!({"parent": "physics", "priority_max": 1});
    let set = || call(&pool, &first, "PUT", "/groups/course", &group).0;
    assert_eq!(set(), 200);
    let (tutor, id) = group_admin(&pool, "tutor", "course");
    let (_, ann) = make(&pool, &tutor, user("ann"));
    let (status, removed) = admin(&pool, &first, "DELETE", "/groups/course", &Value::Null);
    assert_eq!(status, 200, "{removed}");
    let lost = format!("{id} (course), {ann} (course)");
    assert!(removed["warnings"].to_string().contains(&lost), "{removed}");
    let patch = format!("/keys?id={ann}");
    let load = json!({"model": "one"});
    for (method, path, body) in [
        ("GET", "/keys", Value::Null),
        ("GET", "/groups", Value::Null),
        ("GET", "/usage", Value::Null),
        ("POST", "/keys", user("bob")),
        ("PATCH", &patch, json!({"name": "x"})),
        ("DELETE", &patch, Value::Null),
        ("POST", "/load", load.clone()),
        ("POST", "/unload", load.clone()),
    ] {
        let (status, code, text) = call(&pool, &tutor, method, path, &body);
        assert_eq!((status, code.as_str()), (403, "no_group"), "{path}: {text}");
    }
    assert_eq!(set(), 200);
    assert_eq!(call(&pool, &tutor, "GET", "/keys", &Value::Null).0, 200);
    assert_eq!(call(&pool, &tutor, "POST", "/load", &load).0, 200);
}

#[test]
fn a_model_above_the_limit_of_the_group_is_neither_loaded_nor_unloaded_by_its_admin() {
    let pool = pool();
    let (tutor, _) = group_admin(&pool, "tutor", "lab");
    let (plain, _) = group_admin(&pool, "plain", "physics");
    let first = pool.admin_key();
    let hot = json!({"model": "hot", "priority": 2});
    let (status, loaded) = admin(&pool, &first, "POST", "/load", &hot);
    assert_eq!(status, 200, "{loaded}");
    for (path, body) in [
        ("/unload", json!({"model": "hot"})),
        ("/load", json!({"model": "hot", "priority": 0})),
        ("/load", json!({"model": "hot", "wait": false})),
    ] {
        let (status, code, text) = call(&pool, &tutor, "POST", path, &body);
        assert_eq!(
            (status, code.as_str()),
            (403, "model_above_group"),
            "{text}"
        );
        assert!(text.contains("its priority is 2"), "{text}");
    }
    let unload = json!({"model": "hot"});
    let (status, _, text) = call(&pool, &plain, "POST", "/unload", &unload);
    assert_eq!(status, 200, "its group may set 3: {text}");
}

#[test]
fn an_unload_by_a_group_admin_waits_for_the_requests_of_other_groups() {
    // An unload by an administrator of the pool would cut the response after this time.
    let drain = [("MODEL_POOL__EVENING__DRAIN", "1s")];
    let model = stub("one", &["--tokens", "60", "--token-ms", "50"]);
    let pool = Pool::with_env(&[model], CONFIG, &drain);
    let (tutor, _) = group_admin(&pool, "tutor", "lab");
    let (chem, _) = make(&pool, &pool.admin_key(), user("chem"));
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": "one", "stream": true, "max_tokens": 60, "messages": messages});
    let bearer = format!("Bearer {chem}");
    let lines = [("Authorization", bearer.as_str())];
    let stream = pool.stream_with("/v1/chat/completions", &body.to_string(), &lines);
    wait_for("the response", || stream.text().contains("content"));
    let (status, _, text) = call(&pool, &tutor, "POST", "/unload", &json!({"model": "one"}));
    assert_eq!(status, 200, "{text}");
    let response = stream.whole();
    assert!(response.contains("[DONE]"), "{response}");
    assert!(!response.contains("unloaded"), "{response}");
}
