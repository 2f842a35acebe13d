//! Translates llama-swap's configuration: `models` and `peers` become model files, some settings become the configuration, and the
//! rest is reported.

mod groups;
mod model;
mod peers;
mod pool_section;
mod selectors;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::macros::Macros;
use crate::names::Names;
use crate::notes::{Notes, Problem};
use crate::outcome::{Import, ImportContext, ImportError, ImportedModel, Translation};
use crate::virtual_models::VirtualModels;

/// Represents llama-swap's "never": the longest duration that the pool accepts.
const NEVER: &str = "365days";

/// The warning for other keys.
const UNKNOWN: &str = "is not known to this version, and was left out";
/// Keys without a counterpart, with the alternative.
const WITHOUT: &[(&str, &str)] = &[
    (
        "logTimeFormat",
        "the log has RFC 3339 times; log.format: json is machine-readable",
    ),
    (
        "logToStdout",
        "the pool logs to standard error; `admin-client logs MODEL` shows what engines print",
    ),
    (
        "logRequests",
        "server.access_log writes a line for each request",
    ),
    (
        "metricsMaxInMemory",
        "metrics are for Prometheus, on /metrics",
    ),
    (
        "captureBuffer",
        "requests are not recorded; a key with log_prompts writes its prompts to the access log",
    ),
    ("startPort", "the pool chooses a free port for each engine"),
    (
        "sendLoadingState",
        "streams that wait for a load get comments with position and stage (server.keep_alive_comment)",
    ),
    (
        "includeAliasesInList",
        "aliases work in requests; the list has names",
    ),
    ("store", "the state is in state.dir"),
    (
        "ui",
        "the page does not exist; `admin-client top` and Prometheus show activity",
    ),
    ("performance", "GPU and memory metrics are on /metrics"),
    (
        "profiles",
        "a name always means the same model; aliases in model files add names",
    ),
    (
        "upstream",
        "engines are reached through the pool's routes only",
    ),
];

/// # Errors
/// [`ImportError`] if the file cannot be read at all. Models that cannot be translated are listed in `left_out`.
pub fn llama_swap(
    path: &Path,
    text: &str,
    around: &ImportContext<'_>,
) -> Result<Import, ImportError> {
    Import::read("llama-swap", path, text, |document, notes| {
        let reader = Reader {
            around,
            names: Names::default(),
            models: Vec::new(),
            settings: Map::new(),
            virtual_models: VirtualModels::default(),
            notes,
        };
        reader.read(document)
    })
}

struct Reader<'a> {
    around: &'a ImportContext<'a>,
    names: Names,
    models: Vec<ImportedModel>,
    settings: Map<String, Value>,
    virtual_models: VirtualModels,
    notes: &'a mut Notes,
}

/// Settings for every model.
struct Defaults {
    macros: Macros,
    /// From `globalTTL`; 0 means never.
    ttl: i64,
    load_deadline: Option<i64>,
    stop_grace: Option<i64>,
    /// Names in llama-swap, including aliases.
    preload: BTreeSet<String>,
    /// Members of groups that are never unloaded for others.
    persistent: BTreeSet<String>,
}

