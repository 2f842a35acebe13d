//! Coding agents as people start them, against the real program with a scripted engine: each edits a file, continues its
//! conversation, and shows an error. `.ci/clients` installs pinned versions; they know no other address than the pool's.
//! docs/guides/clients.md has a table of their features.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::service::Pool;

use super::client_libraries::{open_pool, pool};
use super::clients::{brought, user_key};
use super::table;

const LIMIT: Duration = Duration::from_secs(120);
const THOUGHT: &str = "I look.";
const SCHEMA: &str = r#"{"type":"object","properties":{"city":{"type":"string"},"degrees":{"type":"integer"}},"required":["city","degrees"],"additionalProperties":false}"#;
const UNKNOWN: &str = "wirter";

/// An agent's home, a folder with a file that it works on, and a pool.
struct Workplace {
    folder: tempfile::TempDir,
    pool: Pool,
    key: String,
}

impl Workplace {
    fn new() -> Workplace {
        Workplace::with(pool)
    }

    /// A pool with Ollama's API and without keys for local clients.
    fn open() -> Workplace {
        Workplace::with(open_pool)
    }

    fn with(pool: impl FnOnce(&Path) -> Pool) -> Workplace {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let pool = pool(&folder.path().join("turns.json"));
        let key = user_key(&pool);
        Workplace { folder, pool, key }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn notes(&self) -> PathBuf {
        self.folder.path().join("work/notes.txt")
    }

    fn url(&self) -> String {
        format!("http://{}", self.pool.address())
    }

    /// Sets the engine's further behaviour.
    fn turns(&self, turns: &Value) {
        let file = self.folder.path().join("turns.json");
        fs::write(file, turns.to_string()).unwrap();
    }

    /// The agent's output, and true if it succeeded.
    fn run(&self, program: &Path, words: &[&str], env: &[(&str, &str)]) -> (bool, String) {
        let output = self.folder.path().join("output");
        let into = fs::File::create(&output).unwrap();
        let mut child = Command::new(program)
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("POOL_KEY", &self.key)
            .env("NO_COLOR", "1")
            .envs(env.iter().copied())
            .current_dir(self.folder.path().join("work"))
            .stdin(Stdio::null())
            .stderr(into.try_clone().unwrap())
            .stdout(into)
            .spawn()
            .unwrap();
        let began = std::time::SystemTime::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed().unwrap_or_default() > LIMIT {
                let _ = child.kill();
            }
            std::thread::park_timeout(Duration::from_millis(10));
        };
        let text = String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
        println!("$ {} {}\n{text}", program.display(), words.join(" "));
        (status.success(), text)
    }
}

/// The lines that are JSON.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[track_caller]
fn has(text: &str, words: &str) {
    assert!(text.contains(words), "no {words:?} in: {text}");
}

/// A row of the table with all features that were tested.
fn row(client: &str, wire: &str, columns: &[&str]) {
    let mut row = json!({"client": client, "wire": wire});
    for column in columns {
        row[*column] = json!("yes");
    }
    table::check(&format!("row: {row}"));
}

fn reads(call: &str, field: &str, file: &Path) -> Value {
    json!({"turns": [
        {"call": call, "arguments": {field: file.display().to_string()}},
        {"say": "There are five apples."}
    ], "plain": "Apples"})
}

