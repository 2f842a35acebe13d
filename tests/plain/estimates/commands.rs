//! Memory of a command engine, derived from its arguments: the program, its share of a device, its cache, and the location of its
//! model.

use std::path::Path;

use model_pool::catalog::{Demand, DeviceSize, EngineKind, Entry, GPU_OVERHEAD, Recipe};
use model_pool::config::Config;
use model_pool::pool::Bytes;
use serde_json::{Value, json};
pub(super) use support::folder::tiny_model as model_folder;

use super::{assert_has, gguf};
use crate::config::documents;

pub(super) const GIB: u64 = Bytes::GIB;

pub(super) const PER_TOKEN: u64 = 2 * 2 * 4 * 16 * 2;
pub(super) const WEIGHTS: u64 = 1 << 20;

pub(super) fn entry(model: &str, command: &[&str], beside: Value) -> Entry {
    let mut document = json!({
        "engine_config": {
            "model_id": "m", "type": "CommandEngine", "command": command, "model_path": model,
        },
    });
    for (section, keys) in beside.as_object().unwrap() {
        for (key, value) in keys.as_object().unwrap() {
            document[section][key] = value.clone();
        }
    }
    if !Path::new(model).is_absolute() {
        let section = document["engine_config"].as_object_mut().unwrap();
        section.remove("model_path");
        section.insert("hf_model_id".to_owned(), json!(model));
    }
    let read = documents::read(&document);
    read.unwrap().0
}

pub(super) fn local(folder: &tempfile::TempDir, command: &[&str]) -> Entry {
    entry(&folder.path().display().to_string(), command, json!({}))
}

fn demand(entry: &Entry) -> Demand {
    entry.demand(1, None).unwrap().0
}

#[test]
fn engines_are_recognized_by_the_words_of_their_command() {
    let folder = model_folder();
    for (command, kind) in [
        (
            vec!["vllm", "serve", "x", "--port", "{{ port }}"],
            EngineKind::Vllm,
        ),
        (
            vec!["/opt/venv/bin/vllm", "serve", "{{ port }}"],
            EngineKind::Vllm,
        ),
        (
            vec![
                "python3",
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--port={{ port }}",
            ],
            EngineKind::Vllm,
        ),
        (
            vec![
                "docker",
                "run",
                "vllm/vllm-openai:v0.11.0",
                "--port",
                "{{ port }}",
            ],
            EngineKind::Vllm,
        ),
        (
            vec!["bash", "-c", "exec vllm serve x --port {{ port }}"],
            EngineKind::Vllm,
        ),
        (
            vec![
                "python",
                "-m",
                "sglang.launch_server",
                "--port",
                "{{ port }}",
            ],
            EngineKind::Sglang,
        ),
        (
            vec!["text-generation-launcher", "--port", "{{ port }}"],
            EngineKind::Tgi,
        ),
        (
            vec![
                "docker",
                "run",
                "ghcr.io/ggml-org/llama.cpp:server-cuda",
                "--port",
                "{{ port }}",
            ],
            EngineKind::LlamaCpp,
        ),
        (
            vec!["/usr/bin/llama-server", "--port", "{{ port }}"],
            EngineKind::LlamaCpp,
        ),
        (vec!["my-vllm-like-server", "{{ port }}"], EngineKind::Other),
    ] {
        let Recipe::Command(recipe) = local(&folder, &command).recipe else {
            panic!("no command")
        };
        assert_eq!(recipe.engine_options(1).kind, kind, "{command:?}");
    }
}

#[test]
fn vllm_requests_ninety_percent_of_a_device_plus_its_graphs() {
    let folder = model_folder();
    let demand = demand(&local(
        &folder,
        &["vllm", "serve", "{{ model_path }}", "--port", "{{ port }}"],
    ));
    let Demand::Share(share) = demand else {
        panic!("{demand:?}")
    };
    assert_eq!((share.per_mille, share.beside), (900, Bytes(GIB / 2)));
    assert_eq!(share.least, Bytes(WEIGHTS + PER_TOKEN * 1000 + 3 * GIB));
    assert_eq!(
        share.wanted,
        Some(Bytes(WEIGHTS + PER_TOKEN * 1000 * 20 + 3 * GIB))
    );
    assert_eq!(demand.on(Bytes(80 * GIB)), Bytes(72 * GIB + GIB / 2));
    // Never more than available, and never less than at its start.
    assert_eq!(demand.on(Bytes(4 * GIB)), Bytes(4 * GIB));
    assert_eq!(demand.on(Bytes(GIB)), share.least);
}