impl Reader<'_> {
    fn read(mut self, document: &Value) -> Result<Translation, Problem> {
        let Value::Object(root) = document else {
            return Err(Problem::at(
                "the file",
                "keys with values are expected here",
            ));
        };
        let root = Fields::new("", root);
        let macros = match root.get("macros") {
            Some(Value::Object(section)) => Macros::default().with("macros", section)?,
            None => Macros::default(),
            Some(_) => return Err(Problem::at("macros", "keys with values are expected here")),
        };
        macros.check("macros")?;
        let defaults = Defaults {
            macros,
            ttl: root.integer("globalTTL")?.unwrap_or(0),
            load_deadline: root.integer("healthCheckTimeout")?,
            stop_grace: root
                .integer("unloadTimeout")?
                .filter(|seconds| *seconds > 0),
            preload: preload(&root)?,
            persistent: groups::read(&root, self.notes)?,
        };
        let models = Fields::from_path("models", root.get("models"))?;
        // Assign all names before any model's aliases.
        let names: Vec<(&str, String)> =
            models.keys().map(|id| (id, self.names.take(id))).collect();
        let ids: BTreeMap<&str, String> = names.iter().cloned().collect();
        for (id, name) in names {
            let key = models.path(id);
            let Some(Value::Object(section)) = models.get(id) else {
                let problem = Problem::at(key, "keys with values are expected here");
                self.notes.leave_out(problem);
                continue;
            };
            match self.model((id, name), &Fields::new(&key, section), &defaults) {
                Ok(model) => self.models.push(model),
                Err(problem) => self.notes.leave_out(problem),
            }
        }
        self.check_preload(&defaults, &models);
        self.peers(&root, &defaults.macros)?;
        self.selectors(&root, &ids)?;
        self.settings(&root, defaults.ttl)?;
        if self.models.is_empty() && self.notes.left_out.is_empty() {
            let message = "there is no model in it; `models` or `peers` is expected";
            return Err(Problem::at("models", message));
        }
        self.virtual_models.write(&mut self.settings);
        Ok((self.models, self.settings))
    }

    /// Translates the global settings, and reports keys without a counterpart.
    fn settings(&mut self, root: &Fields<'_>, ttl: i64) -> Result<(), Problem> {
        let keep_hot = match ttl {
            0 => NEVER.to_owned(),
            seconds if seconds > 0 => format!("{seconds}s"),
            _ => return Err(Problem::at("globalTTL", "0 and more is expected here")),
        };
        self.settings
            .insert("pool".to_owned(), json!({"keep_hot": keep_hot}));
        if let Some(gib) = self
            .around
            .host_memory_gib
            .filter(|_| !self.models.is_empty())
        {
            self.settings.insert(
                "inventory".to_owned(),
                json!({"host_memory": format!("{gib}GiB")}),
            );
            self.notes.warn(
                "models",
                format!("run in the memory of this machine, which shows no NVIDIA GPU: inventory.host_memory is {gib}GiB, half of it; correct it, or remove it on a machine with GPUs"),
            );
        }
        // llama-swap has no evening cleanup.
        self.settings.insert(
            "evening".to_owned(),
            json!({"cleanup": null, "reopen": null}),
        );
        match root.text("logLevel")?.as_deref() {
            None => {}
            Some(level @ ("debug" | "info" | "warn" | "error")) => {
                self.settings
                    .insert("log".to_owned(), json!({"level": level}));
            }
            Some(_) => self
                .notes
                .warn("logLevel", "is not a level of llama-swap, and was left out"),
        }
        let keys = root.list("apiKeys")?.len();
        if keys > 0 {
            self.settings
                .insert("auth".to_owned(), json!({"inference": "key"}));
            self.notes.warn(
                "apiKeys",
                format!("{keys} keys were not copied, because the pool creates its own keys: run `admin-client keys create NAME --role user`, and give the new key to its user"),
            );
        } else {
            self.notes.warn(
                "apiKeys",
                "there are none, so llama-swap serves every client that reaches it; the pool requires a key from other machines (auth.inference)",
            );
        }
        const READ: [&str; 14] = [
            "macros",
            "models",
            "peers",
            "globalTTL",
            "healthCheckTimeout",
            "unloadTimeout",
            "logLevel",
            "apiKeys",
            "hooks",
            "groups",
            "matrix",
            "routing",
            "selectors",
            "$schema",
        ];
        for key in root
            .keys()
            .filter(|key| !READ.contains(key) && !key.starts_with("x-"))
        {
            self.notes.warn_without(key, key, WITHOUT, UNKNOWN);
        }
        Ok(())
    }

    fn check_preload(&mut self, defaults: &Defaults, models: &Fields<'_>) {
        let known: BTreeSet<&str> = models.keys().collect();
        let aliases: BTreeSet<String> = models
            .keys()
            .filter_map(|id| models.get(id)?.get("aliases")?.as_array())
            .flatten()
            .filter_map(|alias| {
                let id = alias.get("id").unwrap_or(alias);
                id.as_str().map(str::to_owned)
            })
            .collect();
        for name in &defaults.preload {
            if !known.contains(name.as_str()) && !aliases.contains(name) {
                self.notes.warn(
                    "hooks.on_startup.preload",
                    format!("refers to {name}, which is not a model here"),
                );
            }
        }
    }
}

/// The models that are loaded at the start.
fn preload(root: &Fields<'_>) -> Result<BTreeSet<String>, Problem> {
    let hooks = Fields::from_path("hooks", root.get("hooks"))?;
    let on_startup = Fields::from_path("hooks.on_startup", hooks.get("on_startup"))?;
    let names = on_startup.texts("preload")?.into_iter();
    Ok(names
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect())
}
