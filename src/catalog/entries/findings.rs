//! Finds missing or damaged model files before a load fails on them. Reads headers and sizes only, and starts nothing.

use std::path::{Path, PathBuf};

use model_files::{Architecture, FileError, damage};
use serde::de::IgnoredAny;

use super::entry::Entry;
use crate::engines::{EngineKind, ServerRecipe};
use crate::recipes::{CandleRecipe, KeySource, RayServeRecipe, Recipe, candle_models};

/// A problem with a model's local files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The key of the model file that refers to the file.
    pub key: String,
    /// The file and its problem, with numbers, and what to do.
    pub problem: String,
    /// The model cannot be loaded in this state.
    pub prevents_load: bool,
}

/// File names of tokenizers.
const TOKENIZERS: [&str; 9] = [
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tekken.json",
    "tiktoken.model",
    "qwen.tiktoken",
];
/// Options that name another tokenizer, or disable it.
const TOKENIZER_OPTIONS: [&str; 3] = ["tokenizer", "tokenizer_path", "skip_tokenizer_init"];
const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "config.json";
/// For engines that read the files in the form published by the model's authors.
const PARAMS: &str = "params.json";

impl Entry {
    /// Lists missing or damaged files of the model. Blocking: reads their headers.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Findings {
            key: self.path_key(),
            list: Vec::new(),
        };
        match &self.recipe {
            Recipe::Candle(recipe) => self.of_candle(recipe, &mut found),
            Recipe::Server(recipe) => self.of_server(recipe, &mut found),
            Recipe::Command(recipe) => {
                found.folder("engine_config.working_dir", recipe.working_dir.as_deref());
                let path = recipe.model_path.as_deref().map(Path::new);
                if let Some(path) = path.filter(|path| path.is_absolute() && !self.waits()) {
                    found.damaged(path);
                }
            }
            Recipe::Remote(recipe) => of_key(recipe.key.as_ref(), &mut found),
            Recipe::RayServe(recipe) => of_ray_serve(recipe, &mut found),
        }
        self.of_placement(&mut found);
        found.list
    }

    /// Options of llama-server that it refuses, or that contradict each other.
    fn of_placement(&self, found: &mut Findings) {
        let devices = self.devices_per_replica;
        let Some((options, _)) = self.llama_options(devices) else {
            return;
        };
        for problem in options.offload.contradictions(devices as usize) {
            let key = match (&self.recipe, problem.split_whitespace().next()) {
                (Recipe::Server(_), Some(option)) => format!(
                    "engine_config.engine_kwargs.{}",
                    option.trim_start_matches('-').replace('-', "_")
                ),
                _ => "engine_config.command".to_owned(),
            };
            found.note(
                &key,
                format!("{problem}; llama-server refuses it or does not use it"),
            );
        }
    }

    /// The weights have not been fetched yet.
    pub(crate) fn waits(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| !fetch.is_here())
    }

    fn of_candle(&self, recipe: &CandleRecipe, found: &mut Findings) {
        let path = &recipe.model_path;
        if self.waits() || !found.damaged(path) {
            return;
        }
        if let Some(file) = candle_models::gguf_file(path) {
            // A damaged header has already been reported.
            if let Err(error) = recipe.context_tokens()
                && found.list.is_empty()
            {
                let key = "engine_config.max_total_tokens";
                found.prevents(
                    key,
                    format!(
                        "{error}; write max_total_tokens, or take another file than {}",
                        file.display()
                    ),
                );
            }
            return;
        }
        let has = |name: &str| path.join(name).is_file();
        if !path.is_dir() {
            found.missing(format!(
                "{} is neither a folder nor a GGUF file",
                path.display()
            ));
            return;
        }
        if !model_files::safetensors::has_weights(path) {
            let weights = safetensors_in(path);
            if weights.len() != 1 {
                found.missing(format!(
                    "{} has no weights that the embedded engine reads: model.safetensors, shards with model.safetensors.index.json, or one GGUF file",
                    path.display()
                ));
            }
        }
        if !has(CONFIG) {
            found.missing(format!("{} has no {CONFIG}", path.display()));
        } else if !found.names(CONFIG)
            && let Err(error) = Architecture::of_folder(path)
        {
            found.missing(error.to_string());
        }
        match tokenizer_problem(&path.join(TOKENIZER)) {
            None => {}
            Some(problem) => found.missing(problem),
        }
    }

    fn of_server(&self, recipe: &ServerRecipe, found: &mut Findings) {
        found.folder("engine_config.working_dir", recipe.working_dir.as_deref());
        for (name, path) in &recipe.adapters {
            // Adapters from buckets are fetched with the model.
            if !path.exists() && self.fetch.is_none() {
                let problem = format!("{} for the adapter {name} does not exist", path.display());
                found.prevents("engine_config.lora_adapters", problem);
            }
        }
        let path = Path::new(&recipe.model);
        // With a command prefix, this may be a path in the container.
        let is_in_container = !recipe.prefix.is_empty() && !path.exists();
        if !recipe.is_local || is_in_container || self.waits() || !found.damaged(path) {
            return;
        }
        let reads_folders = matches!(
            recipe.engine.kind,
            EngineKind::Vllm | EngineKind::Sglang | EngineKind::Tgi
        );
        if !reads_folders || !path.is_dir() {
            return;
        }
        let has = |name: &str| path.join(name).is_file();
        let name = recipe.engine.name();
        if model_files::bytes_of_weight_files(path).is_none() {
            found.missing(format!(
                "{} has no weights: {name} reads *.safetensors and *.bin",
                path.display()
            ));
        }
        if !has(CONFIG)
            && !has(PARAMS)
            && !model_files::gguf_of(path).is_ok_and(|file| file.is_some())
        {
            found.missing(format!("{} has no {CONFIG}", path.display()));
        }
        let mut options = recipe.flags.of_key.iter();
        let has_own_tokenizer = options.any(|(key, _)| TOKENIZER_OPTIONS.contains(&&**key));
        if !has_own_tokenizer && !TOKENIZERS.iter().any(|name| has(name)) {
            found.note(
                &found.key.clone(),
                format!("{} has no tokenizer ({TOKENIZER} or another form); {name} will probably not start", path.display()),
            );
        }
    }
}

