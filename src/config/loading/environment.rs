//! Applies `MODEL_POOL__SECTION__KEY` variables to a configuration. The configuration itself determines the possible keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::root::Config;
use crate::problems::PlacedProblem;
use reading::{self, nearest};

/// The prefix of every variable that sets a key. Names with a single underscore, such as `MODEL_POOL_SERVER`, belong to other
/// programs.
pub const PREFIX: &str = "MODEL_POOL__";

/// A configuration with the environment applied.
pub(crate) struct OverlaidConfig {
    pub config: Config,
    /// The variable that set each key.
    pub variables: BTreeMap<String, String>,
    pub problems: Vec<PlacedProblem>,
}

/// Applies the variables one at a time. Skips and reports variables that cannot be used.
pub(super) fn overlay(config: Config, variables: &BTreeMap<String, String>) -> OverlaidConfig {
    let mut overlaid = OverlaidConfig {
        config,
        variables: BTreeMap::new(),
        problems: Vec::new(),
    };
    for (name, text) in variables {
        if !name.starts_with(PREFIX) {
            overlaid.problems.extend(one_underscore(name));
            continue;
        }
        let database = overlaid.config.state.database_url.clone();
        match apply(&overlaid.config, name, text) {
            Ok((config, key)) => {
                overlaid.config = config;
                // The document that the variable is applied to does not contain the database's password.
                if key != "state.database_url" {
                    overlaid.config.state.database_url = database;
                }
                overlaid.variables.insert(key, name.clone());
            }
            Err(problem) => overlaid.problems.push(problem),
        }
    }
    overlaid
}

/// The problem with a variable such as `MODEL_POOL_SERVER_LISTEN`, which would set a key with two underscores.
fn one_underscore(name: &str) -> Option<PlacedProblem> {
    let rest = name.strip_prefix(PREFIX.trim_end_matches('_'))?;
    let rest = rest.trim_start_matches('_').replace("__", "_");
    let known = known_names(&Value::Object(Config::default().document()));
    let meant = known.iter().find(|key| key.replace("__", "_") == rest)?;
    Some(PlacedProblem::UnknownVariable {
        name: name.to_owned(),
        hint: format!("the parts are separated by two underscores: {PREFIX}{meant}"),
    })
}

/// Returns the configuration with this variable applied, and the key that it set.
fn apply(config: &Config, name: &str, text: &str) -> Result<(Config, String), PlacedProblem> {
    let mut document = Value::Object(config.document());
    let (section, key) =
        target(&document, name).ok_or_else(|| unknown_variable(&document, name))?;

    // If the key needs text, a number such as in STATE__DIR=2026 is tried as text second.
    let scalar = reading::yaml::<Value>(text).unwrap_or_else(|_| Value::from(text));
    let mut first_flaw = None;
    for value in [scalar, Value::from(text)] {
        document[&section][&key] = value;
        match reading::json_value::<Config>(&document) {
            Ok(read) => return Ok((read, format!("{section}.{key}"))),
            Err(flaw) => first_flaw = first_flaw.or(Some(flaw)),
        }
    }
    Err(PlacedProblem::Variable {
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

fn unknown_variable(document: &Value, name: &str) -> PlacedProblem {
    let known = known_names(document);
    PlacedProblem::UnknownVariable {
        name: name.to_owned(),
        hint: match nearest(&name[PREFIX.len()..], known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {PREFIX}{near}?"),
            None => format!(
                "variables are named {PREFIX}SECTION__KEY, for example {PREFIX}SERVER__LISTEN"
            ),
        },
    }
}

/// `SECTION__KEY` of every key.
fn known_names(document: &Value) -> Vec<String> {
    let sections = document.as_object().into_iter().flatten();
    let names = sections.flat_map(|(section, keys)| {
        let keys = keys.as_object().into_iter().flatten();
        keys.map(move |(key, _)| format!("{}__{}", section.to_uppercase(), key.to_uppercase()))
    });
    names.collect()
}
