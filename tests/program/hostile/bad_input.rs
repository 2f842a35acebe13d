//! Models with errors in their files that only the engine's start reveals.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::scene::{Scene, model};
use support::service::wait_for;
use support::stub::stub_engine;

/// A model with this program.
fn program(path: &str, flags: &[&str]) -> Scene {
    Scene::played(|machine, mark| model(machine, "bad", path, flags, "", mark))
}

fn quarantined_at_once(scene: &Scene, label: &str) {
    scene
        .ask()
        .is(503, "quarantined", &["after 1 failed load", "(L3)"]);
    scene.counted(label);
    let (_, models) = scene.admin("GET", "/llm/admin/models", &Value::Null);
    assert!(models.to_string().contains("quarantined"), "{models}");
}

#[test]
fn a_program_that_is_not_installed_is_reported_with_what_to_install() {
    let scene = program("llama-server-of-nobody/llama-server", &[]);
    let words = ["llama-server", "it is not installed", "llama.cpp"];
    scene.ask().is(503, "load_failed", &words);
    quarantined_at_once(&scene, "binary_missing");
    scene.end();
}

#[test]
fn a_program_that_is_not_executable_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("engine");
    std::fs::write(&file, "#!/bin/sh\n").expect("written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("set");
    let scene = program(&file.display().to_string(), &[]);
    scene.ask().is(503, "load_failed", &["chmod +x"]);
    quarantined_at_once(&scene, "not_executable");
    scene.end();
}

#[test]
fn wrong_flags_are_reported_in_the_engines_words_until_an_administrator_retries() {
    let scene = Scene::new(&["--no-such-flag"]);
    let words = [
        "unknown flag --no-such-flag",
        "engine_config",
        "wrong arguments",
    ];
    scene.ask().is(503, "load_failed", &words);
    quarantined_at_once(&scene, "wrong_arguments");
    let (status, response) = scene.admin("POST", "/llm/admin/load", &json!({"model": "bad"}));
    assert_eq!(
        status, 409,
        "it was tried again, and failed again: {response}"
    );
    wait_for("the second failure in the history", || {
        scene.history("load_failed").len() == 2
    });
    scene.end();
}

#[test]
fn secrets_printed_by_an_engine_do_not_reach_clients_logs_or_the_history() {
    let words = "401 with hf_abcdefghijklmnopqrstuv and Bearer of-the-lab-123";
    let scene = Scene::new(&["--fail-load", words]);
    let response = scene.ask();
    response.is(
        503,
        "load_failed",
        &["401 with [masked] and Bearer [masked]"],
    );
    let (_, log) = scene.admin("GET", "/llm/admin/logs?model=bad", &Value::Null);
    scene.told("load_failed", "[masked]");
    let history = scene.history("load_failed").concat();
    let all = format!("{response:?}{log}{history}{}", scene.pool().log());
    assert!(
        !all.contains("hf_abc") && !all.contains("of-the-lab"),
        "{all}"
    );
    scene.end();
}

#[test]
fn weights_replaced_during_a_load_are_noticed_at_the_next_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("model.bin");
    std::fs::write(&weights, "the old ones").expect("written");
    let path = format!("  model_path: {weights:?}\n  type:");
    let scene = Scene::played(|machine, mark| {
        let engine = stub_engine().display().to_string();
        let (name, text) = model(machine, "bad", &engine, &[], "", mark);
        (name, text.replacen("  type:", &path, 1))
    });
    scene.load();
    std::fs::write(&weights, "others, of another size").expect("written");
    assert_eq!(scene.ask().status, 200, "what is loaded serves on");
    scene.unload();
    assert_eq!(scene.history("set"), Vec::<String>::new());
    assert_eq!(scene.ask().status, 200);
    scene.told(
        "set",
        "measurements of the old weights no longer count (M1)",
    );
    scene.end();
}
