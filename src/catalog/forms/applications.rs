//! The parts of a Ray Serve file around its models: an application's variables, the lists that determine the engine, and cluster
//! keys, which have no effect and cause a warning.

use serde_json::{Map, Value, json};

use super::LISTS;
use super::dropped_keys::{self, OUTSIDE_OF_RAY, SERVE};
use crate::documents::Diagnostics;

/// Sets the engine of a model according to its list.
pub(super) fn of_list(list: &str, mut item: Value) -> Value {
    let kind = match list {
        "embedding_models" => "EmbeddingEngine",
        "trtllm_models" => "TRTLLMEngine",
        _ => return item,
    };
    if let Some(Value::Object(engine)) = item.get_mut("engine_config")
        && engine.get("type").is_none_or(Value::is_null)
    {
        engine.insert("type".to_owned(), json!(kind));
    }
    item
}

/// Adds the application's variables to a model. The model's own take precedence.
pub(super) fn share_variables(application: &Value, model: &mut Value) {
    let variables = &application["runtime_env"]["env_vars"];
    let Some(variables) = variables
        .as_object()
        .filter(|variables| !variables.is_empty())
    else {
        return;
    };
    // An adapter runs in the environment of its base model.
    if model.get("base_model_id").is_some() {
        return;
    }
    let place = if model.get("model_config").is_some() {
        "model_config.initialization"
    } else if model.get("engine_config").is_some() {
        "engine_config"
    } else {
        ""
    };
    let mut at = &mut *model;
    let path = place.split('.').chain(["runtime_env", "env_vars"]);
    for key in path.filter(|key| !key.is_empty()) {
        let Some(keys) = at.as_object_mut() else {
            return;
        };
        let below = keys.entry(key).or_insert(Value::Null);
        if below.is_null() {
            *below = Value::Object(Map::new());
        }
        at = below;
    }
    if let Some(own) = at.as_object_mut() {
        for (name, value) in variables {
            own.entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// The application argument for the adapters of all its models.
pub(super) const ADAPTERS: &str = "dynamic_lora_loading_path";

/// Adds the application's adapter location to a model. The model's own takes precedence.
pub(super) fn share_adapters(args: &Value, model: &mut Value) {
    let Some(path) = args.get(ADAPTERS).filter(|path| !path.is_null()) else {
        return;
    };
    let Some(keys) = model.as_object_mut() else {
        return;
    };
    if keys.contains_key("base_model_id") {
        return;
    }
    let section = keys.entry("lora_config").or_insert(Value::Null);
    if section.is_null() {
        *section = Value::Object(Map::new());
    }
    if let Some(own) = section.as_object_mut() {
        own.entry(ADAPTERS).or_insert_with(|| path.clone());
    }
}

/// Warns about every key that does not describe models.
pub(super) fn tell(value: &Value, notes: &mut Diagnostics) {
    let Some(keys) = value.as_object() else {
        return;
    };
    let applications = value.get("applications").and_then(Value::as_array);
    let is_model_list = |key: &str| LISTS.contains(&key);
    for key in keys.keys() {
        let is_read = match applications {
            Some(_) => key == "applications",
            None => is_model_list(key),
        };
        if !is_read {
            tell_one(
                key,
                key,
                dropped_keys::CLUSTER,
                &["applications", "llm_configs"],
                notes,
            );
        }
    }
    for (nth, application) in applications.into_iter().flatten().enumerate() {
        let at = format!("applications[{nth}]");
        let Some(keys) = application.as_object() else {
            notes.warn(&at, "has no effect: keys with values are expected here");
            continue;
        };
        for key in keys.keys().filter(|key| *key != "args") {
            let path = format!("{at}.{key}");
            match key.as_str() {
                "runtime_env" => environment(&path, application, notes),
                key => tell_one(
                    &path,
                    key,
                    dropped_keys::APPLICATION,
                    &["args", "runtime_env"],
                    notes,
                ),
            }
        }
        let args = application.get("args").and_then(Value::as_object);
        for key in args.into_iter().flat_map(Map::keys) {
            if key == ADAPTERS {
                if of_other_files(application) {
                    let path = format!("{at}.args.{key}");
                    notes.warn(&path, "applies to the models in this file; models in separate files need it in lora_config");
                }
            } else if !is_model_list(key) {
                let path = format!("{at}.args.{key}");
                let read: Vec<&str> = LISTS.into_iter().chain([ADAPTERS]).collect();
                tell_one(&path, key, dropped_keys::ARGUMENTS, &read, notes);
            }
        }
    }
}

fn tell_one(path: &str, key: &str, section: &str, read: &[&str], notes: &mut Diagnostics) {
    let mut table = dropped_keys::keys_of(SERVE, section);
    match table.find(|(known, _)| *known == key) {
        Some((_, instead)) => notes.warn(path, format!("has no effect: {instead}")),
        None => {
            let known = dropped_keys::keys_of(SERVE, section).map(|(known, _)| known);
            notes.unknown_key(path, known.chain(read.iter().copied()));
        }
    }
}

/// Variables are applied to the models in this file; models in separate files get none of Ray's settings.
fn environment(path: &str, application: &Value, notes: &mut Diagnostics) {
    let environment = &application["runtime_env"];
    for key in environment.as_object().into_iter().flat_map(Map::keys) {
        if key != "env_vars" {
            notes.warn(&format!("{path}.{key}"), OUTSIDE_OF_RAY);
        }
    }
    let variables = environment["env_vars"].as_object();
    let names: Vec<&str> = variables
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    if !names.is_empty() && of_other_files(application) {
        notes.warn(
            &format!("{path}.env_vars"),
            format!(
                "{} apply to the models in this file; models in separate files need them in engine_config.runtime_env.env_vars, or in the environment of model-pool and in env_vars_to_propogate",
                names.join(", ")
            ),
        );
    }
}

/// Returns true if a list of the application refers to models by file.
fn of_other_files(application: &Value) -> bool {
    let args = application.get("args").and_then(Value::as_object);
    let lists = args.into_iter().flatten();
    let mut models = lists
        .filter(|(key, _)| LISTS.contains(&key.as_str()))
        .flat_map(|(_, list)| match list {
            Value::Array(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        });
    models.any(Value::is_string)
}