#[test]
fn an_explicit_memory_share_overrides_the_programs_default() {
    let folder = model_folder();
    let share = |command: &[&str]| match demand(&local(&folder, command)) {
        Demand::Share(share) => (share.per_mille, share.beside.0),
        Demand::Bytes(bytes) => panic!("{bytes}"),
    };
    let port = "{{ port }}";
    assert_eq!(
        share(&[
            "vllm",
            "serve",
            "x",
            port,
            "--gpu-memory-utilization",
            "0.45"
        ]),
        (450, GIB / 2)
    );
    assert_eq!(
        share(&[
            "vllm",
            "serve",
            "x",
            port,
            "--gpu_memory_utilization=0.5",
            "--enforce-eager"
        ]),
        (500, 0)
    );
    assert_eq!(
        share(&[
            "vllm",
            "serve",
            "x",
            port,
            "--gpu-memory-utilization",
            "nine"
        ]),
        (900, GIB / 2)
    );
    let sglang = ["python", "-m", "sglang.launch_server", port];
    assert_eq!(share(&sglang), (870, 3 * GIB));
    assert_eq!(
        share(&[&sglang[..], &["--mem-fraction-static", "0.7"]].concat()),
        (700, 3 * GIB)
    );
    assert_eq!(share(&["text-generation-launcher", port]), (1000, 0));
    assert_eq!(
        share(&[
            "text-generation-launcher",
            port,
            "--cuda-memory-fraction=0.25"
        ]),
        (250, 0)
    );
}

#[test]
fn a_cache_size_given_in_bytes_is_used_as_is() {
    let folder = model_folder();
    let of = |bytes: &str| {
        demand(&local(
            &folder,
            &[
                "vllm",
                "serve",
                "x",
                "{{ port }}",
                "--kv-cache-memory-bytes",
                bytes,
            ],
        ))
    };
    assert_eq!(of("4G"), Demand::Bytes(Bytes(WEIGHTS + 4 * GIB + 3 * GIB)));
    assert_eq!(of("1000"), Demand::Bytes(Bytes(WEIGHTS + 1000 + 3 * GIB)));
    // It adapts to the memory that the pool assigns, so the pool's figure counts.
    assert_eq!(
        of("{{ memory_bytes // 2 }}"),
        Demand::Bytes(Bytes(WEIGHTS + PER_TOKEN * 1000 * 20 + 3 * GIB))
    );
}

#[test]
fn a_narrow_cache_a_shorter_context_and_fewer_sequences_reduce_the_estimate() {
    let folder = model_folder();
    let wanted = |more: &[&str]| {
        let command = [&["vllm", "serve", "x", "{{ port }}"], more].concat();
        match demand(&local(&folder, &command)) {
            Demand::Share(share) => share.wanted.unwrap().0 - WEIGHTS - 3 * GIB,
            Demand::Bytes(bytes) => panic!("{bytes}"),
        }
    };
    assert_eq!(
        wanted(&["--kv-cache-dtype", "fp8"]),
        PER_TOKEN / 2 * 1000 * 20
    );
    assert_eq!(wanted(&["--max-model-len", "100"]), PER_TOKEN * 100 * 20);
    assert_eq!(wanted(&["--max-num-seqs=3"]), PER_TOKEN * 1000 * 3);
}

#[test]
fn llama_cpps_context_is_shared_by_all_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.gguf");
    gguf::small().write(&model);
    let total = |more: &[&str]| {
        let command = [
            &[
                "llama-server",
                "-m",
                "{{ model_path }}",
                "--port",
                "{{ port }}",
            ],
            more,
        ]
        .concat();
        match demand(&entry(model.to_str().unwrap(), &command, json!({}))) {
            Demand::Bytes(bytes) => bytes.0,
            Demand::Share(share) => panic!("{share:?}"),
        }
    };
    // The part that leaves the GPU with the cache.
    let cache = |more: &[&str]| total(more) - total(&[more, &["--no-kv-offload"]].concat());
    // The model's own context is 512.
    assert_eq!(cache(&[]), PER_TOKEN * 512);
    // Each of eight sequences has at least 256 cells.
    assert_eq!(cache(&["-np", "8"]), PER_TOKEN * 256 * 8);
    assert_eq!(cache(&["-np", "8", "--kv-unified"]), PER_TOKEN * 512);
    assert_eq!(cache(&["-c", "100"]), PER_TOKEN * 256);
    assert_eq!(cache(&["--ctx-size", "0"]), PER_TOKEN * 512);
    assert_eq!(
        cache(&["-c", "256", "-ctk", "q8_0", "-ctv", "q8_0"]),
        PER_TOKEN * 256 * 34 / 64
    );
}

