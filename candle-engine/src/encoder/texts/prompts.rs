//! The prompts that a model's files put before texts.

use crate::api_error::ApiError;
use serde_json::Value;
use std::collections::BTreeMap;

/// Prompts by name.
pub(crate) struct Prompts {
    all: BTreeMap<String, String>,
    default: Option<String>,
}

impl Prompts {
    /// Reads the prompts of `config_sentence_transformers.json`.
    ///
    /// # Errors
    /// If the default prompt is not among them.
    pub fn new(file: &Value) -> Result<Self, String> {
        let all: BTreeMap<String, String> = file["prompts"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())))
            .collect();
        let default = file["default_prompt_name"].as_str();
        if let Some(name) = default.filter(|name| !all.contains_key(*name)) {
            return Err(format!(
                "default_prompt_name is {name:?}, which is not among its prompts"
            ));
        }
        let default = default.map(str::to_owned);
        Ok(Self { all, default })
    }

    /// Returns the prompt with this name; without a name, the model's default prompt, or an empty one.
    ///
    /// # Errors
    /// 400 if the model has no prompt with this name.
    pub fn named(&self, name: Option<&str>) -> Result<&str, ApiError> {
        let Some(name) = name.or(self.default.as_deref()) else {
            return Ok("");
        };
        self.all.get(name).map(String::as_str).ok_or_else(|| {
            let known = self.all.keys().cloned().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none" } else { &known };
            ApiError::field(
                "prompt_name",
                format!("this model has no prompt `{name}`; it has {known}"),
            )
        })
    }

    /// Returns the first of these prompts that the model has; otherwise its default prompt.
    pub fn of_kind(&self, names: &[&str]) -> &str {
        let found = names.iter().find_map(|name| self.all.get(*name));
        found.map_or_else(|| self.named(None).unwrap_or_default(), String::as_str)
    }
}
