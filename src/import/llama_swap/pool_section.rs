//! Translates a llama-swap model's settings for the pool (priority, durations, names), and reports keys without a counterpart.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::model::Parts;
use super::{Defaults, NEVER, Reader, UNKNOWN};
use crate::fields::{Fields, scalar};
use crate::files;
use crate::macros::Macros;
use crate::notes::Problem;

/// Request parameters that a model file can set defaults for, with any engine.
const DEFAULTS: [&str; 12] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "seed",
    "max_tokens",
    "min_tokens",
];

/// Keys without a counterpart, with the alternative.
const WITHOUT: &[(&str, &str)] = &[
    (
        "cmdStop",
        "the pool stops an engine by SIGTERM to all its processes, and by SIGKILL after pool_config.stop_grace",
    ),
    (
        "unlisted",
        "every model is in the list, for keys that may use it (admin-client keys create NAME --models …)",
    ),
    (
        "metadata capabilities",
        "the list of models has no additional fields",
    ),
    (
        "sendLoadingState",
        "streams that wait for a load get comments with position and stage",
    ),
    (
        "timeouts",
        "pool_config.first_token_after, stall_after and load_deadline define when an engine counts as dead",
    ),
];

const READ: [&str; 13] = [
    "cmd",
    "proxy",
    "macros",
    "env",
    "checkEndpoint",
    "ttl",
    "unloadTimeout",
    "useModelName",
    "filters",
    "aliases",
    "concurrencyLimit",
    "name",
    "description",
];

impl Reader<'_> {
    /// Builds `pool_config`: priority, durations and names.
    pub(super) fn pool_section(
        &mut self,
        id: &str,
        model: &Fields<'_>,
        macros: &Macros,
        defaults: &Defaults,
        parts: &Parts,
        document: &mut Value,
    ) -> Result<(), Problem> {
        let aliases = self.aliases(model, macros)?;
        let is_hot = |names: &BTreeSet<String>| {
            names.contains(id) || aliases.iter().any(|alias| names.contains(alias))
        };
        let mut pool = Map::new();
        if is_hot(&defaults.preload) || is_hot(&defaults.persistent) {
            pool.insert("priority".to_owned(), json!(2));
        }
        match model.integer("ttl")? {
            None | Some(-1) => {}
            Some(seconds) if seconds == defaults.ttl => {}
            Some(0) => {
                pool.insert("keep_hot".to_owned(), json!(NEVER));
            }
            Some(seconds) if seconds > 0 => {
                pool.insert("keep_hot".to_owned(), json!(format!("{seconds}s")));
            }
            Some(_) => {
                return Err(Problem::at(
                    model.path("ttl"),
                    "-1 and more is expected here",
                ));
            }
        }
        if !aliases.is_empty() {
            pool.insert("aliases".to_owned(), json!(aliases));
        }
        if !parts.devices.is_empty() {
            pool.insert("devices".to_owned(), json!({"indices": parts.devices}));
        }
        // llama-swap's minimum is 15 seconds.
        if let Some(seconds) = defaults.load_deadline {
            pool.insert(
                "load_deadline".to_owned(),
                json!(format!("{}s", seconds.max(15))),
            );
        }
        let grace = model
            .integer("unloadTimeout")?
            .filter(|seconds| *seconds > 0);
        if let Some(seconds) = grace.or(defaults.stop_grace) {
            pool.insert("stop_grace".to_owned(), json!(format!("{seconds}s")));
        }
        let mut labels = Map::new();
        for key in ["name", "description"] {
            if let Some(text) = self
                .filled(model, key, macros)?
                .filter(|text| !text.is_empty())
            {
                labels.insert(key.to_owned(), json!(text));
            }
        }
        if !labels.is_empty() {
            self.notes.warn(
                &model.path(if labels.contains_key("name") {
                    "name"
                } else {
                    "description"
                }),
                "is kept in pool_config.labels; the list of models shows names only",
            );
            pool.insert("labels".to_owned(), Value::Object(labels));
        }
        if let Value::Object(own) = &mut document["pool_config"] {
            pool.extend(std::mem::take(own));
        }
        document["pool_config"] = Value::Object(pool);
        if document["pool_config"]
            .as_object()
            .is_some_and(Map::is_empty)
            && let Some(document) = document.as_object_mut()
        {
            document.shift_remove("pool_config");
        }
        self.filters(model, document)?;
        for key in model
            .keys()
            .filter(|key| !READ.contains(key) && !key.starts_with("x-"))
        {
            self.notes
                .warn_without(&model.path(key), key, WITHOUT, UNKNOWN);
        }
        Ok(())
    }

    fn aliases(&mut self, model: &Fields<'_>, macros: &Macros) -> Result<Vec<String>, Problem> {
        let mut aliases = Vec::new();
        for (nth, value) in model.list("aliases")?.iter().enumerate() {
            let path = format!("{}[{nth}]", model.path("aliases"));
            let id = value.get("id").unwrap_or(value);
            let Some(alias) = scalar(id) else {
                return Err(Problem::at(path, "a name is expected here"));
            };
            let alias = macros
                .expand(&alias, self.around.environment, &mut Vec::new())
                .map_err(|problem| Problem::at(&path, problem))?;
            match self.names.take_alias(&alias) {
                Ok(()) => aliases.push(alias),
                Err(problem) => self
                    .notes
                    .warn(&path, format!("`{alias}` was left out: {problem}")),
            }
        }
        Ok(aliases)
    }

    /// llama-swap overrides these values in requests; here they are defaults, and a client's own value wins.
    fn filters(&mut self, model: &Fields<'_>, document: &mut Value) -> Result<(), Problem> {
        let path = model.path("filters");
        let filters = Fields::from_path(&path, model.get("filters"))?;
        let set_path = filters.path("setParams");
        let set = Fields::from_path(&set_path, filters.get("setParams"))?;
        let mut defaults = Map::new();
        for key in set.keys() {
            let Some(value) = set
                .get(key)
                .filter(|value| DEFAULTS.contains(&key) && value.is_number())
            else {
                self.notes.warn(
                    &set.path(key),
                    "has no counterpart: requests are passed to the engine unchanged",
                );
                continue;
            };
            self.notes.warn(&set.path(key), "is a default here (engine_config.generation.generate_kwargs): a client's value overrides it");
            defaults.insert(key.to_owned(), value.clone());
        }
        if !defaults.is_empty() {
            let mut with = document.clone();
            with["engine_config"]["generation"] = json!({"generate_kwargs": defaults});
            match files::check(&with) {
                Ok(_) => *document = with,
                Err(problem) => self
                    .notes
                    .warn(&set_path, format!("was left out: {problem}")),
            }
        }
        for key in filters.keys().filter(|key| *key != "setParams") {
            let message = match key {
                "stripParams" | "strip_params" => {
                    "has no counterpart: parameters of clients are not removed"
                }
                "setParamsByID" => {
                    "has no counterpart, and its names are not aliases here; write a model file for each variant, or let clients send the parameters"
                }
                _ => "is not known to this version, and was left out",
            };
            self.notes.warn(&filters.path(key), message);
        }
        Ok(())
    }
}
