//! Translates an entry of LiteLLM's `model_list` to a RemoteEngine's file.

use serde_json::{Map, Value, json};

use super::providers::{CLOUDFLARE, GITHUB, provider_of};
use super::{LEFT_OUT, Reader};
use crate::fields::Fields;
use crate::files;
use crate::notes::Problem;
use crate::outcome::ImportedModel;
use crate::secrets::variable_for;

const VARIABLE: &str = "os.environ/";

/// Request parameters that both programs support as defaults, with their names in a model file.
const DEFAULTS: [(&str, &str); 6] = [
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("max_tokens", "max_tokens"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("seed", "seed"),
];

const READ: [&str; 8] = [
    "model",
    "api_base",
    "base_url",
    "api_key",
    "custom_llm_provider",
    "rpm",
    "tpm",
    "max_parallel_requests",
];

/// Keys of `litellm_params` without a counterpart, with the alternative.
const WITHOUT: &[(&str, &str)] = &[
    (
        "timeout stream_timeout",
        "pool_config.first_token_after and stall_after define when an endpoint counts as dead",
    ),
    (
        "max_retries num_retries",
        "loads are retried, but requests are not: clients retry them",
    ),
    (
        "extra_headers",
        "the values may be secret and were not copied; set them in engine_config.headers",
    ),
    (
        "organization",
        "it was not copied; set OpenAI-Organization in engine_config.headers",
    ),
    (
        "litellm_credential_name",
        "set engine_config.api_key_env to the variable of the key",
    ),
    ("weight order", "a model has one endpoint"),
    (
        "input_cost_per_token output_cost_per_token",
        "costs are not tracked",
    ),
];

impl Reader<'_> {
    pub(super) fn entry(&mut self, key: &str, entry: &Value) -> Result<(), Problem> {
        let entry = Fields::from_path(key, Some(entry))?;
        let wanted = entry
            .text("model_name")?
            .ok_or_else(|| Problem::at(key, "model_name is missing"))?;
        let path = entry.path("litellm_params");
        let params = Fields::from_path(&path, entry.get("litellm_params"))?;
        let model = params
            .text("model")?
            .ok_or_else(|| Problem::at(&path, "model is missing"))?;
        if wanted.contains('*') || model.contains('*') {
            return Err(Problem::at(
                entry.path("model_name"),
                format!(
                    "{wanted} is a pattern, but a model file describes one model: write an entry for each model you use"
                ),
            ));
        }
        let (base_key, base) = match params.text("api_base")? {
            Some(base) => ("api_base", Some(base)),
            None => ("base_url", params.text("base_url")?),
        };
        let base = match base {
            Some(base) => Some(self.address(params.path(base_key), base)?),
            None => None,
        };
        let custom = params.text("custom_llm_provider")?;
        let (provider, served) = provider_of(&model, custom.as_deref(), base.is_some())
            .map_err(|problem| Problem::at(params.path("model"), problem))?;
        let base = match provider.prefix {
            CLOUDFLARE => Some(self.cloudflare(params.path(base_key), base)?),
            _ => base,
        };
        if provider.prefix == GITHUB && !served.contains('/') {
            self.notes.warn(
                &params.path("model"),
                format!("{served} needs a publisher at GitHub, as in openai/gpt-4o; set it in engine_config.served_model_name"),
            );
        }
        let url = match (&base, provider.url) {
            (Some(base), Some(url)) if provider.is_translated => {
                return Err(Problem::at(
                    params.path(base_key),
                    format!(
                        "{base} is assumed to be the address of the provider's own API; its OpenAI endpoint is {url}: remove api_base, or write `model: openai/…`"
                    ),
                ));
            }
            (Some(base), _) => {
                let base = base.trim_end_matches('/');
                if base.ends_with("/v1") {
                    base.to_owned()
                } else {
                    format!("{base}{}", provider.path)
                }
            }
            (None, Some(url)) => url.to_owned(),
            (None, None) => {
                return Err(Problem::at(
                    path,
                    format!(
                        "api_base is missing: `{}` has no default address; write one like http://10.0.0.7:8000/v1",
                        provider.prefix
                    ),
                ));
            }
        };
        // LiteLLM would read the provider's variable, but a custom server hardly expects that key.
        let of_provider = provider.key.filter(|_| {
            let is_own = Some(url.as_str()) == provider.url || provider.prefix == CLOUDFLARE;
            is_own || params.get("api_key").is_some()
        });
        let variable = self.key_variable(&wanted, &params, of_provider)?;

        let name = self.names.take(&wanted);
        if name != wanted {
            let message = if self.first.contains_key(&wanted) {
                format!(
                    "{wanted} is the name of several entries, between which LiteLLM chooses; a model has one endpoint here, and this one is named {name}"
                )
            } else {
                format!(
                    "{wanted} is {name} here: a name may have one `/`, letters, digits, `.`, `_` and `-`, and belongs to one model"
                )
            };
            self.notes.warn(&entry.path("model_name"), message);
        }
        let mut engine = Map::new();
        engine.insert("model_id".to_owned(), json!(name));
        engine.insert("type".to_owned(), json!("RemoteEngine"));
        engine.insert("url".to_owned(), json!(url));
        if served != name {
            engine.insert("served_model_name".to_owned(), json!(served));
        }
        if let Some(variable) = variable {
            engine.insert("api_key_env".to_owned(), json!(variable));
        }
        let defaults = self.defaults(&params);
        if !defaults.is_empty() {
            engine.insert(
                "generation".to_owned(),
                json!({"generate_kwargs": defaults}),
            );
        }
        let mut document = json!({"engine_config": Value::Object(engine)});
        if let Some(requests) = params.integer("max_parallel_requests")? {
            document["deployment_config"] = json!({"max_ongoing_requests": requests});
        }
        files::check(&document).map_err(|problem| Problem::at(key, problem))?;
        self.limits(&name, &params)?;
        self.without_counterpart(&entry, &params)?;
        self.first.entry(wanted).or_insert(self.models.len());
        self.models.push(ImportedModel {
            name,
            engine: "RemoteEngine".to_owned(),
            key: key.to_owned(),
            document,
        });
        Ok(())
    }

    /// Resolves the address from an environment variable if it is stored there.
    fn address(&mut self, key: String, base: String) -> Result<String, Problem> {
        let Some(variable) = base.strip_prefix(VARIABLE) else {
            return Ok(base);
        };
        match self
            .environment
            .get(variable)
            .filter(|value| !value.is_empty())
        {
            Some(value) => {
                self.notes.warn(
                    &key,
                    format!("now contains the current value of the variable {variable}"),
                );
                Ok(value.clone())
            }
            None => Err(Problem::at(
                key,
                format!(
                    "is in the variable {variable}, which is not set here; set it and import again, or write the address directly"
                ),
            )),
        }
    }

    /// The address of an account's OpenAI endpoint.
    fn cloudflare(&self, key: String, base: Option<String>) -> Result<String, Problem> {
        const ACCOUNT: &str = "CLOUDFLARE_ACCOUNT_ID";
        if let Some(base) = base {
            let base = base.trim_end_matches('/');
            let own = base.strip_suffix("/ai/run");
            return Ok(own.map_or_else(|| base.to_owned(), |account| format!("{account}/ai/v1")));
        }
        let account = self.environment.get(ACCOUNT).filter(|id| !id.is_empty());
        let account = account.ok_or_else(|| {
            Problem::at(
                key,
                format!(
                    "is missing, and {ACCOUNT} is not set here; set it and import again, or write https://api.cloudflare.com/client/v4/accounts/ACCOUNT/ai/v1"
                ),
            )
        })?;
        Ok(format!(
            "https://api.cloudflare.com/client/v4/accounts/{account}/ai/v1"
        ))
    }

    /// The variable that contains the key; `None`: no key is sent.
    fn key_variable(
        &mut self,
        name: &str,
        params: &Fields<'_>,
        of_provider: Option<&'static str>,
    ) -> Result<Option<String>, Problem> {
        let Some(key) = params.text("api_key")? else {
            return Ok(of_provider.map(str::to_owned));
        };
        if let Some(variable) = key.strip_prefix(VARIABLE) {
            return Ok(Some(variable.to_owned()));
        }
        // Placeholders that people write when no key is needed.
        if [
            "",
            "none",
            "None",
            "EMPTY",
            "empty",
            "dummy",
            "fake",
            "not-needed",
            "no-key",
        ]
        .contains(&key.as_str())
        {
            return Ok(None);
        }
        let variable = of_provider.map_or_else(|| variable_for(name), str::to_owned);
        self.notes.warn(
            &params.path("api_key"),
            format!("was not copied: set {variable} in the environment of model-pool, or write engine_config.api_key_file into the model file"),
        );
        Ok(Some(variable))
    }

    fn defaults(&mut self, params: &Fields<'_>) -> Map<String, Value> {
        let mut defaults = Map::new();
        for (key, own) in DEFAULTS {
            match params.get(key) {
                Some(value) if value.is_number() => {
                    defaults.insert(own.to_owned(), value.clone());
                }
                Some(_) => self
                    .notes
                    .warn(&params.path(key), "is not a number, and was left out"),
                None => {}
            }
        }
        defaults
    }

    /// `rpm` and `tpm` are limits of the model for all users together.
    fn limits(&mut self, name: &str, params: &Fields<'_>) -> Result<(), Problem> {
        let mut limit = Map::new();
        for (key, own) in [("rpm", "requests_per_minute"), ("tpm", "tokens_per_minute")] {
            match params.integer(key)? {
                Some(count) if (1..=i64::from(u32::MAX)).contains(&count) => {
                    limit.insert(own.to_owned(), json!(count));
                }
                Some(_) => self.notes.warn(
                    &params.path(key),
                    "is not a limit, and was left out; limits are at least 1",
                ),
                None => {}
            }
        }
        if !limit.is_empty() {
            self.limits.insert(name.to_owned(), Value::Object(limit));
        }
        Ok(())
    }

    fn without_counterpart(
        &mut self,
        entry: &Fields<'_>,
        params: &Fields<'_>,
    ) -> Result<(), Problem> {
        let is_default = |key: &str| DEFAULTS.iter().any(|(known, _)| *known == key);
        for key in params
            .keys()
            .filter(|key| !READ.contains(key) && !is_default(key))
        {
            self.notes
                .warn_without(&params.path(key), key, WITHOUT, LEFT_OUT);
        }
        let path = entry.path("model_info");
        let info = Fields::from_path(&path, entry.get("model_info"))?;
        for key in info.keys() {
            let message = match key {
                // Every OpenAI route is passed to the endpoint unchanged.
                "mode" | "id" => continue,
                "max_input_tokens" | "max_tokens" | "max_output_tokens" => {
                    "has no counterpart: the endpoint has its own limits; engine_config.max_total_tokens sets the context length"
                }
                _ => LEFT_OUT,
            };
            self.notes.warn(&info.path(key), message);
        }
        for key in entry
            .keys()
            .filter(|key| !["model_name", "litellm_params", "model_info"].contains(key))
        {
            self.notes.warn(&entry.path(key), LEFT_OUT);
        }
        Ok(())
    }
}
