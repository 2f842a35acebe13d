//! Third-party clients with the real program: the `openai` and `ollama` packages of PyPI and npm, `langchain-openai`, the `llm`
//! tool, `anthropic`, and schemathesis. The checks are scripts in tests/clients; `.ci/clients` installs their requirements, and
//! without it these tests report that they were skipped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::external_programs::skipped;
pub use support::root;
use support::service::Pool;

/// The pool's features for the scripts to check; they report the others as left out: `logprobs`, `completions`, `json_schema`,
/// `tools`, `responses`, `messages`, `messages_count`, `messages_tools`.
const FEATURES: &str =
    "logprobs completions json_schema responses messages messages_count batches messages_batches";

/// The time limit of a script on a slow machine.
const LIMIT: Duration = Duration::from_secs(400);

/// A file that `.ci/clients` installs.
pub fn brought(path: &str) -> Option<PathBuf> {
    let path = root().join("target/clients").join(path);
    if path.exists() {
        return Some(path);
    }
    let why = format!(
        "there is no {}. Bring it with `bash .ci/clients`, and run `cargo test --test outside clients::`",
        path.display()
    );
    skipped("clients", &why);
    None
}

/// A stub engine with these flags.
fn stub_model(name: &str, words: &str, more: &str) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, {words}]\n  ready_path: /health\n  served_model_name: {name}\npool_config: {{memory_gib: 0.01, {more}}}\n"
    );
    (format!("{name}.yaml"), text)
}

/// The demo models, of which one also has a name with a slash, and engines that respond slowly, never become ready, or compute
/// embeddings. A key is required.
fn pool() -> Pool {
    let mut files: Vec<(String, String)> = ["tiny-chat", "tiny-guide", "tiny-helper"]
        .map(|name| {
            let file = format!("{name}.yaml");
            let text = fs::read_to_string(root().join("config/models").join(&file)).unwrap();
            let demo = root().join("demo").display().to_string();
            (file, text.replace("../../demo", &demo))
        })
        .into();
    let slashed = files[1]
        .1
        .replace("model_id: tiny-guide", "model_id: lab/tiny-guide");
    assert_ne!(slashed, files[1].1, "the demo's file has changed its form");
    files.push(("slashed.yaml".to_owned(), slashed));
    files.push(stub_model(
        "talker",
        "--tokens, \"2000\", --token-ms, \"20\"",
        "",
    ));
    files.push(stub_model(
        "stuck",
        "--ready-after-ms, \"600000\"",
        "queue_limit: 1",
    ));
    files.push(stub_model("embedder", "--tokens, \"5\"", ""));
    let config = "inventory: {provider: host, host_memory: 512MiB}\nauth: {inference: key}\ncompat: {ollama: true}\n";
    Pool::with_devices(&files, config)
}