#[test]
fn a_model_named_only_in_the_command_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.gguf");
    gguf::small().write(&model);
    let document = json!({"engine_config": {
        "model_id": "m", "type": "CommandEngine",
        "command": ["llama-server", "-m", model, "--port", "{{ port }}"],
    }});
    let (entry, _) = documents::read(&document).unwrap();
    let command = [
        "llama-server",
        "-m",
        "{{ model_path }}",
        "--port",
        "{{ port }}",
    ];
    let named = super::commands::entry(model.to_str().unwrap(), &command, json!({}));
    assert_eq!(demand(&entry), demand(&named));
    assert!(matches!(demand(&entry), Demand::Bytes(bytes) if bytes > GPU_OVERHEAD));
}

/// `organisation/name` in a cache with huggingface_hub's layout.
fn hub_cache(model: &tempfile::TempDir) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("hub/models--organisation--name");
    let snapshot = folder.join("snapshots/0123abcd");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(folder.join("refs")).unwrap();
    std::fs::write(folder.join("refs/main"), "0123abcd").unwrap();
    for file in std::fs::read_dir(model.path()).unwrap() {
        let file = file.unwrap();
        std::os::unix::fs::symlink(file.path(), snapshot.join(file.file_name())).unwrap();
    }
    home
}

#[test]
fn a_downloaded_model_is_read_from_the_engines_cache() {
    let folder = model_folder();
    let home = hub_cache(&folder);
    let env = json!({"engine_config": {"env": {"HF_HOME": home.path()}}});
    let command = ["my-server", "{{ model_path }}", "{{ port }}"];
    let (demand, source) = entry("organisation/name", &command, env)
        .demand(1, None)
        .unwrap();
    assert_eq!(
        demand,
        Demand::Bytes(Bytes(WEIGHTS + PER_TOKEN * 1000 * 20) + GPU_OVERHEAD)
    );
    assert_eq!((source.name(), source.warning()), ("estimate", None));
}

#[test]
fn weights_not_yet_downloaded_are_estimated_from_the_architecture_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = std::fs::read_to_string("tests/fixtures/models/smollm2-135m.json").unwrap();
    let fixture: Value = serde_json::from_str(&fixture).unwrap();
    std::fs::write(
        folder.path().join("config.json"),
        fixture["config"].to_string(),
    )
    .unwrap();
    let model = entry(
        folder.path().to_str().unwrap(),
        &["my-server", "{{ port }}"],
        json!({"engine_config": {"max_total_tokens": 100}, "deployment_config": {"max_ongoing_requests": 2}}),
    );
    let (demand, source) = model.demand(1, None).unwrap();
    assert_eq!(
        demand,
        Demand::Bytes(Bytes(269_030_016 + 23_040 * 200) + GPU_OVERHEAD)
    );
    assert_has(
        source.warning().unwrap(),
        &["not on disk", "5 %", "pool_config.memory_gib"],
    );
}

#[test]
fn a_share_can_be_estimated_for_an_unreadable_model() {
    let home = tempfile::tempdir().unwrap();
    let env = json!({"engine_config": {"env": {"HF_HOME": home.path()}}});
    let model = entry(
        "organisation/name",
        &["vllm", "serve", "{{ model_path }}", "{{ port }}"],
        env,
    );
    let (demand, source) = model.demand(1, None).unwrap();
    assert_eq!(demand.on(Bytes(10 * GIB)), Bytes(9 * GIB + GIB / 2));
    assert_has(source.warning().unwrap(), &["no local model", "share"]);
    // Without a device size, memory cannot be estimated.
    let config = Config::default();
    let error = model.spec(&config, None).unwrap_err().to_string();
    assert_has(
        &error,
        &["the memory of m is unknown", "pool_config.memory_gib"],
    );
    let (spec, _) = model
        .spec_on(&config, None, Some(DeviceSize::gpu(Bytes(10 * GIB))))
        .unwrap();
    assert_eq!(spec.bytes_per_device, Bytes(9 * GIB + GIB / 2));
}