#[test]
fn codex_edits_a_file_with_apply_patch_and_continues() {
    let Some(vendor) = brought("node_modules/@openai/codex-linux-x64/vendor") else {
        return;
    };
    let program = vendor.join("x86_64-unknown-linux-musl/bin/codex");
    let place = Workplace::new();
    let config = format!(
        "model = \"gpt-5.5\"\nmodel_provider = \"pool\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\nmodel_reasoning_effort = \"low\"\nmodel_reasoning_summary = \"detailed\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n[feedback]\nenabled = false\n[model_providers.pool]\nname = \"pool\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\nenv_key = \"POOL_KEY\"\n",
        place.url()
    );
    fs::create_dir(place.home().join(".codex")).unwrap();
    fs::write(place.home().join(".codex/config.toml"), config).unwrap();
    fs::write(place.notes(), "one\ntwo\n").unwrap();
    let patch =
        "*** Begin Patch\n*** Update File: notes.txt\n@@\n one\n-two\n+three\n*** End Patch\n";
    let done = json!({"say": "The file is changed."});
    place.turns(&json!({"turns": [{"call": "apply_patch", "arguments": {"input": patch}}, done]}));
    let exec = |words: &[&str]| {
        let first = ["exec", "--skip-git-repo-check"];
        place.run(&program, &[&first, words].concat(), &[])
    };
    let (is_done, text) = exec(&["--json", "Change two to three in notes.txt"]);
    assert!(is_done, "{text}");
    assert_eq!(fs::read_to_string(place.notes()).unwrap(), "one\nthree\n");
    let items: Vec<Value> = events(&text)
        .into_iter()
        .filter(|event| event["type"] == "item.completed")
        .map(|event| event["item"].clone())
        .collect();
    let is_there = |kind: &str, text: &Value| {
        items
            .iter()
            .any(|item| item["type"] == kind && (text.is_null() || item["text"] == *text))
    };
    assert!(is_there("file_change", &Value::Null), "{items:?}");
    assert!(is_there("agent_message", &done["say"]), "{items:?}");
    assert!(is_there("reasoning", &json!(THOUGHT)), "{items:?}");
    let (is_done, text) = exec(&["resume", "--last", "And now?"]);
    assert!(is_done, "{text}");
    has(&text, "The file is changed.");
    let schema = place.folder.path().join("schema.json");
    fs::write(&schema, SCHEMA).unwrap();
    let fact = json!({"city": "Ulm", "degrees": 21}).to_string();
    place.turns(&json!({"turns": [{"say": fact}]}));
    let (is_done, text) = exec(&[
        "--output-schema",
        schema.to_str().unwrap(),
        "How warm is it?",
    ]);
    assert!(is_done, "{text}");
    has(&text, &fact);
    let (is_done, text) = exec(&["-m", UNKNOWN, "How warm is it?"]);
    assert!(!is_done, "{text}");
    has(&text, "no model is called wirter; the closest is writer");
    let columns = [
        "chat",
        "stream",
        "tools",
        "second turn",
        "structured",
        "reasoning",
        "error",
    ];
    row("Codex CLI", "responses", &columns);
}

#[test]
fn codex_lists_the_models_of_the_pool_as_an_ollama_server() {
    let Some(vendor) = brought("node_modules/@openai/codex-linux-x64/vendor") else {
        return;
    };
    let program = vendor.join("x86_64-unknown-linux-musl/bin/codex");
    let place = Workplace::open();
    place.turns(&json!({"turns": [], "plain": "There are five apples."}));
    let url = format!("{}/v1", place.url());
    let oss = ["--oss", "--local-provider", "ollama", "-m", "writer:latest"];
    let words = [
        &["exec", "--skip-git-repo-check"],
        &oss[..],
        &["How many apples?"],
    ]
    .concat();
    let (is_done, text) = place.run(&program, &words, &[("CODEX_OSS_BASE_URL", url.as_str())]);
    assert!(is_done, "{text}");
    has(&text, "There are five apples.");
    row("Codex CLI, --oss", "responses", &["chat", "stream"]);
}

