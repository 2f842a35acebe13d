//! Applies `MODEL_POOL__SECTION__KEY` variables to a configuration. The possible keys are those of the
//! configuration itself.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Config, ConfigError};
use reading::{self, nearest};

/// Prefix of every variable that sets a key. `MODEL_POOL_SERVER` and others with one underscore belong to other
/// programs.
pub const PREFIX: &str = "MODEL_POOL__";

/// Applies the variables one at a time, so that an error names its variable. Gives also which variable set which key.
pub(super) fn overlay(
    config: Config,
    variables: &BTreeMap<String, String>,
) -> Result<(Config, BTreeMap<String, String>), ConfigError> {
    let mut config = config;
    let mut set = BTreeMap::new();
    for (name, text) in variables
        .iter()
        .filter(|(name, _)| name.starts_with(PREFIX))
    {
        let key;
        let database = config.state.database_url.clone();
        (config, key) = apply(&config, name, text)?;
        // The document that the variable is written into has no password of the database.
        if key != "state.database_url" {
            config.state.database_url = database;
        }
        set.insert(key, name.clone());
    }
    Ok((config, set))
}

/// The configuration with this variable, and the key that it sets.
fn apply(config: &Config, name: &str, text: &str) -> Result<(Config, String), ConfigError> {
    let mut document = serde_json::to_value(config).map_err(|error| ConfigError::Variable {
        name: name.to_owned(),
        message: format!("cannot be applied to the configuration: {error}"),
    })?;
    let (section, key) =
        target(&document, name).ok_or_else(|| unknown_variable(&document, name))?;

    // A number may be meant as text where the key needs text, as in STATE__DIR=2026: tried second.
    let scalar = reading::yaml::<Value>(text).unwrap_or_else(|_| Value::from(text));
    let mut first_flaw = None;
    for value in [scalar, Value::from(text)] {
        document[&section][&key] = value;
        match reading::json_value::<Config>(&document) {
            Ok(read) => return Ok((read, format!("{section}.{key}"))),
            Err(flaw) => first_flaw = first_flaw.or(Some(flaw)),
        }
    }
    Err(ConfigError::Variable {
        name: name.to_owned(),
        message: first_flaw.map(|flaw| flaw.to_string()).unwrap_or_default(),
    })
}

/// The section and key of the variable, if both exist.
fn target(document: &Value, name: &str) -> Option<(String, String)> {
    let (section, key) = name.strip_prefix(PREFIX)?.split_once("__")?;
    let (section, key) = (section.to_lowercase(), key.to_lowercase());
    document.get(&section)?.get(&key)?;
    Some((section, key))
}

fn unknown_variable(document: &Value, name: &str) -> ConfigError {
    let known: Vec<String> = document
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(section, keys)| {
            keys.as_object()
                .into_iter()
                .flatten()
                .map(move |(key, _)| format!("{}__{}", section.to_uppercase(), key.to_uppercase()))
        })
        .collect();
    ConfigError::UnknownVariable {
        name: name.to_owned(),
        hint: match nearest(&name[PREFIX.len()..], known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {PREFIX}{near}?"),
            None => format!(
                "variables are named {PREFIX}SECTION__KEY, for example {PREFIX}SERVER__LISTEN"
            ),
        },
    }
}