pub fn user_key(pool: &Pool) -> String {
    let body = json!({"name": "a client", "role": "user"}).to_string();
    let (status, text, _) = pool.request("POST", "/llm/admin/keys", &body, Some(&pool.admin_key()));
    assert_eq!(status, 200, "{text}");
    let made: Value = serde_json::from_str(&text).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

/// Runs a program to its end, without the tester's environment; returns its output.
pub fn run(program: &Path, words: &[&str], env: &[(&str, &str)]) -> String {
    run_within(LIMIT, program, words, env)
}

/// As `run`, with another time limit.
pub fn run_within(limit: Duration, program: &Path, words: &[&str], env: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let into = File::create(&output).unwrap();
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_COLOR", "1")
        .envs(env.iter().copied())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(into.try_clone().unwrap())
        .stdout(into)
        .spawn()
        .unwrap();
    let began = SystemTime::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed().unwrap_or_default() > limit {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        thread::park_timeout(Duration::from_millis(10));
    };
    let text = String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
    let program = program.display();
    match status {
        None => panic!("{program} {words:?} took longer than {limit:?}:\n{text}"),
        Some(status) => assert!(status.success(), "{program} {words:?}: {status}\n{text}"),
    }
    text
}

/// Runs a script against a separate pool.
fn script(program: &Path, name: &str) {
    let more = [
        ("MODEL_POOL_SLASHED", "lab/tiny-guide"),
        ("MODEL_POOL_TALKER", "talker"),
        ("MODEL_POOL_STUCK", "stuck"),
        ("MODEL_POOL_EMBEDDER", "embedder"),
    ];
    checked(program, name, &pool(), LIMIT, &more);
}

/// Runs a script against a pool, with these variables in addition to its address, keys and features.
pub fn checked(program: &Path, name: &str, pool: &Pool, limit: Duration, more: &[(&str, &str)]) {
    let modules = root().join("target/clients/node_modules");
    let script = root().join("tests/clients").join(name);
    let url = format!("http://{}", pool.address());
    let (key, admin_key) = (user_key(pool), pool.admin_key());
    let mut env = vec![
        ("MODEL_POOL_URL", url.as_str()),
        ("MODEL_POOL_KEY", key.as_str()),
        ("MODEL_POOL_ADMIN_KEY", admin_key.as_str()),
        ("MODEL_POOL_FEATURES", FEATURES),
        ("MODEL_POOL_NODE_MODULES", modules.to_str().unwrap()),
    ];
    env.extend_from_slice(more);
    let text = run_within(limit, program, &[script.to_str().unwrap()], &env);
    println!("{text}");
    assert!(text.trim_end().ends_with(" passed, 0 failed"), "{text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}

fn python(name: &str) {
    if let Some(program) = brought("venv/bin/python") {
        script(&program, name);
    }
}

#[test]
fn the_openai_package_of_pypi_works() {
    python("openai_python.py");
}

#[test]
fn the_openai_package_of_npm_works() {
    if brought("node_modules/openai").is_some() {
        script(Path::new("node"), "openai_node.mjs");
    }
}

#[test]
fn langchain_works() {
    python("langchain_chat.py");
}

#[test]
fn the_llm_tool_works() {
    python("llm_command.py");
}

#[test]
fn the_anthropic_package_works() {
    python("anthropic_python.py");
}

#[test]
fn the_ollama_package_of_pypi_works() {
    python("ollama_python.py");
}

#[test]
fn the_ollama_package_of_npm_works() {
    if brought("node_modules/ollama").is_some() {
        script(Path::new("node"), "ollama_node.mjs");
    }
}

#[test]
fn responses_and_errors_match_openais_published_schema() {
    python("published_schema.py");
}

#[test]
fn the_openapi_document_is_valid_and_so_are_its_examples() {
    python("openapi_document.py");
}

/// Every route of the document, with valid and invalid requests: no server error, and no response that the document does not
/// describe. A separate pool, because it is emptied and reset.
#[test]
fn the_openapi_document_matches_the_service() {
    let Some(program) = brought("venv/bin/schemathesis") else {
        return;
    };
    // Unknown models would be looked up on the hub, and tests use no network.
    let pool = Pool::demo_with(
        "evening: {cleanup: null, reopen: null}\nsources: {offline: true}\nauth: {inference: key}\npool: {queue_timeout: 3s}\n",
    );
    // Runs last, because revoking keys would revoke the key in use.
    let text = tried(&pool, &program, ["--exclude-operation-id", "revoke_key"]);
    assert!(text.contains(" generated, "), "nothing was tried: {text}");
    tried(&pool, &program, ["--include-operation-id", "revoke_key"]);
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}

/// The routes that exist only with `compat.ollama`.
#[test]
fn the_openapi_document_of_the_ollama_api_matches_the_service() {
    let Some(program) = brought("venv/bin/schemathesis") else {
        return;
    };
    let pool = Pool::demo_with(
        "evening: {cleanup: null, reopen: null}\nsources: {offline: true}\nauth: {inference: key}\ncompat: {ollama: true}\n",
    );
    let text = tried(&pool, &program, ["--include-path-regex", "^/api/"]);
    assert!(text.contains(" generated, "), "nothing was tried: {text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}

/// Schemathesis's output for the selected operations.
fn tried(pool: &Pool, program: &Path, chosen: [&str; 2]) -> String {
    tried_within(LIMIT, pool, program, &chosen)
}

/// As `tried`, with another time limit.
pub fn tried_within(limit: Duration, pool: &Pool, program: &Path, chosen: &[&str]) -> String {
    let options = root().join("tests/clients/schemathesis.toml");
    let document = format!("http://{}/llm/openapi.json", pool.address());
    let first = ["--config-file", options.to_str().unwrap(), "run", &document];
    let words = [&first[..], chosen].concat();
    let key = pool.admin_key();
    let text = run_within(limit, program, &words, &[("MODEL_POOL_ADMIN_KEY", &key)]);
    println!("{text}");
    text
}