#[test]
fn claude_code_reads_a_file_and_continues_the_conversation() {
    let Some(program) = brought("node_modules/@anthropic-ai/claude-code-linux-x64/claude") else {
        return;
    };
    let place = Workplace::new();
    fs::write(place.notes(), "one\nfive apples\n").unwrap();
    let url = place.url();
    let env = [
        ("ANTHROPIC_BASE_URL", url.as_str()),
        ("ANTHROPIC_AUTH_TOKEN", &place.key),
        ("ANTHROPIC_MODEL", "writer"),
        ("ANTHROPIC_SMALL_FAST_MODEL", "writer"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
    ];
    let ask = |words: &[&str]| place.run(&program, &[&["-p"], words].concat(), &env);
    place.turns(&reads("Read", "file_path", &place.notes()));
    let stream = [
        "--output-format",
        "stream-json",
        "--verbose",
        "--allowedTools",
        "Read",
    ];
    let (is_done, text) = ask(&[&["How many apples are there?"], &stream[..]].concat());
    assert!(is_done, "{text}");
    has(&text, "five apples\\n");
    let events = events(&text);
    let said = |kind: &str, field: &str, text: &str| {
        let blocks = events
            .iter()
            .filter_map(|message| message["message"]["content"].as_array());
        blocks
            .flatten()
            .any(|part| part["type"] == kind && part[field] == text)
    };
    assert!(
        said("thinking", "thinking", THOUGHT) && said("text", "text", "There are five apples.")
    );
    let last = events.last().unwrap();
    assert_eq!(
        (&last["is_error"], &last["num_turns"]),
        (&json!(false), &json!(2))
    );
    let (is_done, text) = ask(&["And now?", "--continue"]);
    assert!(is_done, "{text}");
    has(&text, "There are five apples.");
    let fact = json!({"city": "Ulm", "degrees": 21});
    place.turns(
        &json!({"turns": [{"call": "StructuredOutput", "arguments": fact}, {"say": "Done."}]}),
    );
    let (is_done, text) = ask(&[
        "How warm is it?",
        "--output-format",
        "json",
        "--json-schema",
        SCHEMA,
    ]);
    assert!(is_done, "{text}");
    has(&text, &format!("\"structured_output\":{fact}"));
    let (is_done, text) = ask(&["How warm is it?", "--model", UNKNOWN]);
    assert!(!is_done, "{text}");
    has(&text, "issue with the selected model (wirter)");
    let columns = [
        "chat",
        "stream",
        "tools",
        "second turn",
        "structured",
        "reasoning",
        "error",
    ];
    row("Claude Code", "messages", &columns);
}

fn opencode(wire: &str, package: &str) {
    let Some(program) = brought("node_modules/opencode-linux-x64/bin/opencode") else {
        return;
    };
    let place = Workplace::new();
    fs::write(place.notes(), "one\nfive apples\n").unwrap();
    let config = json!({
        "autoupdate": false, "share": "disabled", "model": "pool/writer", "small_model": "pool/writer",
        "provider": {"pool": {"npm": package, "name": "pool",
            "options": {"baseURL": format!("{}/v1", place.url()), "apiKey": place.key},
            "models": {"writer": {"name": "writer"}, UNKNOWN: {"name": UNKNOWN}}}}
    });
    let file = place.folder.path().join("work/opencode.json");
    fs::write(file, config.to_string()).unwrap();
    place.turns(&reads("read", "filePath", &place.notes()));
    let env = [
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
    ];
    let ask = |words: &[&str]| place.run(&program, &[&["run"], words].concat(), &env);
    let (is_done, text) = ask(&["How many apples are in notes.txt?"]);
    assert!(is_done, "{text}");
    has(&text, "Read notes.txt");
    has(&text, "There are five apples.");
    let (is_done, text) = ask(&["--continue", "And now?"]);
    assert!(is_done, "{text}");
    has(&text, "There are five apples.");
    let (_, text) = ask(&["-m", &format!("pool/{UNKNOWN}"), "How many?"]);
    has(&text, "no model is called wirter");
    row(
        "OpenCode",
        wire,
        &["chat", "stream", "tools", "second turn", "error"],
    );
}

#[test]
fn opencode_reads_a_file_over_chat() {
    opencode("chat", "@ai-sdk/openai-compatible");
}

#[test]
fn opencode_reads_a_file_over_responses() {
    opencode("responses", "@ai-sdk/openai");
}

#[test]
fn opencode_reads_a_file_over_messages() {
    opencode("messages", "@ai-sdk/anthropic");
}

#[test]
fn aider_edits_a_file() {
    let Some(program) = brought("aider/bin/aider") else {
        return;
    };
    let place = Workplace::new();
    fs::write(place.notes(), "one\ntwo\n").unwrap();
    place.turns(&json!({"plain": "notes.txt\n```\none\nthree\n```\n"}));
    let url = format!("{}/v1", place.url());
    let env = [
        ("OPENAI_API_BASE", url.as_str()),
        ("OPENAI_API_KEY", &place.key),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ];
    let quiet = [
        "--edit-format",
        "whole",
        "--no-git",
        "--yes-always",
        "--no-check-update",
        "--analytics-disable",
        "--no-show-model-warnings",
        "--no-show-release-notes",
        "--no-suggest-shell-commands",
        "--no-pretty",
        "--map-tokens",
        "0",
    ];
    let ask = |model: &str, what: &str| {
        let words = ["--model", model, "--message", what, "notes.txt"];
        place.run(&program, &[&quiet[..], &words].concat(), &env)
    };
    let (is_done, text) = ask("openai/writer", "Change two to three");
    assert!(is_done, "{text}");
    assert_eq!(fs::read_to_string(place.notes()).unwrap(), "one\nthree\n");
    has(&text, THOUGHT);
    let (_, text) = ask(&format!("openai/{UNKNOWN}"), "Change two to three");
    has(&text, "no model is called wirter");
    row("aider", "chat", &["chat", "stream", "reasoning", "error"]);
}
