//! Reads `engine_config` into a recipe for the embedded engine, and checks its options against each other and against the model's
//! files if they are on this machine.
//! One file because each option is checked next to its default and its limit.

use serde::Deserialize;
use serde_json::Value;

use config::{Config, Provider};

use super::candle_models::ModelTask;
use super::engine_fields::{COMMAND, context, only_of_servers, refuse_engine_keys, warn_of_paths};
use super::recipe::{CandleRecipe, JoiningRule, TokenBudgets};
use super::server_config::EntryContext;
use super::speculation::SpeculativeConfig;
use super::{adapters, candle_checks, candle_models, speculation};
use crate::documents::fields::fields_of;
use crate::documents::{
    CacheType, CatalogError, ComputeDevice, Diagnostics, EngineConfig, NumberTypes, ProductType,
    Quantization, Task, limits,
};
use crate::engines::OptionFate;

/// Sequences computed together by default.
const CANDLE_CONCURRENCY: u32 = 4;
const CANDLE_CONCURRENCY_MAX: u32 = 1024;
/// A smaller context holds no useful prompt and response; the engine refuses it.
const CANDLE_CONTEXT_MIN: u32 = 16;
const THREADS_MAX: u32 = 1024;
/// A larger number of tokens is a mistake.
const BUDGET_MAX: u32 = 100_000_000;

/// Aviary's defaults: the ratio of waiting to running requests, and a number of steps, each of which computes one token per running
/// request.
const SERVED_RATIO: f64 = 1.2;
const WAITING_STEPS: i64 = 20;
const SERVED_RATIO_MAX: f64 = 1000.0;
const WAITING_STEPS_MAX: u32 = 1_000_000;

pub(crate) fn candle(
    engine: &EngineConfig,
    around: &EntryContext,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<CandleRecipe, CatalogError> {
    only_of_servers(engine, "program command_prefix revision", notes)?;
    let foreign =
        "command listen ready_path served_model_name working_dir sleep_command wake_command";
    refuse_engine_keys(engine, foreign, notes, |_| {
        format!("is read with type: {COMMAND} only; remove it, or change the type")
    })?;
    let Some(path) = engine
        .model_path
        .as_deref()
        .or(engine.hf_model_id.as_deref())
    else {
        return Err(notes.refuse(
            "engine_config.model_path",
            "is missing; name the local folder with config.json, tokenizer.json and model.safetensors, or a GGUF file",
        ));
    };
    let model_path = notes.path(path_key(engine), path)?;
    warn_of_paths(engine, &model_path, notes);
    let EngineKwargs {
        concurrency,
        threads,
        tokenizer_workers,
        device,
        max_input_tokens,
        max_batch_prefill_tokens,
        max_batch_total_tokens,
        max_waiting_tokens,
        waiting_served_ratio,
        speculative_config,
        quantization,
        dtype,
        kv_cache_dtype,
        verify,
        overflow,
        task,
    } = kwargs(engine, notes)?;
    let concurrency = concurrency
        .map(|value| {
            let bounded = |value| limits::count(value, CANDLE_CONCURRENCY_MAX);
            notes.check("engine_config.engine_kwargs.concurrency", value, bounded)
        })
        .transpose()?;
    let threads = threads
        .map(|value| {
            let bounded = |value| limits::count(value, THREADS_MAX);
            notes.check("engine_config.engine_kwargs.threads", value, bounded)
        })
        .transpose()?;
    let tokenizer_workers = tokenizer_workers
        .map(|value| {
            let bounded = |value| limits::count(value, THREADS_MAX);
            let key = "engine_config.engine_kwargs.tokenizer_workers";
            notes.check(key, value, bounded)
        })
        .transpose()?;
    let tokens = |key: &str, value: Option<i64>| {
        let field = format!("engine_config.engine_kwargs.{key}");
        let bounded = |value| limits::count(value, BUDGET_MAX);
        value
            .map(|value| notes.check(&field, value, bounded))
            .transpose()
    };
    let budgets = TokenBudgets {
        input: tokens("max_input_tokens", max_input_tokens)?,
        prefill: tokens("max_batch_prefill_tokens", max_batch_prefill_tokens)?,
        total: tokens("max_batch_total_tokens", max_batch_total_tokens)?,
        joining: joining(waiting_served_ratio, max_waiting_tokens, notes)?,
    };
    let context = context(engine, CANDLE_CONTEXT_MIN, notes)?;
    check_budgets(&budgets, context, notes)?;
    let device = device.unwrap_or_default();
    check_device(device, around, config, notes)?;
    let summary = candle_models::look(&model_path)
        .map_err(|problem| notes.refuse(path_key(engine), problem))?;
    if let Some(summary) = summary {
        candle_checks::context(context, summary, notes)?;
    }
    check_overflow(overflow, device, around, notes)?;
    candle_checks::quantization(quantization, summary, &model_path, notes)?;
    let numbers = NumberTypes {
        products: dtype.unwrap_or_default(),
        kv_cache: kv_cache_dtype.unwrap_or_default(),
    };
    candle_checks::numbers(numbers, device, summary, notes)?;
    candle_checks::task(task, summary, notes)?;
    let adapters = adapters::read(engine, notes)?;
    candle_checks::adapters(adapters.len(), summary, notes)?;
    Ok(CandleRecipe {
        model_path,
        serves: task
            .map(ModelTask::new)
            .or(summary.map(|summary| summary.serves)),
        task,
        context,
        concurrency: concurrency.unwrap_or(CANDLE_CONCURRENCY),
        threads,
        tokenizer_workers,
        budgets,
        speculation: speculation::read(speculative_config, notes)?,
        quantization,
        numbers,
        verify: verify.unwrap_or_default(),
        overflows: overflow.is_some(),
        device,
        sleep: around.sleep,
        adapters,
        adapter_room: around.adapter_room,
        env: engine.env.clone(),
    })
}

/// The options of the embedded engine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineKwargs {
    /// Sequences computed together.
    concurrency: Option<i64>,
    /// Processor threads.
    threads: Option<i64>,
    /// Requests tokenized simultaneously.
    tokenizer_workers: Option<i64>,
    device: Option<ComputeDevice>,
    /// Limits in tokens: per prompt, per step of prompts, and in total.
    max_input_tokens: Option<i64>,
    max_batch_prefill_tokens: Option<i64>,
    max_batch_total_tokens: Option<i64>,
    /// Conditions for adding waiting requests to the running batch.
    max_waiting_tokens: Option<i64>,
    waiting_served_ratio: Option<f64>,
    /// Number of tokens proposed by lookup in the request's own text; `Some(None)` is an explicit `null`.
    #[serde(default, deserialize_with = "speculation::or_null")]
    speculative_config: Option<Option<SpeculativeConfig>>,
    /// The form that wide weights are converted to at load.
    quantization: Option<Quantization>,
    /// Number types for multiplying BF16 matrices, and for keys and values.
    dtype: Option<ProductType>,
    kv_cache_dtype: Option<CacheType>,
    verify: Option<bool>,
    /// The place for layers that do not fit on the GPUs.
    overflow: Option<Overflow>,
    /// The task to serve, where the model's files do not say.
    task: Option<Task>,
}

