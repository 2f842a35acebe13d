//! Keys of `engine_config` that only RayServeEngine has, and keys without meaning for it.

use crate::documents::{CatalogError, Diagnostics, EngineConfig};

pub(crate) const RAY_SERVE: &str = "RayServeEngine";

/// Refuses Ray Serve keys in a model file for another engine.
pub(super) fn refuse_ray_serve_keys(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let foreign_keys = [
        ("address", engine.address.is_some()),
        ("token_file", engine.token_file.is_some()),
        ("proxy", engine.proxy.is_some()),
        ("accelerator_type", engine.accelerator_type.is_some()),
        ("import_path", engine.import_path.is_some()),
        ("args", !engine.args.is_empty()),
        ("deployments", !engine.deployments.is_empty()),
    ];
    match foreign_keys.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((key, _)) => Err(notes.refuse(
            &format!("engine_config.{key}"),
            format!("is read with type: {RAY_SERVE} only; remove it, or change the type"),
        )),
    }
}

/// Refuses keys for local programs and weights: the pool starts no program, and the weights are not on its machine.
pub(super) fn refuse_keys_of_engines(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let foreign_keys = [
        (
            "url",
            engine.url.is_some(),
            "; engine_config.proxy names Serve's HTTP proxy",
        ),
        ("command", engine.command.is_some(), ""),
        ("listen", engine.listen.is_some(), ""),
        ("program", engine.program.is_some(), ""),
        (
            "command_prefix",
            engine.command_prefix.is_some(),
            "; a container is engine_config.runtime_env.image_uri",
        ),
        (
            "revision",
            engine.revision.is_some(),
            "; with ray.serve.llm it is engine_config.engine_kwargs.revision",
        ),
        ("fetch", engine.fetch.is_some(), ""),
        (
            "s3_mirror_config",
            engine.s3_mirror_config.is_some(),
            "; name the model in engine_config.hf_model_id or model_path",
        ),
        (
            "gcs_mirror_config",
            engine.gcs_mirror_config.is_some(),
            "; name the model in engine_config.hf_model_id or model_path",
        ),
        ("lora_adapters", !engine.lora_adapters.is_empty(), ""),
        ("sleep_command", engine.sleep_command.is_some(), ""),
        ("wake_command", engine.wake_command.is_some(), ""),
        (
            "ready_path",
            engine.ready_path.is_some(),
            "; engine_config.health_path is probed instead",
        ),
        (
            "working_dir",
            engine.working_dir.is_some(),
            "; code for Ray's machines is engine_config.runtime_env.working_dir",
        ),
    ];
    match foreign_keys.iter().find(|(_, is_given, _)| *is_given) {
        None => Ok(()),
        Some((key, _, instead)) => Err(notes.refuse(
            &format!("engine_config.{key}"),
            format!("has no meaning for a {RAY_SERVE}: Ray starts it on its own machines; remove it{instead}"),
        )),
    }
}
