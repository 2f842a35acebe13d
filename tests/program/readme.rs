//! The README's commands and examples, run on a clone.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Parser;
use model_pool::cli::Cli;
use support::service::Pool;

use super::commands::{CommandOutput, model_pool};
use super::guides::{blocks, commands};

fn readme() -> String {
    fs::read_to_string(support::root().join("README.md")).expect("the README")
}

/// The text below a heading.
fn section(heading: &str) -> String {
    let readme = readme();
    let (_, rest) = readme
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("the README has no section {heading}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

fn first(words: &[String]) -> &str {
    words.first().map_or("", String::as_str)
}

/// The commands of a section that call this program.
fn calls(heading: &str, program: &str) -> Vec<Vec<String>> {
    let mut calls = commands(&section(heading));
    calls.retain(|words| first(words) == program);
    calls
}

/// A pool started as in the README: the clone's three models in 64 MiB.
fn clone() -> Pool {
    let models = support::root().join("config/models");
    let files = fs::read_dir(models).expect("the models of the clone");
    let files = files.map(|file| file.expect("an entry").path());
    let demo = support::root().join("demo").display().to_string();
    let files: Vec<(String, String)> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "yaml"))
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a model");
            let name = file.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), text.replace("../../demo", &demo))
        })
        .collect();
    assert_eq!(files.len(), 3);
    let config = "inventory: {provider: host, host_memory: 64MiB}\n";
    let pool = Pool::with_devices(&files, config);
    support::service::wait_for("tiny-guide is loaded at the start", || {
        let (_, models) = pool.admin(
            "GET",
            "/llm/admin/models?model=tiny-guide",
            &serde_json::Value::Null,
        );
        models.to_string().contains("\"ready\"")
    });
    pool
}

/// Runs an unchanged command of the README with this pool.
fn typed(pool: &Pool, folder: &Path, words: &[String]) -> CommandOutput {
    let program = support::profile_dir().join(first(words));
    let mut command = Command::new(program);
    command
        .args(&words[1..])
        .current_dir(folder)
        .env("MODEL_POOL_SERVER", format!("http://{}", pool.address()))
        .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
        .stdin(Stdio::null());
    CommandOutput::new(command.output().expect("it runs"))
}

#[test]
fn every_command_in_the_readme_parses() {
    let mut seen = 0;
    for words in commands(&readme()) {
        match first(&words) {
            "model-pool" => {
                seen += 1;
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
            }
            "admin-client" => seen += 1,
            "cargo" | "curl" | "export" => {}
            _ => panic!("{words:?} is a command that no test knows"),
        }
    }
    assert!(seen > 15, "{seen} commands were found");
}

#[test]
fn readme_programs_are_called_only_after_the_path_is_set() {
    let typed = commands(&readme());
    let is_path = |words: &Vec<String>| first(words) == "export" && words[1].starts_with("PATH=");
    let path = typed.iter().position(is_path).expect("the PATH is set");
    let called = |words: &Vec<String>| matches!(first(words), "model-pool" | "admin-client");
    let call = typed.iter().position(called).expect("a call");
    assert!(
        path < call,
        "{:?} stands before the PATH is set",
        typed[call]
    );
    let profiles = typed.iter().filter(|words| first(words) == "cargo");
    for words in profiles {
        assert!(
            !words.contains(&"--release".to_owned()),
            "a second build: {words:?}"
        );
    }
}

#[test]
fn the_first_conversation_and_the_first_session_of_the_readme_work_as_typed() {
    let pool = clone();
    let folder = tempfile::tempdir().expect("a folder");
    let mut responded = 0;
    for words in calls("A first conversation", "model-pool") {
        let ended = typed(&pool, folder.path(), &words).done();
        responded += usize::from(words[1] == "run" && ended.stdout.contains("loaded"));
    }
    assert_eq!(responded, 1, "tiny-guide knows what keep-hot is");
    let session = calls("A first session with admin-client", "admin-client");
    assert!(session.len() >= 10, "{session:?}");
    for words in session {
        typed(&pool, folder.path(), &words).done();
    }
}

#[test]
fn the_first_own_model_of_the_readme_is_read_reloaded_and_responds() {
    let pool = clone();
    let yaml = blocks(&section("Your first own model"), "yaml");
    assert_eq!(yaml.len(), 2, "one for the CPU and one for a GPU");
    // The clone's weights replace a downloaded file.
    let weights = support::root().join("demo/models/tiny-chat");
    let path = yaml[0]
        .lines()
        .find_map(|line| line.trim().strip_prefix("model_path: "));
    let path = path.expect("a path");
    let text = yaml[0].replace(path, &weights.display().to_string());
    let text = text.replace("max_total_tokens: 4096", "max_total_tokens: 512");
    let file = pool.models().join("my-model.yaml");
    fs::write(&file, text).expect("written");
    let folder = pool.folder();
    for words in commands(&section("Your first own model")) {
        let mut words = words;
        for word in &mut words {
            *word = word.replace("config/models/my-model.yaml", &file.display().to_string());
        }
        if let Some("check" | "reload" | "run") = words.get(1).map(String::as_str) {
            typed(&pool, folder, &words).done();
        }
    }
    // The other file requires GPUs.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("gpu.yaml"), &yaml[1]).expect("written");
    let gpus = [
        ("MODEL_POOL__INVENTORY__PROVIDER", "fixed"),
        (
            "MODEL_POOL__INVENTORY__DEVICES",
            "[{name: gpu0, memory: 80GiB}]",
        ),
        ("MODEL_POOL__SOURCES__OFFLINE", "true"),
    ];
    let checked = model_pool(folder.path(), &["check", "gpu.yaml"], &gpus);
    assert!(!checked.stderr.contains("gpu.yaml"), "{checked:?}");
}
