//! The guides in `docs/`: their commands exist, their files match the program's output or are accepted, and their requests succeed.
//! One file because every guide is checked by the same rules.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Parser;
use model_pool::cli::Cli;
use serde_json::{Value, json};
use support::external_programs::skipped;
use support::service::Pool;

use super::commands::{CommandOutput, model_pool};

const GUIDES: [&str; 6] = [
    "guides/moving-from-llama-swap.md",
    "guides/moving-from-litellm.md",
    "guides/moving-from-vllm.md",
    "start/gpu-server.md",
    "start/for-users.md",
    OLDER_SYSTEMS,
];

const OLDER_SYSTEMS: &str = "reference/compatibility.md";

fn guide(name: &str) -> String {
    let path = support::root().join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The section of the page on older systems below this heading.
fn section(heading: &str) -> String {
    let page = guide(OLDER_SYSTEMS);
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("{OLDER_SYSTEMS} has no section {heading}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Contents of the code blocks in this language.
pub(super) fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let mut blocks = Vec::new();
    for part in text.split(&fence).skip(1) {
        let (block, _) = part.split_once("```").expect("the end of a block");
        blocks.push(block.to_owned());
    }
    blocks
}

/// The words of each command line, without leading `sudo` and variables.
pub(super) fn commands(text: &str) -> Vec<Vec<String>> {
    let lines = blocks(text, "sh").join("\n").replace("\\\n", " ");
    let words = lines.lines().map(|line| shlex::split(line).expect(line));
    let words = words.map(|words| {
        let is_before =
            |word: &String| matches!(word.as_str(), "sudo" | "-u") || word.contains('=');
        let mut rest: Vec<String> = words.into_iter().skip_while(is_before).collect();
        // `sudo -u model-pool model-pool …`
        if rest.len() > 1 && rest[0] == rest[1] {
            rest.remove(0);
        }
        rest
    });
    words.filter(|words| !words.is_empty()).collect()
}

#[test]
fn every_command_in_the_guides_parses() {
    let client = support::profile_dir().join("admin-client");
    let mut seen = 0;
    for name in GUIDES {
        for words in commands(&guide(name)) {
            match words[0].as_str() {
                "model-pool" => {
                    seen += 1;
                    let parsed = Cli::try_parse_from(&words);
                    assert!(parsed.is_ok(), "{name}: {words:?}: {}", parsed.unwrap_err());
                }
                "admin-client" => {
                    seen += 1;
                    // Port 1 has no listener: a valid command fails to reach the server.
                    let output = Command::new(&client)
                        .args(&words[1..])
                        .env("MODEL_POOL_SERVER", "http://127.0.0.1:1")
                        .env("MODEL_POOL_ADMIN_KEY", "mp-none")
                        .stdin(Stdio::null())
                        .output();
                    let ended =
                        CommandOutput::new(output.expect("admin-client is built with the tests"));
                    assert_eq!(ended.status, 3, "{name}: {words:?}: {ended:?}");
                }
                _ => {}
            }
        }
    }
    assert!(seen > 20, "{seen} commands were found");
}

#[test]
fn every_guide_has_a_table_and_valid_links() {
    for name in GUIDES {
        let text = guide(name);
        let has_table = text.contains("## There → here\n") || name == OLDER_SYSTEMS;
        assert!(has_table, "{name} has no table");
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap_or_default();
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") {
                continue;
            }
            let page = support::root().join("docs").join(name);
            let path = if file.is_empty() {
                page
            } else {
                page.with_file_name("").join(file)
            };
            let text = fs::read_to_string(&path)
                .unwrap_or_else(|_| panic!("{name}: {target} is not there"));
            let slug = |line: &str| {
                let words = line.trim_start_matches('#').trim().to_lowercase();
                let words = words
                    .chars()
                    .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
                words.collect::<String>().replace(' ', "-")
            };
            let has = anchor.is_empty()
                || text
                    .lines()
                    .any(|line| line.starts_with('#') && slug(line) == anchor);
            assert!(has, "{name}: {file} has no heading {anchor}");
        }
    }
}

/// Runs the import of a guide with its example, and compares a file with the guide. The example's weights are in the folder of the
/// test.
fn import(name: &str, source: &str, shown: &str) -> tempfile::TempDir {
    let text = guide(name);
    let yaml = blocks(&text, "yaml");
    let folder = tempfile::tempdir().expect("a folder");
    let models = folder.path().join("srv");
    fs::create_dir(&models).expect("made");
    support::tiny_gguf::write(&models.join("Qwen3-8B-Q4_K_M.gguf"), 7);
    let weights = fs::File::create(models.join("ggml-large-v3.bin")).expect("made");
    weights.set_len(3 << 30).expect("a file with a hole");
    let models = models.display().to_string();
    let theirs = yaml[0].replace("/srv/models", &models);
    fs::write(folder.path().join(source), theirs).expect("written");
    let commands = commands(&text);
    let is_import = |words: &&Vec<String>| {
        let command = words.get(1).map(String::as_str);
        words[0] == "model-pool" && matches!(command, Some("import" | "check"))
    };
    let mut count = 0;
    for words in commands.iter().filter(is_import) {
        count += 1;
        let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        model_pool(folder.path(), &words, &GPUS).done();
    }
    assert_eq!(count, 2, "import and check");
    let written = fs::read_to_string(folder.path().join(shown)).expect("written");
    let lines = written.lines().filter(|line| !line.starts_with('#'));
    let written: String = lines.map(|line| format!("{line}\n")).collect();
    let written = written.replace(&models, "/srv/models");
    assert_eq!(written, yaml[1], "{shown} as {name} shows it");
    folder
}