/// A key file is read when the model is loaded.
fn of_key(key: Option<&KeySource>, found: &mut Findings) {
    match key {
        Some(KeySource::File(path)) if !path.is_file() => found.prevents(
            "engine_config.api_key_file",
            format!("the file {} does not exist; write the key into it, or set another file", path.display()),
        ),
        Some(KeySource::Environment(name)) if std::env::var_os(name).is_none() => found.note(
            "engine_config.api_key_env",
            format!("{name} is not set in this environment; loads fail unless it is set in the service's environment"),
        ),
        _ => {}
    }
}

fn of_ray_serve(recipe: &RayServeRecipe, found: &mut Findings) {
    of_key(recipe.key.as_ref(), found);
    let token = recipe.place.token_file.as_deref();
    if let Some(path) = token.filter(|path| recipe.place.is_of_model && !path.is_file()) {
        let problem = format!(
            "the file {} does not exist; write Ray's token into it (`ray get-auth-token` prints it), or remove the key",
            path.display()
        );
        found.prevents("engine_config.token_file", problem);
    }
}

/// Collects the findings about one model.
struct Findings {
    /// The key for the model's folder.
    key: String,
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, key: &str, problem: String, prevents_load: bool) {
        self.list.push(Finding {
            key: key.to_owned(),
            problem,
            prevents_load,
        });
    }

    fn prevents(&mut self, key: &str, problem: String) {
        self.add(key, problem, true);
    }

    fn note(&mut self, key: &str, problem: String) {
        self.add(key, problem, false);
    }

    /// Reports that the model's folder lacks a file.
    fn missing(&mut self, problem: String) {
        let problem = format!("{problem}; download the model completely, or name its folder");
        self.prevents(&self.key.clone(), problem);
    }

    fn names(&self, file: &str) -> bool {
        let end = format!("/{file}: ");
        self.list
            .iter()
            .any(|finding| finding.problem.contains(&end))
    }

    fn folder(&mut self, key: &str, folder: Option<&Path>) {
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let problem = format!(
                "the folder {} does not exist; create it, or set another folder",
                folder.display()
            );
            self.prevents(key, problem);
        }
    }

    /// Adds the damaged files at `path`. Returns false if the path does not exist.
    fn damaged(&mut self, path: &Path) -> bool {
        if !path.exists() {
            let problem = format!(
                "there is no {}; copy the model there, or set the key to its folder",
                path.display()
            );
            self.prevents(&self.key.clone(), problem);
            return false;
        }
        for error in damage(path) {
            self.prevents(&self.key.clone(), with_advice(&error));
        }
        true
    }
}

fn with_advice(error: &FileError) -> String {
    match error {
        FileError::Read { .. } => {
            format!("{error}; make it readable for the service's account")
        }
        FileError::Damaged { .. } | FileError::StandIn { .. } => error.to_string(),
        FileError::Broken { problem, .. } if problem.contains("again") => error.to_string(),
        FileError::Broken { .. } | FileError::Unknown { .. } => {
            format!("{error}; download it again")
        }
    }
}

/// The safetensors files of a folder.
fn safetensors_in(folder: &Path) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(folder).into_iter().flatten();
    let files = listing.filter_map(|file| Some(file.ok()?.path()));
    files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "safetensors")
        })
        .collect()
}

/// The reason why the embedded engine cannot use a tokenizer.
fn tokenizer_problem(file: &Path) -> Option<String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let folder = file.parent().unwrap_or(file);
            return Some(format!("{} has no {TOKENIZER}", folder.display()));
        }
        Err(error) => return Some(format!("cannot read {}: {error}", file.display())),
    };
    let read: Result<IgnoredAny, _> = reading::json(&text);
    match (text.len(), read) {
        (0, _) => Some(format!("{} is empty (0 bytes)", file.display())),
        (length, Err(flaw)) => Some(format!(
            "{} ({length} bytes) is not JSON: {flaw}",
            file.display()
        )),
        (_, Ok(_)) => None,
    }
}
