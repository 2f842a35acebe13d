//! Translates a llama-swap model to a model file: to the engine from the table if its complete command is understood,
//! otherwise to a CommandEngine with the unchanged command.
//! One file because the command of a model is taken apart and put together here, word by word.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Defaults, Reader};
use crate::command;
use crate::engines::{self, Native};
use crate::fields::Fields;
use crate::files;
use crate::macros::{Macros, PORT};
use crate::names;
use crate::notes::Problem;
use crate::outcome::ImportedModel;
use crate::secrets::is_secret_name;

/// Simultaneous requests per model in llama-swap, unless its file sets them.
const CONCURRENCY: i64 = 10;
/// The parts of a model's file.
#[derive(Default)]
pub(super) struct Parts {
    env: Map<String, Value>,
    propagated: Vec<String>,
    /// Indices from `CUDA_VISIBLE_DEVICES`, or from the variables of AMD's GPUs.
    pub devices: Vec<u64>,
    notes: Vec<(String, String)>,
}

impl Reader<'_> {
    pub(super) fn model(
        &mut self,
        (id, name): (&str, String),
        model: &Fields<'_>,
        defaults: &Defaults,
    ) -> Result<ImportedModel, Problem> {
        let macros = match model.get("macros") {
            None => defaults.macros.clone(),
            Some(Value::Object(section)) => {
                let macros = defaults.macros.with(&model.path("macros"), section)?;
                macros.check(&model.path("macros"))?;
                macros
            }
            Some(_) => {
                return Err(Problem::at(
                    model.path("macros"),
                    "keys with values are expected here",
                ));
            }
        };
        let macros = macros.with_model(id);
        let command = self.filled(model, "cmd", &macros)?;
        let command = command.ok_or_else(|| Problem::at(model.path("cmd"), "is missing"))?;
        let argv = command::arguments(&command)
            .map_err(|problem| Problem::at(model.path("cmd"), problem))?;
        let proxy = self.filled(model, "proxy", &macros)?;
        let mut parts = Parts::default();
        self.environment(model, &macros, &mut parts)?;

        let mut made = None;
        if let Some(native) = engines::native(&argv) {
            match native.and_then(|native| {
                self.native_document(&name, model, &macros, &parts, native, proxy.as_deref())
            }) {
                Ok(document) => made = Some(document),
                Err(why) => parts.notes.push((
                    model.path("cmd"),
                    format!("stays a command (CommandEngine): {why}"),
                )),
            }
        }
        let (mut document, notes) = match made {
            Some(made) => made,
            None => {
                let document =
                    self.command_document(&name, model, &macros, &parts, &argv, proxy.as_deref())?;
                let notes = command_notes(&argv).into_iter();
                let notes = notes.map(|note| (model.path("cmd"), note)).collect();
                (document, notes)
            }
        };
        let cmd = model.path("cmd");
        parts.notes.extend(notes);
        self.pool_section(id, model, &macros, defaults, &parts, &mut document)?;
        let problem = files::check(&document).map_err(|problem| Problem::at(&cmd, problem))?;
        if let Some(problem) = problem {
            let note = match guess(&argv, self.around.folders) {
                Some(gib) if document["engine_config"]["type"] == "CommandEngine" => {
                    document["pool_config"]["memory_gib"] = json!(gib);
                    format!(
                        "its memory is estimated as the size of its files plus one fifth (pool_config.memory_gib: {gib}); correct it"
                    )
                }
                _ => problem,
            };
            parts.notes.push((cmd, note));
        }
        if name != id {
            parts.notes.push((
                model.path("cmd"),
                format!("{id} is {name} here: a name may have one `/`, letters, digits, `.`, `_` and `-`, and belongs to one model"),
            ));
        }
        for (key, message) in parts.notes {
            self.notes.warn(&key, message);
        }
        let engine = document["engine_config"]["type"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(ImportedModel {
            name,
            engine,
            key: cmd_owner(model),
            document,
        })
    }

    /// Expands the macros in a field. Copied values of variables cause a note, because they are now fixed in the file.
    pub(super) fn filled(
        &mut self,
        model: &Fields<'_>,
        key: &str,
        macros: &Macros,
    ) -> Result<Option<String>, Problem> {
        let Some(text) = model.text(key)? else {
            return Ok(None);
        };
        let path = model.path(key);
        let mut copied = Vec::new();
        let filled = macros
            .expand(&text, self.around.environment, &mut copied)
            .map_err(|problem| Problem::at(&path, problem))?;
        copied.sort();
        copied.dedup();
        for name in copied {
            self.notes.warn(
                &path,
                format!("now contains the current value of ${{env.{name}}}"),
            );
        }
        Ok(Some(filled))
    }

    fn environment(
        &mut self,
        model: &Fields<'_>,
        macros: &Macros,
        parts: &mut Parts,
    ) -> Result<(), Problem> {
        for (nth, entry) in model.texts("env")?.into_iter().enumerate() {
            let path = format!("{}[{nth}]", model.path("env"));
            let Some((name, value)) = entry.split_once('=') else {
                return Err(Problem::at(path, "NAME=value is expected here"));
            };
            if value == format!("${{env.{name}}}") {
                parts.propagated.push(name.to_owned());
                continue;
            }
            if is_secret_name(name) {
                parts.propagated.push(name.to_owned());
                parts.notes.push((
                    path,
                    format!("looks like a secret and was not copied: set {name} in the environment of model-pool, which passes it on"),
                ));
                continue;
            }
            let mut copied = Vec::new();
            let value = macros
                .expand(value, self.around.environment, &mut copied)
                .map_err(|problem| Problem::at(&path, problem))?;
            if [
                "CUDA_VISIBLE_DEVICES",
                "HIP_VISIBLE_DEVICES",
                "ROCR_VISIBLE_DEVICES",
            ]
            .contains(&name)
            {
                let indices: Result<Vec<u64>, _> =
                    value.split(',').map(|text| text.trim().parse()).collect();
                match indices {
                    Ok(indices) => parts.devices = indices,
                    Err(_) => parts.notes.push((
                        path,
                        "is set by the pool for each replica; set pool_config.devices.names to the GPUs".to_owned(),
                    )),
                }
                continue;
            }
            if let Some(why) = catalog::barred_variable(None, name) {
                parts
                    .notes
                    .push((path, format!("was left out: {name} {why}")));
                continue;
            }
            let value = command::as_template(&value).replace(PORT, command::PORT_TEMPLATE);
            parts.env.insert(name.to_owned(), json!(value));
        }
        Ok(())
    }

    /// The keys of `engine_config` common to all engines.
    fn engine_section(
        &mut self,
        name: &str,
        engine: &str,
        model: &Fields<'_>,
        macros: &Macros,
        parts: &Parts,
        own: Map<String, Value>,
    ) -> Result<Map<String, Value>, Problem> {
        let mut section = Map::new();
        section.insert("model_id".to_owned(), json!(name));
        section.insert("type".to_owned(), json!(engine));
        section.extend(own);
        if let Some(served) = self
            .filled(model, "useModelName", macros)?
            .filter(|name| !name.is_empty())
        {
            section.insert("served_model_name".to_owned(), json!(served));
        }
        if !parts.env.is_empty() {
            section.insert("env".to_owned(), Value::Object(parts.env.clone()));
        }
        if !parts.propagated.is_empty() {
            section.insert("env_vars_to_propogate".to_owned(), json!(parts.propagated));
        }
        Ok(section)
    }

    /// A document with the native engine; `Err`: the reason for keeping the command.
    fn native_document(
        &mut self,
        name: &str,
        model: &Fields<'_>,
        macros: &Macros,
        parts: &Parts,
        mut native: Native,
        proxy: Option<&str>,
    ) -> Result<(Value, Vec<(String, String)>), String> {
        let cmd = || model.path("cmd");
        let mut notes: Vec<(String, String)> =
            native.notes.drain(..).map(|note| (cmd(), note)).collect();
        if let Some(proxy) = proxy {
            command::host_and_port_of(proxy)?;
        }
        let check = model
            .text("checkEndpoint")
            .map_err(|problem| problem.message)?;
        if let Some(path) = check.filter(|path| path != "/health") {
            let note = format!(
                "{path} is not used: {} is ready when /health succeeds",
                native.engine
            );
            notes.push((model.path("checkEndpoint"), note));
        }
        if let Some(Value::String(path)) = native.section.get_mut("model_path") {
            *path = self.model_path(path);
        }
        let engine = native.engine;
        let section = self
            .engine_section(name, engine, model, macros, parts, native.section)
            .map_err(|problem| problem.message)?;
        let mut document = json!({"engine_config": Value::Object(section)});
        if document.to_string().contains(PORT) {
            return Err("uses ${PORT} outside the port option".to_owned());
        }
        let mut pool = Map::new();
        if let Some(gpus) = native
            .gpus
            .filter(|gpus| *gpus > 1 || engine == "VLLMEngine")
        {
            pool.insert("gpus_per_replica".to_owned(), json!(gpus));
        } else if parts.devices.len() > 1 {
            pool.insert("gpus_per_replica".to_owned(), json!(parts.devices.len()));
        }
        if !native.devices.is_empty() {
            // Numbers count the GPUs that the program sees.
            let visible = |index: &u64| {
                let index = usize::try_from(*index).ok()?;
                parts.devices.get(index).copied()
            };
            let indices: Option<Vec<u64>> = if parts.devices.is_empty() {
                Some(native.devices)
            } else {
                native.devices.iter().map(visible).collect()
            };
            let indices = indices
                .ok_or("--device or --main-gpu names a GPU that CUDA_VISIBLE_DEVICES hides")?;
            pool.insert("devices".to_owned(), json!({"indices": indices}));
        }
        if let Some(sleep) = native.sleep {
            pool.insert("sleep".to_owned(), json!(sleep));
        }
        // llama-swap passes all fields of a request.
        pool.insert("unknown_fields".to_owned(), json!("pass"));
        document["pool_config"] = Value::Object(pool);
        let limit = model
            .integer("concurrencyLimit")
            .map_err(|problem| problem.message)?;
        let limit = limit
            .and_then(|limit| u64::try_from(limit).ok())
            .filter(|limit| *limit > 0);
        if let (Some(limit), Some(seats)) = (limit, native.seats)
            && limit != seats
        {
            let note = format!(
                "{limit} is not used: the engine has {seats} slots (deployment_config.max_ongoing_requests), and further requests wait"
            );
            notes.push((model.path("concurrencyLimit"), note));
        }
        if let Some(seats) = native.seats.or(limit) {
            document["deployment_config"] = json!({"max_ongoing_requests": seats});
        }
        files::check(&document).map_err(|problem| format!("{engine} refuses it: {problem}"))?;
        Ok((document, notes))
    }

    fn command_document(
        &mut self,
        name: &str,
        model: &Fields<'_>,
        macros: &Macros,
        parts: &Parts,
        argv: &[String],
        proxy: Option<&str>,
    ) -> Result<Value, Problem> {
        let argv: Vec<String> = without_api_key(argv)
            .iter()
            .map(|word| command::as_template(word))
            .collect();
        let listening = command::with_port(&argv, proxy)
            .map_err(|problem| Problem::at(model.path("cmd"), problem))?;
        let mut own = Map::new();
        own.insert("command".to_owned(), json!(listening.argv));
        if let Some(listen) = listening.listen {
            if listen.contains(':') {
                self.notes.warn(
                    &model.path("proxy"),
                    format!("names a port that cmd does not: the program is assumed to listen on {listen} (engine_config.listen), so it has one replica"),
                );
            }
            own.insert("listen".to_owned(), json!(listen));
        }
        match self.filled(model, "checkEndpoint", macros)?.as_deref() {
            None | Some("" | "/health") => {}
            Some("none") => {
                self.notes.warn(
                    &model.path("checkEndpoint"),
                    "none is not possible: the engine is ready when /v1/models answers 200",
                );
                own.insert("ready_path".to_owned(), json!("/v1/models"));
            }
            Some(path) => {
                own.insert("ready_path".to_owned(), json!(path));
            }
        }
        let section = self.engine_section(name, "CommandEngine", model, macros, parts, own)?;
        let mut document = json!({"engine_config": Value::Object(section)});
        let limit = model
            .integer("concurrencyLimit")?
            .filter(|limit| *limit > 0);
        document["pool_config"] = json!({});
        if parts.devices.len() > 1 {
            document["pool_config"] = json!({"gpus_per_replica": parts.devices.len()});
        }
        document["deployment_config"] =
            json!({"max_ongoing_requests": limit.unwrap_or(CONCURRENCY)});
        Ok(document)
    }

    /// Relative paths depend on llama-swap's working directory, which is unknown here.
    fn model_path(&self, path: &str) -> String {
        if Path::new(path).is_absolute() {
            return path.to_owned();
        }
        let folders = self.around.folders.iter();
        let mut found = folders
            .map(|folder| folder.join(path))
            .filter(|path| path.exists());
        match found.next().and_then(|path| std::path::absolute(path).ok()) {
            Some(found) => found.display().to_string(),
            None => path.to_owned(),
        }
    }
}