/// Four GPUs of 80 GiB, independent of the machine.
const GPUS: [(&str, &str); 2] = [
    ("MODEL_POOL__INVENTORY__PROVIDER", "fixed"),
    (
        "MODEL_POOL__INVENTORY__DEVICES",
        "[{name: gpu0, memory: 80GiB}, {name: gpu1, memory: 80GiB}, {name: gpu2, memory: 80GiB}, {name: gpu3, memory: 80GiB}]",
    ),
];

#[test]
fn the_llama_swap_guide_shows_the_converted_example() {
    import(
        "guides/moving-from-llama-swap.md",
        "llama-swap.yaml",
        "imported/models/qwen3-8b.yaml",
    );
}

#[test]
fn the_litellm_guide_shows_the_converted_example() {
    let folder = import(
        "guides/moving-from-litellm.md",
        "litellm.yaml",
        "imported/models/lab-llama.yaml",
    );
    let config =
        fs::read_to_string(folder.path().join("imported/model-pool.yaml")).expect("written");
    assert!(config.contains("requests_per_minute: 480"), "{config}");
}

/// Checks model files of a guide on four GPUs of 80 GiB.
fn checked(files: &[&str], config: &str) -> CommandOutput {
    let folder = tempfile::tempdir().expect("a folder");
    let models = folder.path().join("models");
    fs::create_dir(&models).expect("made");
    for (nth, text) in files.iter().enumerate() {
        fs::write(models.join(format!("{nth}.yaml")), text).expect("written");
    }
    fs::write(folder.path().join("model-pool.yaml"), config).expect("written");
    let state = folder.path().join("data").display().to_string();
    let models = models.display().to_string();
    let cache = folder.path().join("cache").display().to_string();
    let reference = support::root()
        .join("model_reference.json")
        .display()
        .to_string();
    let [provider, devices] = GPUS;
    let env = [
        provider,
        devices,
        ("MODEL_POOL__STATE__DIR", &state),
        ("MODEL_POOL__CATALOG__MODELS_DIR", &models),
        ("MODEL_POOL__CATALOG__MODEL_REFERENCE", &reference),
        ("MODEL_POOL__SOURCES__CACHE_DIR", &cache),
    ];
    model_pool(
        folder.path(),
        &["check", "--config", "model-pool.yaml"],
        &env,
    )
    .done()
}

