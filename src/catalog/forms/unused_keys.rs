//! Keys of RayLLM's form that are accepted without effect. Each one used in a document causes a warning with its replacement.

use crate::documents::fields::given_keys;
use crate::documents::{Diagnostics, ModelDocument};
use crate::forms::dropped_keys;
use crate::forms::dropped_keys::OUTSIDE_OF_RAY;

const CLUSTER: &str = "the pool places replicas by GPU memory alone";

/// Keys with their sections, and their replacements.
const IDLE: &[(&str, &str)] = &[
    (
        "engine_config.model_type",
        "the engine reads it from the model",
    ),
    (
        "engine_config.tokenizer_id",
        "the tokenizer in the model's folder is used",
    ),
    (
        "engine_config.model_url",
        "it is only shown on the routes for clients of RayLLM and Aviary (compat)",
    ),
    (
        "engine_config.model_description",
        "it is only shown on the routes for clients of RayLLM and Aviary (compat)",
    ),
    ("scaling_config.num_cpus_per_worker", CLUSTER),
    (
        "scaling_config.placement_strategy",
        "all GPUs of a replica are of one machine",
    ),
    ("scaling_config.resources_per_worker", CLUSTER),
    (
        "scaling_config.pg_timeout_s",
        "pool_config.load_deadline limits a load",
    ),
    ("deployment_config.ray_actor_options", CLUSTER),
    (
        "pool_config.labels",
        "they are kept, but only `capabilities` has an effect: lists of models show it",
    ),
];

/// Values without effect for keys whose other values have one, with the replacement.
const IDLE_VALUES: &[(&str, &str)] = &[
    (
        "scaling_config.num_workers: 0",
        "each replica gets at least one device",
    ),
    (
        "scaling_config.num_gpus_per_worker: 0.5",
        "a replica uses an integral number of GPUs, and models share a GPU by the memory they need, which pool_config.memory_gib can set",
    ),
    (
        "engine_config.runtime_env.pip, conda, working_dir, py_modules, container",
        "an engine has a separate environment: install its packages there, and set engine_config.program to its program",
    ),
    (
        "deployment_config.autoscaling_config.metrics_interval_s",
        "requests are counted every second",
    ),
];

/// A sorted Markdown table of every key of older systems that is accepted without effect, with its replacement. Part of
/// docs/reference/compatibility.md.
pub fn table_of_keys_without_effect() -> String {
    let form = |dropped: &dropped_keys::DroppedKeys| {
        let keys: Vec<&str> = dropped.keys().collect();
        let place = match dropped.section {
            "" => String::new(),
            section => format!(" in `{section}`"),
        };
        (format!("`{}`{place}", keys.join("`, `")), dropped.instead)
    };
    let of_forms = dropped_keys::all().map(form);
    let own = IDLE.iter().chain(IDLE_VALUES);
    let mut rows: Vec<String> = own
        .map(|(key, instead)| (format!("`{key}`"), *instead))
        .chain(of_forms)
        .map(|(key, instead)| format!("| {key} | {instead} |\n"))
        .collect();
    rows.sort();
    format!("| key | here |\n|---|---|\n{}", rows.concat())
}

pub(crate) fn warn(document: &ModelDocument, notes: &mut Diagnostics) {
    let deployment = &document.deployment_config;
    let environment = document.engine_config.runtime_env.iter();
    for key in environment.flat_map(|environment| environment.rest.keys()) {
        notes.warn(&format!("engine_config.runtime_env.{key}"), OUTSIDE_OF_RAY);
    }
    let given = given_keys(document);
    for (key, instead) in IDLE {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        if given
            .get(section)
            .is_some_and(|section| section.get(name).is_some())
        {
            notes.warn(key, format!("has no effect in this version: {instead}"));
        }
    }
    if document.pool_config.preload == Some(true) {
        notes.warn(
            "pool_config.preload",
            "has no effect in this version: a model with pool_config.priority 2 or more is loaded at start and stays",
        );
    }
    let least = deployment
        .autoscaling_config
        .as_ref()
        .and_then(|scaling| scaling.min_replicas);
    if least.is_some_and(|count| count >= 1) && document.pool_config.priority.unwrap_or(0) < 2 {
        notes.warn(
            "deployment_config.autoscaling_config.min_replicas",
            "only applies while the model is loaded, and the next request loads it; with pool_config.priority 2 or more it is loaded at start and stays",
        );
    }
}
