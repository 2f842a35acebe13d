//! Every parser of untrusted input, one function each, for the fuzzers in `fuzz/` and for tests/plain/parsers.rs. Any panic is a
//! bug. Not a public interface.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use access::oidc;
use catalog::{Catalog, Entry, Fetch, Generation, ModelFiles, Reference, Source, weights_of};
use config::{
    Config, CronExpression, IdleProbe, KeepHot, Length, Listen, MaxTurn, MemoryPart, MinResident,
    Size,
};

/// Parses untrusted bytes. The caller owns the folder, which parsers of files use.
pub type Parser = fn(&[u8], &Path);

/// Every parser by the name of its fuzzer, which is also its folder in `fuzz/corpus`.
pub const PARSERS: [(&str, Parser); 16] = [
    ("body", body),
    ("outgoing", outgoing),
    ("stream", stream),
    ("safetensors", safetensors),
    ("gguf", gguf),
    ("model_config", model_config),
    ("model_file", model_file),
    ("config", config),
    ("units", units),
    ("hub_listing", hub_listing),
    ("manifest", manifest),
    ("dialect", dialect),
    ("form", form),
    ("head", head),
    ("token", token),
    ("guardian", guardian),
];

/// A client's request body.
pub fn body(bytes: &[u8], _: &Path) {
    gateway::fuzzing::body(bytes);
}

/// A client's body on its way to engines, for several kinds of model files.
pub fn outgoing(bytes: &[u8], _: &Path) {
    static KINDS: OnceLock<Vec<Generation>> = OnceLock::new();
    let format = json!({"system": "S:{instruction}", "user": "Q:{instruction}", "assistant": "A:{instruction}",
        "trailing_assistant": "A:", "default_system_message": "Be brief."});
    let kinds = KINDS.get_or_init(|| {
        [
            json!({}),
            json!({"prompt_format": format, "stopping_sequences": ["Q:"]}),
            json!({"prompt_format": null}),
        ]
        .map(|generation| entry(json!({"generation": generation})).generation)
        .into()
    });
    for generation in kinds {
        gateway::fuzzing::to_engine(bytes, generation);
    }
}

/// An engine's stream.
pub fn stream(bytes: &[u8], _: &Path) {
    gateway::fuzzing::from_engine(bytes);
}

/// The header of a safetensors file.
pub fn safetensors(bytes: &[u8], folder: &Path) {
    let _ = weights_of(&written(folder, "model.safetensors", bytes));
}

/// The header of a GGUF file, with the model's architecture.
pub fn gguf(bytes: &[u8], folder: &Path) {
    let _ = ModelFiles::read(&written(folder, "model.gguf", bytes));
}

/// A model's `config.json`, in a folder with weights of one tensor.
pub fn model_config(bytes: &[u8], folder: &Path) {
    const HEADER: &[u8] = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let folder = folder.join("model");
    let weights = folder.join("model.safetensors");
    if !weights.exists() {
        let length = (HEADER.len() as u64).to_le_bytes();
        let _ = fs::create_dir_all(&folder);
        let _ = fs::write(weights, [&length[..], HEADER, &[0; 4]].concat());
    }
    written(&folder, "config.json", bytes);
    let _ = ModelFiles::read(&folder);
}

/// A model file, in every supported form.
pub fn model_file(bytes: &[u8], folder: &Path) {
    let file = written(folder, "model.yaml", bytes);
    let mut config = Config::default();
    config.catalog.model_reference = folder.join("no-reference.json");
    let _ = Catalog::load_from(&[file], &config);
}

/// The configuration.
pub fn config(bytes: &[u8], folder: &Path) {
    let file = written(folder, "model-pool.yaml", bytes);
    if let Ok(config) = Config::load(Some(&file), &BTreeMap::new()) {
        let _ = config.effective_json();
        let _ = config.limits();
    }
}

/// Durations, sizes and other single-word values.
pub fn units(bytes: &[u8], _: &Path) {
    let text = String::from_utf8_lossy(bytes);
    let _ = text.parse::<Length>().map(Length::duration);
    let _ = text.parse::<Size>();
    let _ = text.parse::<MemoryPart>();
    let _ = text.parse::<MaxTurn>();
    let _ = text.parse::<MinResident>();
    let _ = text.parse::<KeepHot>();
    let _ = text.parse::<IdleProbe>();
    let _ = text.parse::<CronExpression>();
    let _ = text.parse::<Listen>();
}

/// The hub's listing of a repository.
pub fn hub_listing(bytes: &[u8], _: &Path) {
    static WANTED: OnceLock<Fetch> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let entry = entry(json!({"hf_model_id": "lab/model"}));
        entry.fetch.expect("a name of the hub is fetched")
    });
    source::fuzzing::listing(bytes, wanted);
}

/// The manifest that a fetch left behind.
pub fn manifest(bytes: &[u8], _: &Path) {
    source::fuzzing::manifest(bytes);
}

/// A client's request in the format of another API, followed by an engine's response.
pub fn dialect(bytes: &[u8], _: &Path) {
    gateway::fuzzing::translated_bodies(bytes);
}

/// The form of an audio request: its content type, a line end, and the body.
pub fn form(bytes: &[u8], _: &Path) {
    gateway::fuzzing::form(bytes);
}

/// The header lines of a request: the client's address, and whether a page of another site sent it.
pub fn head(bytes: &[u8], _: &Path) {
    gateway::fuzzing::head(bytes);
}

/// A bearer token, then, after zero bytes, a token's claims and an issuer's keys.
pub fn token(bytes: &[u8], _: &Path) {
    oidc::fuzzing::token(bytes);
}

/// The messages of controllers and guardians.
pub fn guardian(bytes: &[u8], _: &Path) {
    guardian::fuzzing::messages(bytes);
}

/// A model of the catalogue with these additional keys.
fn entry(more: Value) -> Entry {
    let mut keys = json!({"model_id": "lab/model", "type": "VLLMEngine", "max_total_tokens": 64});
    for (name, value) in more.as_object().into_iter().flatten() {
        keys[name] = value.clone();
    }
    if keys.get("hf_model_id").is_none() {
        keys["model_path"] = json!("/no/such/folder");
    }
    let document = json!({"engine_config": keys});
    let read = Entry::from_document(
        &document,
        Source::Registered,
        &Config::default(),
        &Reference::default(),
    );
    read.expect("a model that is written here").0
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("the caller's folder can be written");
    path
}
