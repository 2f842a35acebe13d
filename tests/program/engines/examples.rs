//! The files in `docs/examples`: each loads unchanged, each engine has one, and its command line has only flags that the engine
//! knows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use model_pool::catalog::{
    Catalog, ENGINES, EngineAddress, Entry, LaunchContext, PlacedDevice, Recipe, ServerRecipe,
};
use model_pool::config::Config;
use model_pool::pool::Bytes;

use super::assert_has;
use super::flags::known_flags;

pub fn examples() -> Catalog {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = Config::default();
    config.sources.cache_dir = Some("/srv/models".into());
    config.state.dir = "/srv/pool".into();
    config.catalog.models_dir = root.join("docs/examples");
    config.catalog.model_reference = root.join("model_reference.json");
    Catalog::load(&config).expect("every example loads").0
}

/// The words from the engine's program on, without the container's.
fn engine_words<'a>(recipe: &ServerRecipe, words: &'a [String]) -> &'a [String] {
    let program = recipe
        .program
        .as_deref()
        .unwrap_or(recipe.engine.program[0]);
    let start = words.iter().position(|word| word == program);
    &words[start.expect("the program")..]
}

/// The command line of a replica on GPUs of 80 GiB.
pub fn line(entry: &Entry) -> Vec<String> {
    let Recipe::Server(recipe) = &entry.recipe else {
        panic!("{} is not an engine of the table", entry.name);
    };
    let (spec, _) = entry.spec(&Config::default(), None).expect("a figure");
    let devices: Vec<PlacedDevice> = (0..spec.devices_per_replica)
        .map(|index| PlacedDevice {
            index,
            uuid: Some(format!("GPU-{index}")),
            is_gpu: true,
            total: Bytes(80 * Bytes::GIB),
        })
        .collect();
    let socket = PathBuf::from("/run/model-pool/1.sock");
    let place = LaunchContext {
        model_name: &entry.name,
        at: match recipe.listen {
            model_pool::catalog::Listen::Port | model_pool::catalog::Listen::At(_) => {
                EngineAddress::Port(4321)
            }
            model_pool::catalog::Listen::Socket => EngineAddress::Socket(&socket),
        },
        devices: &devices,
        weights: Some(Bytes(33 * Bytes::GIB)),
        ..LaunchContext::example(spec.bytes_per_device)
    };
    recipe.command(&place).expect("a command").argv
}

#[test]
fn every_engine_has_an_example_whose_flags_it_knows() {
    let catalog = examples();
    let (mut seen, mut seen_others) = (BTreeSet::new(), BTreeSet::new());
    for entry in catalog.entries().values() {
        let Recipe::Server(recipe) = &entry.recipe else {
            seen_others.insert(entry.recipe.engine());
            continue;
        };
        seen.insert(recipe.engine.name());
        let known = known_flags(recipe.engine);
        let words = line(entry);
        let own = engine_words(recipe, &words);
        for word in own {
            let flag = word.split('=').next().unwrap_or(word);
            let is_flag = flag.starts_with("--");
            assert!(
                !is_flag || known.contains(flag),
                "{}: {flag} in {words:?}",
                entry.name
            );
        }
    }
    let all: BTreeSet<&str> = ENGINES.iter().map(|engine| engine.name()).collect();
    assert_eq!(seen, all);
    assert_eq!(
        seen_others,
        ["candle", "command", "ray_serve", "remote"].into()
    );
}

#[test]
fn the_examples_run_what_the_manual_says() {
    let catalog = examples();
    let text = |name: &str| line(catalog.get(name).expect(name)).join(" ");
    assert_has(
        &text("meta-llama/Llama-3.1-70B-Instruct"),
        &[
            "/srv/pool/weights/meta-llama-Llama-3.1-70B-Instruct-main-",
            "--tensor-parallel-size 2 --gpu-memory-utilization 0.6812 --max-model-len 16384 --max-num-seqs 64",
            "--quantization fp8",
        ],
    );
    assert_has(
        &text("qwen-coder"),
        &[
            "/opt/vllm/bin/vllm serve",
            "--uds /run",
            "--enable-sleep-mode",
        ],
    );
    assert_has(
        &text("mistral-small"),
        &[
            "docker run --rm --name model-pool-1-1",
            "\"device=GPU-0\" -e DO_NOT_TRACK -e HF_HUB_OFFLINE",
            "vllm/vllm-openai:v0.33.0 vllm serve /srv/models/Mistral",
        ],
    );
    assert_has(
        &text("gemma-3-12b-q4"),
        &["--ctx-size 32768", "--parallel 4", "--cache-type-k q8_0"],
    );
}

#[test]
fn weights_not_yet_fetched_do_not_require_a_local_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    let text = format!(
        "inventory: {{provider: host, host_memory: 4GiB}}\nsources: {{cache_dir: {:?}}}\nstate: {{dir: {:?}}}\n",
        folder.path().join("cache"),
        folder.path().join("data"),
    );
    std::fs::write(&file, text).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check", "--config"])
        .arg(&file)
        .arg(root.join("docs/examples/vllm.yaml"))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_has(
        &text,
        &["its command line depends on the size of the weights and is shown once they are fetched"],
    );
    assert!(
        !text.contains("to a local folder with the weights"),
        "{text}"
    );
}

#[test]
fn check_shows_the_command_line_with_secrets_masked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    let text = format!(
        "catalog: {{models_dir: {:?}, model_reference: {:?}}}\nstate: {{dir: {:?}}}\ninventory: {{provider: fixed, devices: [{{name: gpu0, memory: 80GiB}}]}}\n",
        root.join("docs/examples"),
        root.join("model_reference.json"),
        folder.path().join("data"),
    );
    std::fs::write(&file, text).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check", "--config"])
        .arg(&file)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text} {problem}");
    assert_has(
        &text,
        &[
            "would run: ",
            "vllm serve",
            "HF_TOKEN=…",
            "no prompts, because it embeds or ranks texts",
            "cannot be started: TRTLLMEngine needs an option",
            "cannot be started: there is no /srv/models/Llama-3.3-70B-Instruct; copy the model there",
        ],
    );
    assert!(!text.contains("hf_0123456789"), "{text}");
}
