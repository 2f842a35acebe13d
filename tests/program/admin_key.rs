//! `model-pool admin-key new`: restores access after the admin key is lost, for users who may write to the data folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};
use support::net::stub;
use support::service::{Pool, wait_for};

use super::commands::{CommandOutput, model_pool};

fn new_key(pool: &Pool, words: &[&str]) -> CommandOutput {
    let config = pool.folder().join("config.yaml").display().to_string();
    let words: Vec<&str> = ["admin-key", "new", "--config", &config]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    model_pool(pool.folder(), &words, &[])
}

fn status(pool: &Pool, key: &str) -> u16 {
    pool.request("GET", "/llm/admin/keys", "", Some(key)).0
}

fn made(pool: &Pool, key: &str, name: &str) -> String {
    let body = json!({"name": name, "role": "admin"}).to_string();
    let (status, text, _) = pool.request("POST", "/llm/admin/keys", &body, Some(key));
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).expect("JSON");
    response["key"].as_str().expect("a key").to_owned()
}

#[test]
fn a_running_service_accepts_the_new_key_and_refuses_the_lost_one() {
    let pool = Pool::with_models(&[stub("small", &[])], "");
    let lost = pool.admin_key();
    let own = made(&pool, &lost, "ops");
    let ended = new_key(&pool, &[]).done();
    assert_eq!(ended.stdout, "", "the key is in the file only");
    for words in [
        "admin.key, mode 0600",
        "revoked: k1 (first admin key)",
        &format!("process {}", pool.pid()),
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
    let new = pool.admin_key();
    assert_ne!(new, lost);
    assert!(!ended.stderr.contains(&new[9..]), "{ended:?}");
    let data = fs::metadata(pool.data().join("admin.key")).expect("there");
    assert_eq!(data.permissions().mode() & 0o777, 0o600);
    wait_for("the service to know the new key", || {
        status(&pool, &new) == 200
    });
    assert_eq!(status(&pool, &lost), 403);
    assert_eq!(status(&pool, &own), 200, "what people created stays");
    let (_, audit, _) = pool.request("GET", "/llm/admin/audit", "", Some(&new));
    assert!(audit.contains("model-pool admin-key new"), "{audit}");
    pool.wait_for_log("key changes made by a command");

    let printed = new_key(&pool, &["--print"]).done();
    let third = pool.admin_key();
    assert_eq!(printed.stdout, format!("{third}\n"), "alone, for a script");
    wait_for("the third key to count", || status(&pool, &third) == 200);
    assert_eq!(status(&pool, &new), 403);
    let kept = new_key(&pool, &["--keep-old"]).done();
    assert!(
        kept.stderr.contains("all other keys stay valid"),
        "{kept:?}"
    );
    let fourth = pool.admin_key();
    wait_for("the fourth key to count", || status(&pool, &fourth) == 200);
    assert_eq!(status(&pool, &third), 200);
}

#[test]
fn without_a_service_the_next_start_accepts_the_key_even_if_its_file_was_deleted() {
    let mut pool = Pool::with_models(&[stub("small", &[])], "");
    let lost = pool.admin_key();
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)), "it stops");
    fs::remove_file(pool.data().join("admin.key")).expect("removed");
    let ended = new_key(&pool, &[]).done();
    assert!(ended.stderr.contains("no service is running"), "{ended:?}");
    pool.restart();
    let new = pool.admin_key();
    assert_eq!((status(&pool, &new), status(&pool, &lost)), (200, 403));
}

#[test]
fn a_key_created_before_the_first_start_is_the_admin_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let printed = model_pool(folder.path(), &["admin-key", "new", "--print"], &[]).done();
    let file = fs::read_to_string(folder.path().join("data/admin.key")).expect("written");
    assert_eq!(printed.stdout, file);
    assert!(
        printed.stderr.contains("no generated key to revoke"),
        "{printed:?}"
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("data"), "a file").expect("written");
    model_pool(folder.path(), &["admin-key", "new"], &[]).refused(&[
        "cannot write the key file data/admin.key",
        "auth.admin_key_file",
    ]);
}

#[test]
fn ones_own_key_is_revoked_only_with_confirmation() {
    let pool = Pool::with_models(&[stub("small", &[])], "");
    let first = pool.admin_key();
    let own = made(&pool, &first, "ops");
    let revoke = |key: &str, query: &str| {
        let path = format!("/llm/admin/keys?{query}");
        let (status, text, _) = pool.request("DELETE", &path, "", Some(key));
        (status, serde_json::from_str::<Value>(&text).expect("JSON"))
    };
    let (status, response) = revoke(&own, "id=k2");
    assert_eq!(
        (status, &response["error"]["code"]),
        (409, &json!("own_key")),
        "{response}"
    );
    let message = response["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("k1 (first admin key)") && message.contains("confirm=true"),
        "{message}"
    );
    assert_eq!(revoke(&own, "id=k2&confirm=true").0, 200);
    let (status, response) = revoke(&first, "id=k1&confirm=true");
    assert_eq!(
        (status, &response["error"]["code"]),
        (409, &json!("last_admin_key")),
        "{response}"
    );
    let message = response["error"]["message"].as_str().expect("a message");
    assert!(message.contains("model-pool admin-key new"), "{message}");
}
