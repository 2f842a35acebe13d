//! The keys of RayLLM's form that load and do nothing here. Each one that a document uses becomes
//! a warning with what is used instead; none is dropped in silence.

use super::diagnostics::Diagnostics;
use super::model_file::ModelDocument;

pub(super) fn warn(document: &ModelDocument, notes: &mut Diagnostics) {
    let engine = &document.engine_config;
    let scaling = &document.scaling_config;
    let deployment = &document.deployment_config;
    let cluster = "the pool places replicas by GPU memory alone";
    let table = [
        (
            "multiplex_config",
            document.multiplex_config.is_some(),
            "one file describes one model",
        ),
        (
            "engine_config.model_type",
            engine.model_type.is_some(),
            "the engine reads it from the model",
        ),
        (
            "engine_config.tokenizer_id",
            engine.tokenizer_id.is_some(),
            "the tokenizer in the model's folder is used",
        ),
        (
            "engine_config.model_url",
            engine.model_url.is_some(),
            "it is shown nowhere",
        ),
        (
            "engine_config.model_description",
            engine.model_description.is_some(),
            "it is shown nowhere",
        ),
        (
            "scaling_config.num_cpus_per_worker",
            scaling.num_cpus_per_worker.is_some(),
            cluster,
        ),
        (
            "scaling_config.placement_strategy",
            scaling.placement_strategy.is_some(),
            cluster,
        ),
        (
            "scaling_config.resources_per_worker",
            scaling.resources_per_worker.is_some(),
            cluster,
        ),
        (
            "scaling_config.pg_timeout_s",
            scaling.pg_timeout_s.is_some(),
            "pool_config.load_deadline limits a load",
        ),
        (
            "deployment_config.ray_actor_options",
            deployment.ray_actor_options.is_some(),
            cluster,
        ),
        (
            "pool_config.labels",
            !document.pool_config.labels.is_empty(),
            "they are kept, and shown nowhere",
        ),
    ];
    let ray = engine.runtime_env.iter().flat_map(|it| it.rest.keys());
    for key in ray {
        let message = "has no effect outside of Ray: install what the engine needs into its own environment, and name its program in engine_config.program";
        notes.warn(&format!("engine_config.runtime_env.{key}"), message);
    }
    for (key, given, instead) in table {
        if given {
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
        .and_then(|it| it.min_replicas);
    if least.is_some_and(|count| count >= 1) && document.pool_config.priority.unwrap_or(0) < 2 {
        notes.warn(
            "deployment_config.autoscaling_config.min_replicas",
            "counts while the model is loaded, which it is when somebody asks; with pool_config.priority 2 or more it is loaded at start and stays",
        );
    }
}