/// The path of the model itself.
fn cmd_owner(model: &Fields<'_>) -> String {
    let cmd = model.path("cmd");
    cmd.strip_suffix(".cmd").unwrap_or(&cmd).to_owned()
}

/// Estimates the memory of an unknown program in GiB: the weight files named in its command, plus one fifth, plus half a GiB.
fn guess(argv: &[String], folders: &[&Path]) -> Option<f64> {
    const ENDINGS: [&str; 6] = ["gguf", "bin", "safetensors", "onnx", "pt", "pth"];
    let size = |word: &String| {
        let path = Path::new(word.rsplit('=').next().unwrap_or(word));
        let ending = path.extension()?.to_str()?;
        let mut places = folders.iter().map(|folder| folder.join(path));
        let data = places.find_map(|path| std::fs::metadata(path).ok())?;
        (ENDINGS.contains(&ending) && data.is_file()).then_some(data.len())
    };
    let bytes: u64 = argv.iter().filter_map(size).sum();
    let gib = bytes as f64 / f64::from(1 << 30) * 1.2 + 0.5;
    (bytes > 0).then(|| (gib * 10.0).ceil() / 10.0)
}

/// Removes the key, because the pool sends no key to its engines.
fn without_api_key(argv: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut rest = argv.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--api-key" => {
                rest.next();
            }
            word if word.starts_with("--api-key=") => {}
            word => kept.push(word.to_owned()),
        }
    }
    kept
}

