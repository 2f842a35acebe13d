//! A RayServeEngine of `ray.serve.llm`: the engine's arguments, with the parallelism that the number of GPUs requires. Ray checks
//! the other arguments when it starts the engine.

use serde_json::{Map, Value};

use super::engine_fields::refuse_engine_keys;
use super::ray_serve::{ServeApplication, is_accelerator};
use super::server_config::EntryContext;
use crate::documents::{CatalogError, Diagnostics, EngineConfig};

const TENSOR: &str = "tensor_parallel_size";
const PIPELINE: &str = "pipeline_parallel_size";
const CONTEXT: &str = "max_model_len";

pub(crate) fn read(
    engine: &EngineConfig,
    around: &EntryContext,
    seats: u32,
    notes: &mut Diagnostics,
) -> Result<ServeApplication, CatalogError> {
    refuse_engine_keys(engine, "args deployments", notes, |_| {
        "is read with engine_config.import_path only; the arguments of ray.serve.llm are engine_config.engine_kwargs".to_owned()
    })?;
    let source = match (&engine.model_path, &engine.hf_model_id) {
        (Some(path), _) if path.starts_with('/') => path,
        (Some(path), _) => {
            return Err(notes.refuse(
                "engine_config.model_path",
                format!("`{path}` is not an absolute path; write the folder's path on Ray's machines, or the model's name in engine_config.hf_model_id"),
            ));
        }
        (None, Some(id)) => id,
        (None, None) => &engine.model_id,
    };
    let accelerator = engine.accelerator_type.as_deref();
    if let Some(kind) = accelerator.filter(|kind| !is_accelerator(kind)) {
        return Err(notes.refuse(
            "engine_config.accelerator_type",
            format!(
                "`{kind}` is not a kind of GPU; write it as Ray does, such as H100 or A100-40G"
            ),
        ));
    }
    let mut kwargs = engine.engine_kwargs.clone();
    parallelism(&mut kwargs, around, notes)?;
    if let Some(tokens) = engine.max_total_tokens {
        if kwargs.contains_key(CONTEXT) {
            return Err(notes.refuse(
                "engine_config.engine_kwargs.max_model_len",
                "is given, and engine_config.max_total_tokens too; remove one of them",
            ));
        }
        kwargs.insert(CONTEXT.to_owned(), Value::from(tokens));
    }
    Ok(ServeApplication::Llm {
        source: source.clone(),
        engine_kwargs: kwargs,
        accelerator_type: accelerator.map(str::to_owned),
        seats: around.seats.unwrap_or(seats),
    })
}

/// Tensor and pipeline parallelism together use the replica's GPUs, which may be on several machines.
fn parallelism(
    kwargs: &mut Map<String, Value>,
    around: &EntryContext,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let gpus = u64::from(around.devices.max(1));
    let degree = |key: &str, kwargs: &Map<String, Value>| match kwargs.get(key) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|degree| *degree > 0) {
            Some(degree) => Ok(Some(degree)),
            None => Err(notes.refuse(
                &format!("engine_config.engine_kwargs.{key}"),
                format!("{value} is not allowed; allowed: 1 and more"),
            )),
        },
    };
    let tensor = degree(TENSOR, kwargs)?;
    let pipeline = degree(PIPELINE, kwargs)?.unwrap_or(1);
    match tensor {
        Some(tensor) if around.devices > 1 && tensor.saturating_mul(pipeline) != gpus => {
            Err(notes.refuse(
                "engine_config.engine_kwargs.tensor_parallel_size",
                format!("{tensor} × {PIPELINE} {pipeline} are not the {gpus} GPUs of pool_config.gpus_per_replica; correct one of them"),
            ))
        }
        Some(_) => Ok(()),
        None if gpus == 1 => Ok(()),
        None if gpus.is_multiple_of(pipeline) => {
            kwargs.insert(TENSOR.to_owned(), Value::from(gpus / pipeline));
            Ok(())
        }
        None => Err(notes.refuse(
            "engine_config.engine_kwargs.pipeline_parallel_size",
            format!("{pipeline} does not divide the {gpus} GPUs of pool_config.gpus_per_replica"),
        )),
    }
}
