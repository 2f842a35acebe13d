//! `model-pool batch` and `admin-client batches` with a real pool.

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::service::Pool;

use super::super::admin_client::client;
use super::super::commands::{CommandOutput, model_pool};
use super::{ended, line, lines, model};

fn batch(folder: &Path, pool: &Pool, words: &[&str]) -> CommandOutput {
    let server = format!("http://{}", pool.address());
    let mut all = vec!["batch"];
    all.extend(words);
    model_pool(folder, &all, &[("MODEL_POOL_SERVER", &server)])
}

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the results");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn the_command_runs_a_file_and_writes_responses_and_errors_next_to_it() {
    let pool = Pool::with_models(&[model("writer", 4, 1, &["--tokens", "2"])], "");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.jsonl");
    let requests = (0..5).map(|nth| line(&nth.to_string(), "writer"));
    fs::write(&file, lines(requests)).expect("written");
    let done = batch(folder.path(), &pool, &["prompts.jsonl"]);
    assert_eq!(done.status, 0, "{done:?}");
    let output = folder.path().join("prompts.jsonl.output.jsonl");
    assert_eq!(read(&output).len(), 5);
    let again = batch(folder.path(), &pool, &["prompts.jsonl"]);
    assert_eq!(again.status, 2, "{again:?}");
    assert!(again.stderr.contains("--force"), "{again:?}");
    fs::write(&file, lines([line("1", "nothing-like-it")])).expect("written");
    let failed = batch(folder.path(), &pool, &["prompts.jsonl", "--force"]);
    assert_eq!(failed.status, 1, "{failed:?}");
    let errors = folder.path().join("prompts.jsonl.errors.jsonl");
    assert_eq!(read(&errors)[0]["response"]["status_code"], 404);
    fs::write(&file, "{\n").expect("written");
    let wrong = batch(folder.path(), &pool, &["prompts.jsonl", "--force"]);
    assert!(
        wrong.status != 0 && wrong.stderr.contains("line 1"),
        "{wrong:?}"
    );
}

#[test]
fn a_batch_is_left_resumed_paused_ordered_and_cancelled_by_commands() {
    let flags = ["--tokens", "20", "--token-ms", "20"];
    let pool = Pool::with_models(&[model("writer", 1, 1, &flags)], "");
    let folder = tempfile::tempdir().expect("a folder");
    let requests = (0..4).map(|nth| line(&nth.to_string(), "writer"));
    fs::write(folder.path().join("p.jsonl"), lines(requests)).expect("written");
    let left = batch(folder.path(), &pool, &["p.jsonl", "--no-wait"]).done();
    let id = left
        .stdout
        .split_whitespace()
        .find(|word| word.starts_with("batch_"));
    let id = id.expect("the id").to_owned();
    let list = client(&pool, &["batches"]);
    assert!(list.status == 0 && list.stdout.contains(&id), "{list:?}");
    for words in [
        ["batches", "pause", &id].as_slice(),
        &["batches", "resume", &id],
        &["batches", "rank", &id, "10"],
    ] {
        let done = client(&pool, words);
        assert_eq!(done.status, 0, "{words:?}: {done:?}");
    }
    batch(folder.path(), &pool, &["p.jsonl", "--resume", &id]).done();
    assert_eq!(read(&folder.path().join("p.jsonl.output.jsonl")).len(), 4);
    let late = client(&pool, &["batches", "cancel", &id]);
    assert_eq!(late.status, 1, "{late:?}");
    let other = batch(folder.path(), &pool, &["p.jsonl", "--no-wait"]).done();
    let other = other
        .stdout
        .split_whitespace()
        .find(|word| word.starts_with("batch_"));
    let other = other.expect("the id").to_owned();
    assert_eq!(client(&pool, &["batches", "cancel", &other]).status, 0);
    ended(&pool, &other, "cancelled");
}
