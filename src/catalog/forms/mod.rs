//! Converts model files of earlier systems to the current form: Aviary 0.0 and 0.1 (`model_config`), 0.2 (`scheduler.policy`),
//! RayLLM 0.5 and its users' extensions, the form after it, and Ray Serve LLM's `llm_configs`. Messages use the file's name for a
//! moved key; a key without effect causes a warning. Values are checked later, when the current form is read.

mod applications;
mod aviary;
pub(crate) mod document;
pub(super) mod dropped_keys;
mod leftovers;
mod paths;
mod ray_serve;
mod rayllm;
pub(crate) mod unused_keys;

use serde_json::Value;
pub use unused_keys::table_of_keys_without_effect;

use crate::documents::{CatalogError, Diagnostics};

/// Keys for lists of models in a Ray Serve file.
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

/// The models of a file with several, each with its position: the items of `llm_configs`, or of the `args` of Ray Serve's
/// `applications`. `None`: the file describes one model.
pub(super) fn parts(value: &Value) -> Option<Vec<(String, Value)>> {
    // A value that is not a list counts as a single item, and is refused later if it is not a model.
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
                    .map(move |(nth, item)| (place(nth), applications::of_list(name, item)))
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    if let Some(applications) = value.get("applications").and_then(Value::as_array) {
        let of_application = |(nth, application): (usize, &Value)| {
            let args = application.get("args").unwrap_or(&Value::Null);
            let mut parts = list_at(&format!("applications[{nth}].args."), args);
            for (_, part) in &mut parts {
                applications::share_variables(application, part);
                applications::share_adapters(args, part);
            }
            parts
        };
        let numbered = applications.iter().enumerate();
        return Some(numbered.flat_map(of_application).collect());
    }
    let is_several = value.get("llm_configs").is_some();
    is_several.then(|| list_at("", value))
}

/// Keys that identify a model file of any form.
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

/// Returns true if the document has a key that only model files have.
pub(super) fn has_telling_key(value: &Value) -> bool {
    TELLING.iter().any(|key| value.get(key).is_some())
}

/// Top-level keys that people use in model files without sections.
const ATTEMPTED: [&str; 7] = [
    "model",
    "model_id",
    "model_name",
    "model_path",
    "hf_model_id",
    "engine",
    "priority",
];

/// The key that reveals an attempt at a flat document, such as `model: org/name`, without any known section.
pub(super) fn key_of_an_attempt(value: &Value) -> Option<&'static str> {
    let is_plain = |key: &&&str| value.get(**key).is_some_and(Value::is_string);
    let key = ATTEMPTED.iter().find(is_plain);
    key.filter(|_| !has_telling_key(value)).copied()
}

/// Returns true if the document is not a model file: it has keys, but none that resembles a key of a model.
pub(super) fn is_something_else(value: &Value) -> bool {
    let near = |key: &String| reading::nearest(key, TELLING.into_iter()).is_some();
    match value {
        Value::Object(keys) => !keys.is_empty() && !keys.keys().any(near),
        _ => false,
    }
}

/// Warns about the parts of a Ray Serve file outside its models.
pub(super) fn tell_of_the_rest(value: &Value, notes: &mut Diagnostics) {
    applications::tell(value, notes);
}

/// Sections that exist only in older forms.
const OLD_SECTIONS: [&str; 4] = [
    "model_config",
    "model_loading_config",
    "scaling_config",
    "multiplex_config",
];

/// Returns true if a document has an older form, in which unknown keys are only warnings.
fn is_old(value: &Value) -> bool {
    OLD_SECTIONS.iter().any(|key| value.get(key).is_some()) || is_aviary_0_2(value)
}

/// This form has no default engine.
fn is_aviary_0_2(value: &Value) -> bool {
    let engine = value.get("engine_config");
    let mut keys = ["scheduler", "model_init_kwargs"].into_iter();
    engine.is_some_and(|engine| keys.any(|key| engine.get(key).is_some()))
}

/// Converts a document of an older form, or of another system, to the current form. Returns true if it changed.
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
    let (is_old, is_aviary_0_2) = (is_old(value), is_aviary_0_2(value));
    if value.get("model_config").is_some() {
        aviary::model_config(value, notes)?;
    }
    if value.get("model_loading_config").is_some() {
        ray_serve::llm_config(value, notes)?;
    }
    aviary::scheduler(value, notes)?;
    rayllm::tidy(value, is_old && !is_aviary_0_2, notes)?;
    if is_old {
        leftovers::take_out(value, notes);
        notes.refuse_unknown()?;
    }
    let is_translated = *value != before;
    // Treat null as absent.
    if let Some(sections) = value.as_object_mut().filter(|_| is_translated) {
        sections.retain(|_, section| !section.is_null());
        let keys = sections.values_mut().filter_map(Value::as_object_mut);
        keys.for_each(|keys| keys.retain(|_, value| !value.is_null()));
    }
    Ok(is_translated)
}
