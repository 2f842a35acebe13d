//! Effects of a cordon or a priority, and a model as a file, with the real program over HTTP and from the command line. Asking
//! changes nothing.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const TWO_DEVICES: &str = "inventory: {provider: fixed, headroom: 0%, devices: [{name: d0, memory: 16GiB}, {name: d1, memory: 16GiB}]}\n";

fn stub(name: &str, pool_config: &str) -> (String, String) {
    support::stub::model(name, &[], pool_config)
}

/// State of a model, and the device of its replica.
fn model(pool: &Pool, name: &str) -> (String, String) {
    let path = format!("/llm/admin/models?model={name}");
    let (_, list) = pool.admin("GET", &path, &Value::Null);
    let model = &list["models"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let device = &model["replicas"][0]["devices"][0]["device"];
    (text(&model["state"]), text(device))
}

fn client(pool: &Pool, words: &[&str]) -> (i32, String) {
    let output = Command::new(support::profile_dir().join("admin-client"))
        .args(words)
        .env("MODEL_POOL_SERVER", format!("http://{}", pool.address()))
        .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text + &errors)
}

#[test]
fn a_cordon_preview_lists_what_moves_and_what_does_not_fit() {
    let files = [
        stub("hot", "memory_gib: 10, priority: 2"),
        stub("wide", "memory_gib: 12"),
    ];
    let pool = Pool::with_devices(&files, TWO_DEVICES);
    wait_for("the always-hot model", || model(&pool, "hot").0 == "ready");
    let load = json!({"model": "wide"});
    assert_eq!(pool.admin("POST", "/llm/admin/load", &load).0, 200);
    let (before, other) = (model(&pool, "hot"), model(&pool, "wide"));
    let assumed = json!({"cordoned": [before.1]});
    let (status, response) = pool.admin("POST", "/llm/admin/what-if", &assumed);
    assert_eq!(status, 200, "{response}");
    // The always-hot model moves to the other device, and the model of priority 0 there makes room for it.
    let names = |list: &Value| -> Vec<String> {
        let all = list.as_array().unwrap().iter();
        all.map(|model| model["model"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut leaving = names(&response["leaving"]);
    leaving.sort();
    assert_eq!(leaving, ["hot", "wide"], "{response}");
    assert_eq!(names(&response["loads"]), ["hot"], "{response}");
    assert_eq!(response["loads"][0]["devices"][0]["device"], json!(other.1));
    assert_eq!(names(&response["next"]), ["wide"], "{response}");
    assert_eq!(response["next"][0]["feasible"], false, "{response}");
    assert_eq!(
        (model(&pool, "hot"), model(&pool, "wide")),
        (before.clone(), other)
    );

    let (status, text) = client(&pool, &["plan", "--if-cordoned", &before.1]);
    assert_eq!(status, 0, "{text}");
    for part in [
        "were cordoned:",
        "leaves",
        "of hot",
        "cannot be loaded now",
        "Nothing was changed.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, text) = client(&pool, &["plan", "--if-priority", "wide=2"]);
    assert!(
        status == 0 && text.contains("no replica would leave"),
        "{text}"
    );
    assert_eq!(
        client(&pool, &["plan", "wide", "--if-priority", "wide=2"]).0,
        2
    );
    assert_eq!(client(&pool, &["plan", "--if-priority", "wide"]).0, 2);
    for (body, param) in [
        (json!({"cordoned": ["no-such-device"]}), "cordoned"),
        (json!({"priorities": {"no-such-model": 1}}), "priorities"),
        (json!({}), "cordoned"),
    ] {
        let (status, response) = pool.admin("POST", "/llm/admin/what-if", &body);
        assert!(status == 400 || status == 404, "{response}");
        assert_eq!(response["error"]["param"], param, "{response}");
    }
}

#[test]
fn a_second_model_is_created_from_the_file_of_a_first() {
    let pool = Pool::with_devices(
        &[stub("first", "memory_gib: 2, aliases: [eins]")],
        TWO_DEVICES,
    );
    let change = json!({"priority": 1, "keep_hot": "30m"});
    let (status, response) = pool.admin("PATCH", "/llm/admin/models?model=first", &change);
    assert_eq!(status, 200, "{response}");
    let (status, text) = client(&pool, &["show", "first", "--as-file"]);
    assert_eq!(status, 0, "{text}");
    let second = text.replace("model_id: first", "model_id: second");
    let second = second.replace("eins", "zwei");
    assert_ne!(second, text);
    fs::write(pool.models().join("second.yaml"), second).unwrap();
    let (status, response) = pool.admin("POST", "/llm/admin/reload", &json!({}));
    assert_eq!(status, 200, "{response}");
    let path = "/llm/admin/models?model=second";
    let (_, list) = pool.admin("GET", path, &Value::Null);
    let model = &list["models"][0];
    assert_eq!(
        (
            &model["priority"],
            &model["priority_from"],
            &model["keep_hot_ms"],
            &model["aliases"]
        ),
        (
            &json!(1),
            &json!("file"),
            &json!(1_800_000),
            &json!(["zwei"])
        ),
        "{model}"
    );
    assert_eq!(
        pool.admin("POST", "/llm/admin/load", &json!({"model": "second"}))
            .0,
        200
    );
}
