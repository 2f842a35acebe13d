//! Translates LiteLLM's configuration: each entry of `model_list` becomes a RemoteEngine. Keys are never copied, only referenced by
//! variable; keys without a counterpart are reported.

mod entry;
mod fallbacks;
mod providers;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::fields::{Fields, scalar};
use crate::names::Names;
use crate::notes::{Notes, Problem};
use crate::outcome::{Import, ImportError, ImportedModel, Translation};
use crate::virtual_models::VirtualModels;

/// # Errors
/// [`ImportError`] if the file cannot be read at all. Entries that cannot be translated are listed in `left_out`.
pub fn litellm(
    path: &Path,
    text: &str,
    environment: &BTreeMap<String, String>,
) -> Result<Import, ImportError> {
    Import::read("LiteLLM", path, text, |document, notes| {
        let reader = Reader {
            names: Names::default(),
            models: Vec::new(),
            limits: Map::new(),
            first: BTreeMap::new(),
            outside: BTreeMap::new(),
            virtual_models: VirtualModels::default(),
            environment,
            notes,
        };
        reader.read(document)
    })
}

struct Reader<'a> {
    names: Names,
    models: Vec<ImportedModel>,
    /// `limits.models`.
    limits: Map<String, Value>,
    /// Maps LiteLLM's name to the first model imported for it.
    first: BTreeMap<String, usize>,
    /// Maps LiteLLM's name to the first name here of a model that a virtual model replaces.
    outside: BTreeMap<String, String>,
    virtual_models: VirtualModels,
    /// The values for `os.environ/NAME`.
    environment: &'a BTreeMap<String, String>,
    notes: &'a mut Notes,
}

/// The warning for other keys.
const LEFT_OUT: &str = "has no counterpart, and was left out";
/// Sections and keys without a counterpart, with the alternative. A section's keys are listed individually.
const WITHOUT: &[(&str, &str)] = &[
    (
        "litellm_settings.drop_params",
        "a RemoteEngine receives every field of a request; for engines of this pool, set pool_config.unknown_fields: drop",
    ),
    (
        "litellm_settings.request_timeout",
        "pool_config.first_token_after and stall_after in a model file, and x-request-timeout in a request",
    ),
    (
        "litellm_settings.num_retries router_settings.num_retries",
        "loads are retried, but requests are not: clients retry them",
    ),
    (
        "litellm_settings.default_fallbacks router_settings.default_fallbacks",
        "virtual_models names the next model for each model; list it in `fallback` there",
    ),
    (
        "litellm_settings.content_policy_fallbacks router_settings.content_policy_fallbacks",
        "a refusal by the model is a response, and leads to no other model",
    ),
    (
        "litellm_settings.cache litellm_settings.cache_params",
        "responses are not cached; engines cache the beginnings of conversations",
    ),
    (
        "litellm_settings.success_callback litellm_settings.failure_callback litellm_settings.callbacks",
        "metrics are on /metrics, and the history records the pool's actions",
    ),
    (
        "litellm_settings.max_budget",
        "costs are not tracked; keys and models have limits of requests and tokens (limits)",
    ),
    (
        "router_settings.routing_strategy",
        "a model has one endpoint; the replicas of an engine in this pool share requests by load",
    ),
    (
        "router_settings.timeout",
        "pool_config.first_token_after and stall_after in a model file",
    ),
    (
        "router_settings.redis_host router_settings.redis_port",
        "limits.redis lets several gateways count together",
    ),
    (
        "router_settings.redis_password",
        "limits.redis.password_file names a file; it was not copied",
    ),
    (
        "router_settings.redis_url",
        "limits.redis.url, without a password; it was not copied",
    ),
    (
        "general_settings.master_key",
        "it was not copied: the first admin key is in data/admin.key; more with `admin-client keys create NAME --role admin`",
    ),
    (
        "general_settings.database_url",
        "it was not copied: the state is a SQLite file in state.dir, and LiteLLM's keys and spend stay there",
    ),
    (
        "general_settings.store_model_in_db",
        "`admin-client register` keeps a model in the state",
    ),
    (
        "general_settings.alerting",
        "`admin-client events --follow` and Prometheus show activity",
    ),
    (
        "environment_variables",
        "set them in the environment of model-pool (with systemd, in an EnvironmentFile); the values were not copied",
    ),
    (
        "credential_list",
        "set engine_config.api_key_env in the model file to the variable of a key; the values were not copied",
    ),
    (
        "guardrails",
        "pool_config.validation limits texts by their length and characters",
    ),
    ("mcp_servers", "the pool has no tools"),
    ("include", "import each of these files separately"),
    ("callback_settings", "metrics are on /metrics"),
];

impl Reader<'_> {
    fn read(mut self, document: &Value) -> Result<Translation, Problem> {
        let Value::Object(root) = document else {
            return Err(Problem::at(
                "the file",
                "keys with values are expected here",
            ));
        };
        let root = Fields::new("", root);
        let entries = root.list("model_list")?;
        if entries.is_empty() {
            return Err(Problem::at(
                "model_list",
                "is missing or empty; LiteLLM's models are expected there",
            ));
        }
        for (nth, entry) in entries.iter().enumerate() {
            let key = format!("model_list[{nth}]");
            if let Err(problem) = self.entry(&key, entry) {
                self.notes.leave_out(problem);
            }
        }
        self.aliases(&root)?;
        self.fallbacks(&root)?;
        self.others(&root)?;
        let mut settings = Map::new();
        self.virtual_models.write(&mut settings);
        if !self.limits.is_empty() {
            settings.insert("limits".to_owned(), json!({"models": self.limits}));
        }
        Ok((self.models, settings))
    }

    /// Adds additional names of models.
    fn aliases(&mut self, root: &Fields<'_>) -> Result<(), Problem> {
        let router = Fields::from_path("router_settings", root.get("router_settings"))?;
        let path = "router_settings.model_group_alias";
        let aliases = Fields::from_path(path, router.get("model_group_alias"))?;
        for alias in aliases.keys() {
            let key = aliases.path(alias);
            let value = aliases.get(alias);
            let of = value.and_then(|value| scalar(value.get("model").unwrap_or(value)));
            let model = of.as_ref().and_then(|of| self.first.get(of));
            let Some(model) = model.and_then(|nth| self.models.get_mut(*nth)) else {
                self.notes
                    .warn(&key, "was left out: it names no model that was imported");
                continue;
            };
            if let Err(problem) = self.names.take_alias(alias) {
                self.notes.warn(&key, format!("was left out: {problem}"));
                continue;
            }
            let pool = &mut model.document["pool_config"];
            if pool.is_null() {
                *pool = json!({});
            }
            match pool["aliases"].as_array_mut() {
                Some(all) => all.push(json!(alias)),
                None => pool["aliases"] = json!([alias]),
            }
        }
        Ok(())
    }

    fn others(&mut self, root: &Fields<'_>) -> Result<(), Problem> {
        for section in root.keys().filter(|key| *key != "model_list") {
            let has_keys = matches!(
                section,
                "litellm_settings" | "router_settings" | "general_settings"
            );
            if !has_keys {
                self.notes.warn_without(section, section, WITHOUT, LEFT_OUT);
                continue;
            }
            let fields = Fields::from_path(section, root.get(section))?;
            const READ: [&str; 3] = ["model_group_alias", "fallbacks", "context_window_fallbacks"];
            for key in fields.keys().filter(|key| !READ.contains(key)) {
                let path = fields.path(key);
                self.notes.warn_without(&path, &path, WITHOUT, LEFT_OUT);
            }
        }
        Ok(())
    }
}