#[test]
fn the_files_of_the_gpu_server_guide_run_vllm() {
    let yaml = blocks(&guide("start/gpu-server.md"), "yaml");
    let [config, chat, large] = &yaml[..] else {
        panic!("a configuration and two models, not {}", yaml.len());
    };
    let said = checked(&[chat, large], config).stdout;
    for words in [
        "model Qwen/Qwen3-8B: vllm engine, 1 device with 40",
        "model Qwen/Qwen2.5-72B-Instruct-AWQ: vllm engine, 2 devices with 60",
        "would run: ",
        "/opt/vllm/bin/vllm serve",
        "--tensor-parallel-size 2",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn the_file_of_the_vllm_guide_is_equivalent_to_its_command() {
    let text = guide("guides/moving-from-vllm.md");
    let yaml = blocks(&text, "yaml");
    let said = checked(&[&yaml[0]], "{}\n").stdout;
    let line = text
        .lines()
        .find(|line| line.starts_with("`vllm serve"))
        .expect("a command");
    let flags = line
        .split_whitespace()
        .filter(|word| word.starts_with("--"));
    for flag in flags.map(|flag| flag.trim_end_matches('`')) {
        assert!(said.contains(flag), "{flag}: {said}");
    }
}

/// The output of each `curl` in a guide, in order.
fn responses(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let lines = blocks(text, "sh").join("\n");
    let calls = lines.lines().filter(|line| line.starts_with("curl "));
    let responses = calls.map(|call| {
        let output = Command::new("sh")
            .args(["-c", call])
            .envs(env.iter().copied())
            .env("NO_PROXY", "127.0.0.1")
            .output();
        CommandOutput::new(output.expect("sh runs")).done().stdout
    });
    responses.collect()
}

fn has_curl() -> bool {
    let has = Command::new("curl").arg("--version").output().is_ok();
    if !has {
        skipped("curl", "curl is missing");
    }
    has
}

#[test]
fn the_configuration_and_requests_of_the_llm_serving_guide_work() {
    let text = section("From LLM Serving");
    let yaml = blocks(&text, "yaml");
    let [config, model] = &yaml[..] else {
        panic!("a configuration and a model, not {}", yaml.len());
    };
    let said = checked(&[model], config);
    let expected = "model NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO: vllm engine, 2 devices";
    assert!(said.stdout.contains(expected), "{said:?}");
    assert!(said.stdout.contains("priority 2"), "{said:?}");
    if !has_curl() {
        return;
    }
    let pool = Pool::demo_with("evening: {cleanup: null, reopen: null}\ncompat: {ncsa: true}\n");
    let address = format!("http://{}/llm", pool.address());
    let key = pool.admin_key();
    let responses = responses(&text, &[("LLM", &address), ("KEY", &key)]);
    let expected = [
        "\"Model tiny-chat endpoint: /llm\"",
        "\"num_served_models\":",
        "\"Model tiny-chat active replicas set to 0.\"",
        "\"hot_models\":",
    ];
    assert_eq!(responses.len(), expected.len(), "{responses:?}");
    for (response, expected) in responses.iter().zip(expected) {
        assert!(response.contains(expected), "{expected}: {response}");
    }
}

#[test]
fn the_rayllm_guide_shows_the_converted_file_and_its_requests_work() {
    let text = section("From RayLLM and Aviary");
    let [file] = &blocks(&text, "yaml")[..] else {
        panic!("one file");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let models = folder.path().join("config/models");
    fs::create_dir_all(&models).expect("made");
    fs::write(models.join("meta-llama--Llama-2-7b-chat-hf.yaml"), file).expect("written");
    let cache = folder.path().join("cache").display().to_string();
    let mut env = GPUS.to_vec();
    env.push(("MODEL_POOL__SOURCES__CACHE_DIR", &cache));
    let said = model_pool(folder.path(), &["check", "config/models"], &env).done();
    for line in blocks(&text, "text").join("").lines() {
        let is_said = said.stdout.contains(line) || said.stderr.contains(line);
        assert!(is_said, "{line}: {said:?}");
    }
    if !has_curl() {
        return;
    }
    let pool = Pool::demo_with("evening: {cleanup: null, reopen: null}\n");
    let address = format!("http://{}", pool.address());
    let responses = responses(&text, &[("LLM", &address)]);
    let expected = [
        "\"tiny-guide\"",
        "\"chat.completion\"",
        "\"text_completion\"",
    ];
    assert_eq!(responses.len(), expected.len(), "{responses:?}");
    for (response, expected) in responses.iter().zip(expected) {
        assert!(response.contains(expected), "{expected}: {response}");
    }
}

#[test]
fn the_requests_shown_to_users_are_served() {
    let pool = Pool::demo_with("evening: {cleanup: null, reopen: null}\nauth: {inference: key}\n");
    let body = json!({"name": "a user", "role": "user"}).to_string();
    let (status, made, _) = pool.request("POST", "/llm/admin/keys", &body, Some(&pool.admin_key()));
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let key = made["key"].as_str().expect("a key").to_owned();
    let base = format!("http://{}/v1", pool.address());
    let text = guide("start/for-users.md");
    let lines = blocks(&text, "sh").join("\n");
    let calls: Vec<&str> = lines
        .lines()
        .filter(|line| line.starts_with("curl "))
        .collect();
    assert_eq!(calls.len(), 3);
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("curl", "curl is missing");
    }
    for (call, expected) in calls
        .iter()
        .zip(["\"tiny-guide\"", "\"choices\"", "data: [DONE]"])
    {
        let output = Command::new("sh")
            .args(["-c", call])
            .env("OPENAI_BASE_URL", &base)
            .env("OPENAI_API_KEY", &key)
            .env("NO_PROXY", "127.0.0.1")
            .output();
        let ended = CommandOutput::new(output.expect("sh runs")).done();
        assert!(ended.stdout.contains(expected), "{call}: {ended:?}");
    }
}

#[test]
fn the_programs_shown_to_users_run_in_python_and_javascript() {
    let text = guide("start/for-users.md");
    let folder = tempfile::tempdir().expect("a folder");
    for (language, file, program, words) in [
        ("python", "ask.py", "python3", ["-m", "py_compile"]),
        (
            "javascript",
            "ask.mjs",
            "node",
            ["--check", "--no-warnings"],
        ),
    ] {
        let [block] = &blocks(&text, language)[..] else {
            panic!("one block of {language}");
        };
        let path: &Path = &folder.path().join(file);
        fs::write(path, block).expect("written");
        let output = Command::new(program).args(words).arg(path).output();
        match output {
            Ok(output) => {
                CommandOutput::new(output).done();
            }
            Err(error) => skipped(program, &format!("there is no {program}: {error}")),
        }
    }
}
