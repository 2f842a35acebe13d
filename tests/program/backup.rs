//! `model-pool backup` and `model-pool backup restore` with the real program: administrators' settings survive the loss of the data
//! folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::net::{chat, stub};
use support::service::{Pool, wait_for};

use super::commands::{CommandOutput, model_pool};

fn admin(pool: &Pool, key: &str, method: &str, path: &str, body: &Value) -> Value {
    let path = format!("/llm/admin{path}");
    let (status, response) = pool.call(Some(key), method, &path, body);
    assert_eq!(status, 200, "{method} {path}: {response}");
    response
}

fn run(pool: &Pool, words: &[&str]) -> CommandOutput {
    let config = pool.folder().join("config.yaml").display().to_string();
    let words: Vec<&str> = words.iter().copied().chain(["--config", &config]).collect();
    model_pool(pool.folder(), &words, &[])
}

#[test]
fn a_pool_that_lost_its_folder_is_restored_from_a_backup_taken_while_running() {
    let files = [stub("small", &[]), stub("other", &[])];
    let mut pool = Pool::with_models(&files, "auth: {inference: key}\n");
    let key = pool.admin_key();
    let made = admin(
        &pool,
        &key,
        "POST",
        "/keys",
        &json!({"name": "course", "role": "user"}),
    );
    let user = made["key"].as_str().expect("a key").to_owned();
    admin(
        &pool,
        &key,
        "PATCH",
        "/models?model=small",
        &json!({"priority": 1, "keep_hot": "7m"}),
    );
    let document = json!({"engine_config": {"model_id": "lab/added", "type": "RemoteEngine", "url": "http://127.0.0.1:9/v1"}});
    admin(&pool, &key, "PUT", "/models", &document);
    admin(
        &pool,
        &key,
        "POST",
        "/devices/cordon",
        &json!({"device": "gpu0", "reason": "new fans"}),
    );
    admin(
        &pool,
        &key,
        "POST",
        "/devices/uncordon",
        &json!({"device": "gpu0"}),
    );
    let (status, text, _) = pool.request(
        "POST",
        "/v1/chat/completions",
        &chat("small", false),
        Some(&user),
    );
    assert_eq!(status, 200, "{text}");
    wait_for("the load to be in the history", || {
        admin(&pool, &key, "GET", "/events?model=small", &Value::Null)
            .to_string()
            .contains("ready")
    });
    let events = admin(&pool, &key, "GET", "/events?model=small", &Value::Null);
    let files_before = fs::read_dir(pool.folder()).unwrap().count();

    let said = run(&pool, &["backup", "copy.db"]).done().stdout;
    let copy = pool.folder().join("copy.db");
    let data = fs::metadata(&copy).expect("written");
    assert_eq!(data.permissions().mode() & 0o777, 0o600);
    for words in [
        &format!("({} bytes), checked", data.len()),
        "2 keys, 1 overridden priority or keep-hot time",
        "1 registered model",
        "not in it:",
        "config.yaml",
        "admin.key",
        "weights",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(
        fs::read_dir(pool.folder()).unwrap().count(),
        files_before + 1
    );
    run(&pool, &["backup", "copy.db"]).refused(&["copy.db exists", "--force"]);
    run(&pool, &["backup", "copy.db", "--force"]).done();
    run(&pool, &["backup", "restore", "copy.db"]).refused(&[
        "a service uses it",
        &format!("process {}", pool.pid()),
        "stop it first",
    ]);

    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)), "it stops");
    fs::rename(pool.data(), pool.folder().join("lost")).unwrap();
    let said = run(&pool, &["backup", "restore", "copy.db"]).done().stdout;
    assert!(said.contains("there is no key file"), "{said}");
    assert!(!said.contains("the former database"), "{said}");
    pool.restart();

    let small = admin(&pool, &key, "GET", "/models?model=small", &Value::Null);
    let small = &small["models"][0];
    assert_eq!(small["priority"], 1, "{small}");
    let added = admin(&pool, &key, "GET", "/models?model=lab/added", &Value::Null);
    assert_eq!(added["models"][0]["model"], "lab/added", "{added}");
    let restored = admin(&pool, &key, "GET", "/events?model=small", &Value::Null);
    let first = |events: &Value| events["events"][0].clone();
    assert_eq!(first(&restored), first(&events), "the history is the same");
    let (status, text, _) = pool.request(
        "POST",
        "/v1/chat/completions",
        &chat("small", false),
        Some(&user),
    );
    assert_eq!(status, 200, "the user's key is valid: {text}");
    assert!(
        !pool.data().join("admin.key").exists(),
        "no further key was made"
    );

    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)), "it stops");
    let said = run(&pool, &["backup", "restore", "copy.db"]).done().stdout;
    assert!(said.contains("the former database is"), "{said}");
    pool.restart();
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing_behind() {
    let pool = Pool::with_models(&[stub("small", &[])], "");
    let config = pool.folder().join("config.yaml");
    // A limit on file sizes acts like a disk that fills up in the middle of a file.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited, "sh"])
        .arg(support::program())
        .args(["backup", "copy.db", "--config"])
        .arg(&config)
        .current_dir(pool.folder())
        .output();
    let refused = CommandOutput::new(output.expect("it runs"));
    refused.refused(&["cannot write copy.db", "free of"]);
    let left = fs::read_dir(pool.folder()).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with("copy.db")),
        "{left:?}"
    );
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("small", false)).0,
        200
    );
}

#[test]
fn a_backup_needs_a_name_and_a_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = model_pool(folder.path(), &["backup"], &[]);
    assert_eq!(ended.status, 2, "{ended:?}");
    model_pool(folder.path(), &["backup", "copy.db"], &[])
        .refused(&["cannot find the database data/model-pool.db", "--config"]);
}