/// Names of the embedded engine's options.
pub(crate) fn option_keys() -> &'static [&'static str] {
    fields_of::<EngineKwargs>()
}

/// Decides on an option from a file of an older form that was written for vLLM. The embedded engine lacks some of vLLM's number
/// types and methods of proposing tokens.
pub(crate) fn option_fate(key: &str, value: &Value) -> OptionFate {
    let is_read = match key {
        "dtype" => Option::<ProductType>::deserialize(value).is_ok(),
        "kv_cache_dtype" => Option::<CacheType>::deserialize(value).is_ok(),
        "speculative_config" => Option::<SpeculativeConfig>::deserialize(value).is_ok(),
        key if option_keys().contains(&key) => true,
        _ => return OptionFate::Unknown,
    };
    if is_read {
        OptionFate::Taken
    } else if key == "speculative_config" {
        OptionFate::Refused("only supports `method: ngram`".to_owned())
    } else {
        OptionFate::Refused("does not support this number type".to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Overflow {
    Cpu,
}

/// Overflow needs GPUs and a memory figure from the file; without a figure, the model would reserve room for all its layers.
fn check_overflow(
    overflow: Option<Overflow>,
    device: ComputeDevice,
    around: &EntryContext,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let field = "engine_config.engine_kwargs.overflow";
    match overflow {
        Some(Overflow::Cpu) if device != ComputeDevice::Cuda => Err(notes.refuse(
            field,
            format!("is cpu, and device is {}; write cuda, or remove it", device.as_str()),
        )),
        Some(Overflow::Cpu) if !around.has_memory_figure => Err(notes.refuse(
            field,
            "is cpu, but the model has no memory figure for GPUs; set pool_config.memory_gib, and layers that exceed it are computed on the CPU",
        )),
        _ => Ok(()),
    }
}

fn path_key(engine: &EngineConfig) -> &'static str {
    match engine.model_path {
        Some(_) => "engine_config.model_path",
        None => "engine_config.hf_model_id",
    }
}

/// Reads Aviary's two keys. A missing key takes Aviary's default.
fn joining(
    ratio: Option<f64>,
    steps: Option<i64>,
    notes: &Diagnostics,
) -> Result<Option<JoiningRule>, CatalogError> {
    if ratio.is_none() && steps.is_none() {
        return Ok(None);
    }
    let field = |key: &str| format!("engine_config.engine_kwargs.{key}");
    let ratio = notes.check(
        &field("waiting_served_ratio"),
        ratio.unwrap_or(SERVED_RATIO),
        |ratio| {
            if (0.0..=SERVED_RATIO_MAX).contains(&ratio) {
                // At most 1,000 × 1,000.
                Ok((ratio * 1000.0).round() as u32)
            } else {
                Err(format!("allowed: 0 to {SERVED_RATIO_MAX}"))
            }
        },
    )?;
    let steps = notes.check(
        &field("max_waiting_tokens"),
        steps.unwrap_or(WAITING_STEPS),
        |steps| limits::count(steps, WAITING_STEPS_MAX),
    )?;
    Ok(Some(JoiningRule {
        served_ratio_milli: ratio,
        steps,
    }))
}

/// A prompt must leave room for a response, and one request must fit into the total.
fn check_budgets(
    budgets: &TokenBudgets,
    context: Option<u32>,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let Some(context) = context else {
        return Ok(());
    };
    let kwargs = "engine_config.engine_kwargs";
    if let Some(input) = budgets.input.filter(|input| *input >= context) {
        return Err(notes.refuse(
            &format!("{kwargs}.max_input_tokens"),
            format!("is {input}, and must be less than max_total_tokens, which is {context}, to leave room for a response"),
        ));
    }
    match budgets.total.filter(|total| *total < context) {
        Some(total) => Err(notes.refuse(
            &format!("{kwargs}.max_batch_total_tokens"),
            format!("is {total}, and may not be less than max_total_tokens, which is {context}"),
        )),
        None => Ok(()),
    }
}

fn kwargs(engine: &EngineConfig, notes: &Diagnostics) -> Result<EngineKwargs, CatalogError> {
    let is_foreign = Value::Object(engine.engine_kwargs.clone());
    reading::value_at(is_foreign).map_err(|(path, problem)| {
        let kwargs = "engine_config.engine_kwargs";
        match path.as_str() {
            "" | "." | "?" => notes.refuse(kwargs, problem),
            key => notes.refuse(&format!("{kwargs}.{key}"), problem),
        }
    })
}

/// Refuses a device that this binary or this pool cannot provide, before anything is loaded.
fn check_device(
    device: ComputeDevice,
    around: &EntryContext,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    let field = "engine_config.engine_kwargs.device";
    // CUDA has a separate program. Each machine looks for its own, as the model may run on a node.
    let built = match device {
        ComputeDevice::Cpu | ComputeDevice::Cuda => true,
        ComputeDevice::Metal => cfg!(feature = "metal"),
    };
    let name = device.as_str();
    if !built {
        return Err(notes.refuse(
            field,
            format!("{name} is not in this binary; build it with `cargo build --release --features {name}`, or write cpu"),
        ));
    }
    if device == ComputeDevice::Cuda && config.inventory.provider == Provider::Host {
        return Err(notes.refuse(
            field,
            "cuda needs GPUs, and inventory.provider is host; write cpu, or another provider",
        ));
    }
    if device != ComputeDevice::Cuda && around.devices_in_document > 1 {
        return Err(notes.refuse(
            field,
            format!(
                "is {name}, which is one device, and a replica of this model takes {}; set pool_config.gpus_per_replica to 1, or write cuda, which divides its layers over several GPUs",
                around.devices_in_document
            ),
        ));
    }
    if device == ComputeDevice::Cpu && config.inventory.provider == Provider::Nvml {
        notes.warn(
            field,
            "is cpu, and inventory.provider is nvml: the model reserves GPU memory that it does not use",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn vllm_only_keys_have_no_effect_on_the_embedded_engine_or_are_refused() {
        let fate = |key: &str, value: Value| option_fate(key, &value);
        for (key, value) in [
            ("dtype", json!("auto")),
            ("dtype", json!("float32")),
            ("kv_cache_dtype", json!("float16")),
            (
                "speculative_config",
                json!({"method": "ngram", "num_speculative_tokens": 3}),
            ),
            ("concurrency", json!(2)),
        ] {
            assert!(matches!(fate(key, value), OptionFate::Taken), "{key}");
        }
        for (key, value) in [
            ("dtype", json!("half")),
            ("kv_cache_dtype", json!("fp8_e5m2")),
            (
                "speculative_config",
                json!({"model": "org/draft", "num_speculative_tokens": 5}),
            ),
        ] {
            assert!(matches!(fate(key, value), OptionFate::Refused(_)), "{key}");
        }
        assert!(matches!(fate("swap_space", json!(4)), OptionFate::Unknown));
    }
}
