//! Model files of the systems before this one, made into today's form: Aviary 0.0 and 0.1 (`model_config`),
//! 0.2 (`scheduler.policy`), RayLLM 0.5 and what its users added, the form after it, and Ray Serve LLM's
//! `llm_configs`. A key that moves keeps its name in what is said of it; one that has no effect is a warning.
//! Whether a value is allowed is decided where today's form is read.

mod aviary;
mod paths;
mod ray_serve;
mod rayllm;

use serde_json::Value;

use super::CatalogError;
use super::diagnostics::Diagnostics;

/// Lists of models in a file of Ray Serve.
const LISTS: [&str; 8] = [
    "llm_configs",
    "models",
    "embedding_models",
    "trtllm_models",
    "multiplex_models",
    "vllm_base_models",
    "function_calling_models",
    "multiplex_lora_adapters",
];

/// The models of a file that holds several, each with where it stands: those of `llm_configs`, or of the
/// `args` of Ray Serve's `applications`. `None`: the file is one model.
pub(super) fn parts(value: &Value) -> Option<Vec<(String, Value)>> {
    // One that is no list stands for itself, and is refused as a model if it is none.
    let items_of = |list: &Value| match list {
        Value::Array(items) => items.clone(),
        Value::Null => Vec::new(),
        single => vec![single.clone()],
    };
    let list_at = |above: &str, value: &Value| -> Vec<(String, Value)> {
        let lists = LISTS
            .iter()
            .filter_map(|name| Some((name, value.get(name)?)));
        lists
            .flat_map(|(name, list)| {
                let place = move |nth: usize| format!("{above}{name}[{nth}]");
                let items = items_of(list).into_iter().enumerate();
                items
                    .map(move |(nth, item)| (place(nth), item))
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    if let Some(applications) = value.get("applications").and_then(Value::as_array) {
        let of_application = |(nth, it): (usize, &Value)| {
            let args = it.get("args").unwrap_or(&Value::Null);
            list_at(&format!("applications[{nth}].args."), args)
        };
        return Some(
            applications
                .iter()
                .enumerate()
                .flat_map(of_application)
                .collect(),
        );
    }
    let is_several = value.get("llm_configs").is_some();
    is_several.then(|| list_at("", value))
}

/// Keys that tell a model's file of some form.
const TELLING: [&str; 9] = [
    "engine_config",
    "model_config",
    "model_loading_config",
    "pool_config",
    "scaling_config",
    "deployment_config",
    "base_model_id",
    "llm_configs",
    "applications",
];

/// Whether the document is about something else altogether: it has keys, and none is one of a model's, or
/// one of those misspelt.
pub(super) fn is_something_else(value: &Value) -> bool {
    let near = |key: &String| reading::nearest(key, TELLING.into_iter()).is_some();
    match value {
        Value::Object(keys) => !keys.is_empty() && !keys.keys().any(near),
        _ => false,
    }
}

/// Makes a document of an older form, or of another system's, one of today's. Whether anything changed.
pub(super) fn translate(value: &mut Value, notes: &mut Diagnostics) -> Result<bool, CatalogError> {
    if !value.is_object() {
        return Ok(false);
    }
    if value.get("base_model_id").is_some() {
        return Err(notes.refuse(
            "base_model_id",
            "this describes an adapter of another model; register that model with it in engine_config.lora_adapters",
        ));
    }
    let before = value.clone();
    if value.get("model_config").is_some() {
        aviary::model_config(value, notes)?;
    }
    if value.get("model_loading_config").is_some() {
        ray_serve::llm_config(value, notes)?;
    }
    aviary::scheduler(value, notes)?;
    rayllm::tidy(value, notes)?;
    let is_translated = *value != before;
    // What is null is as if it were not there.
    if let Some(sections) = value.as_object_mut().filter(|_| is_translated) {
        sections.retain(|_, section| !section.is_null());
        let keys = sections.values_mut().filter_map(Value::as_object_mut);
        keys.for_each(|keys| keys.retain(|_, value| !value.is_null()));
    }
    Ok(is_translated)
}