/// Notes on points to check in an unchanged command.
fn command_notes(argv: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let base = |word: &String| names::base(word).to_owned();
    let has = |wanted: &str| argv.iter().any(|word| word == wanted);
    if argv
        .iter()
        .take(2)
        .map(base)
        .any(|word| ["docker", "podman", "nerdctl"].contains(&word.as_str()))
    {
        notes.push("runs a container directly: the pool cannot remove it after a crash, nor see its memory. Use the engine's own type with command_prefix and {{ container }}: docs/guides/engines.md#containers".to_owned());
    }
    if argv.iter().any(|word| word.starts_with("--api-key")) {
        notes.push("--api-key was left out: only this machine reaches engines, and clients use keys of the pool".to_owned());
    }
    if has("0.0.0.0") || has("--host=0.0.0.0") {
        notes.push(
            "listens on all addresses, where clients can bypass the pool; write 127.0.0.1"
                .to_owned(),
        );
    }
    let names_device = |word: &String| {
        ["-dev", "--device", "-mg", "--main-gpu"].contains(&word.split('=').next().unwrap_or(word))
    };
    if argv.iter().any(names_device) {
        notes.push("names GPUs by the numbers of this machine: the pool shows an engine only its own GPUs, numbered from 0. Remove --device and --main-gpu, and name GPUs in pool_config.devices".to_owned());
    }
    let is_relative = |word: &String| word.starts_with("./") || word.starts_with("../");
    if argv.iter().any(is_relative) {
        notes.push("has relative paths, which are based on the working directory of model-pool; set engine_config.working_dir, or write absolute paths".to_owned());
    }
    notes
}
