//! Checks the embedded engine's options against each other, and against the model's files if they are on this machine.

use std::path::Path;

use super::candle_models;
use super::candle_models::{ModelSummary, ModelTask};
use crate::documents::{
    CacheType, CatalogError, ComputeDevice, Diagnostics, NumberTypes, Quantization, Task,
};

/// The engine refuses a context longer than the model was trained for.
pub(crate) fn context(
    context: Option<u32>,
    summary: ModelSummary,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    match (context, summary.context) {
        (Some(wanted), Some(most)) if u64::from(wanted) > most => Err(notes.refuse(
            "engine_config.max_total_tokens",
            format!("is {wanted}, but the model was trained for {most} tokens; set at most {most}, or remove it"),
        )),
        _ => Ok(()),
    }
}

/// Quantization applies to matrices of wide numbers. A GGUF file may have none, and encoders compute them unchanged.
pub(crate) fn quantization(
    quantization: Option<Quantization>,
    summary: Option<ModelSummary>,
    path: &Path,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    let Some(form) = quantization else {
        return Ok(());
    };
    let field = "engine_config.engine_kwargs.quantization";
    if summary.is_some_and(|summary| summary.is_encoder) {
        return Err(notes.refuse(
            field,
            format!(
                "is {}, but encoders are always computed in wide numbers; remove it",
                form.as_str()
            ),
        ));
    }
    if summary.is_some_and(|summary| summary.serves == ModelTask::Speech) {
        return Err(notes.refuse(
            field,
            format!(
                "is {}, but speech models are computed in the numbers of their files; remove it",
                form.as_str()
            ),
        ));
    }
    if summary.is_some_and(|summary| summary.is_library) {
        return Err(notes.refuse(
            field,
            format!(
                "is {}, but the engine computes this architecture in wide numbers; remove it",
                form.as_str()
            ),
        ));
    }
    if candle_models::gguf_file(path).is_some() {
        notes.warn(
            field,
            "only affects the wide numbers of a GGUF file; quantised weights stay unchanged",
        );
    }
    Ok(())
}

/// These options apply to the CPU only, and encoders keep no cache.
pub(crate) fn numbers(
    numbers: NumberTypes,
    device: ComputeDevice,
    summary: Option<ModelSummary>,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let (products, kv_cache) = (numbers.products.as_str(), numbers.kv_cache.as_str());
    let given = [("dtype", products), ("kv_cache_dtype", kv_cache)];
    let given = given.iter().find(|(_, value)| *value != "auto");
    if let Some((key, value)) = given.filter(|_| device != ComputeDevice::Cpu) {
        return Err(notes.refuse(
            &format!("engine_config.engine_kwargs.{key}"),
            format!(
                "is {value}, and on {} the number types are the weights' own; remove it",
                device.as_str()
            ),
        ));
    }
    let is_encoder = summary.is_some_and(|summary| summary.is_encoder);
    if is_encoder && numbers.kv_cache != CacheType::Auto {
        return Err(notes.refuse(
            "engine_config.engine_kwargs.kv_cache_dtype",
            format!("is {kv_cache}, but encoders have no key-value cache; remove it"),
        ));
    }
    let is_speech = summary.is_some_and(|summary| summary.serves == ModelTask::Speech);
    if is_speech && numbers.kv_cache != CacheType::Auto {
        return Err(notes.refuse(
            "engine_config.engine_kwargs.kv_cache_dtype",
            format!(
                "is {kv_cache}, but speech models keep the text of one window in float32; remove it"
            ),
        ));
    }
    let is_library = summary.is_some_and(|summary| summary.is_library);
    if is_library && numbers.kv_cache != CacheType::Auto {
        return Err(notes.refuse(
            "engine_config.engine_kwargs.kv_cache_dtype",
            format!(
                "is {kv_cache}, but the engine computes this architecture in wide numbers; remove it"
            ),
        ));
    }
    Ok(())
}

/// The library's networks have no place for adapters.
pub(crate) fn adapters(
    count: usize,
    summary: Option<ModelSummary>,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    if count > 0 && summary.is_some_and(|summary| summary.is_library) {
        return Err(notes.refuse(
            "engine_config.lora_adapters",
            format!(
                "lists {count}, but the engine computes this architecture without adapters; remove them, or use VLLMEngine"
            ),
        ));
    }
    Ok(())
}

/// A decoder's task can be chosen; other models have a form for a single task.
pub(crate) fn task(
    task: Option<Task>,
    summary: Option<ModelSummary>,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    match (task, summary) {
        (Some(task), Some(summary))
            if summary.is_fixed && ModelTask::new(task) != summary.serves =>
        {
            let own = summary.serves.as_str();
            Err(notes.refuse(
                "engine_config.engine_kwargs.task",
                format!(
                    "is {}, but the model only supports {own}; remove it",
                    task.as_str()
                ),
            ))
        }
        _ => Ok(()),
    }
}
