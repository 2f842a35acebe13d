//! Aviary's forms: `model_config` of 0.0 and 0.1, with its initialisers, and `scheduler.policy` of 0.2.

use serde_json::{Value, json};

use super::dropped_keys::{self, AVIARY};
use super::paths::Draft;
use crate::documents::{CatalogError, Diagnostics};

const INITIALIZER: &str = "model_config.initialization.initializer";
const KWARGS: &str = "engine_config.engine_kwargs";

pub(super) fn model_config(value: &mut Value, notes: &mut Diagnostics) -> Result<(), CatalogError> {
    let mut draft = Draft { value, notes };
    if draft.get("engine_config").is_some() {
        return Err(draft.notes.refuse(
            "model_config",
            "is the older form of engine_config, which is given too; remove one of them",
        ));
    }
    for key in ["model_id", "model_url", "model_description"] {
        draft.rename(
            &format!("model_config.{key}"),
            &format!("engine_config.{key}"),
        );
    }
    for key in [
        "hf_model_id",
        "s3_mirror_config",
        "gcs_mirror_config",
        "runtime_env",
    ] {
        draft.rename(
            &format!("model_config.initialization.{key}"),
            &format!("engine_config.{key}"),
        );
    }
    engine(&mut draft)?;
    for key in [
        "prompt_format",
        "generate_kwargs",
        "stopping_sequences",
        "stopping_tokens",
    ] {
        draft.rename(
            &format!("model_config.generation.{key}"),
            &format!("engine_config.generation.{key}"),
        );
    }
    let is_tgi = draft.text("engine_config.type") == Some("TextGenerationInferenceEngine");
    if is_tgi {
        policy(&mut draft, "model_config.generation")?;
    }
    for section in [
        "model_config",
        "model_config.generation",
        "model_config.initialization",
    ] {
        draft.drop_table(AVIARY, section);
    }
    for (section, known) in [
        (
            "initialization.initializer",
            "type dtype from_pretrained_kwargs use_bettertransformer torch_compile use_kernel max_tokens use_meta_tensor ds_inference_kwargs device_map model_filename model_init_kwargs",
        ),
        (
            "initialization",
            "initializer pipeline s3_mirror_config gcs_mirror_config runtime_env hf_model_id full_warmup",
        ),
        (
            "generation",
            "prompt_format generate_kwargs stopping_sequences stopping_tokens max_batch_size batch_wait_timeout_s max_input_words max_batch_total_tokens max_total_tokens max_waiting_tokens max_input_length max_batch_prefill_tokens waiting_served_ratio max_iterations_curr_batch",
        ),
    ] {
        draft.finish(&format!("model_config.{section}"), known);
    }
    draft.finish(
        "model_config",
        "model_id model_url model_description batching initialization generation max_input_words",
    );
    Ok(())
}

/// Converts an initialiser and its options to an engine.
fn engine(draft: &mut Draft<'_>) -> Result<(), CatalogError> {
    let kind = draft.take(&format!("{INITIALIZER}.type"));
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
    let (engine, why) = match kind {
        "TextGenerationInference" => ("TextGenerationInferenceEngine", None),
        "LlamaCpp" => ("LlamaCppEngine", None),
        "DeepSpeed" | "DeviceMap" | "SingleDevice" => (
            "VLLMEngine",
            Some(
                "the transformers pipeline of this initialiser is not used; VLLMEngine runs the model",
            ),
        ),
        "" => {
            return Err(draft.notes.refuse(
                INITIALIZER,
                "names no type; write DeepSpeed, DeviceMap, SingleDevice, LlamaCpp or TextGenerationInference",
            ));
        }
        other => {
            let problem = format!(
                "`{other}` is not known; known are DeepSpeed, DeviceMap, SingleDevice, LlamaCpp and TextGenerationInference"
            );
            return Err(draft.notes.refuse(&format!("{INITIALIZER}.type"), problem));
        }
    };
    draft.put("engine_config.type", json!(engine));
    draft
        .notes
        .moved("engine_config.type", &format!("{INITIALIZER}.type"));
    if let Some(why) = why {
        draft.notes.warn(&format!("{INITIALIZER}.type"), why);
    }
    match engine {
        "LlamaCppEngine" => llama_cpp(draft),
        "VLLMEngine" => transformers(draft),
        _ => {
            draft.rename(&format!("{INITIALIZER}.model_init_kwargs"), KWARGS);
        }
    }
    Ok(())
}

fn llama_cpp(draft: &mut Draft<'_>) {
    for key in ["s3_mirror_config", "gcs_mirror_config"] {
        draft.drop_key(
            &format!("engine_config.{key}"),
            "llama.cpp downloads its file from the hub itself; copy the mirror's file into a folder, and set engine_config.model_path to it",
        );
    }
    let file = format!("{INITIALIZER}.model_filename");
    match draft.text(&file) {
        Some(name) if !name.ends_with(".gguf") => draft.drop_key(
            &file,
            "llama.cpp only reads GGUF files; convert the file, or set engine_config.model_path to a GGUF file of the same model",
        ),
        _ => draft.rename(&file, &format!("{KWARGS}.hf_file")),
    }
    let kwargs = format!("{INITIALIZER}.model_init_kwargs");
    draft.rename(&format!("{kwargs}.n_ctx"), "engine_config.max_total_tokens");
    for (old, new) in [
        ("n_threads", "threads"),
        ("n_batch", "batch_size"),
        ("use_mlock", "mlock"),
    ] {
        draft.rename(&format!("{kwargs}.{old}"), &format!("{KWARGS}.{new}"));
    }
    draft.finish(&kwargs, "n_ctx n_threads n_batch use_mlock");
}

fn transformers(draft: &mut Draft<'_>) {
    let trust = "from_pretrained_kwargs.trust_remote_code";
    draft.rename(
        &format!("{INITIALIZER}.{trust}"),
        &format!("{KWARGS}.trust_remote_code"),
    );
    match draft.text(&format!("{INITIALIZER}.dtype")) {
        Some("int8") => draft.drop_key(
            &format!("{INITIALIZER}.dtype"),
            "vLLM supports float16, bfloat16 or float32; for quantisation, set hf_model_id to a quantised model",
        ),
        _ => draft.rename(&format!("{INITIALIZER}.dtype"), &format!("{KWARGS}.dtype")),
    }
    // DeepSpeed's limit for prompt and response together.
    draft.rename(
        &format!("{INITIALIZER}.max_tokens"),
        "engine_config.max_total_tokens",
    );
    for (key, instead) in dropped_keys::keys_of(AVIARY, INITIALIZER) {
        let path = format!("{INITIALIZER}.{key}");
        match draft.get(&path) {
            // A section whose only key has been moved.
            Some(Value::Object(rest)) if rest.is_empty() => {
                draft.take(&path);
            }
            Some(Value::Bool(false)) => {
                draft.take(&path);
            }
            _ => draft.drop_key(&path, instead),
        }
    }
}

/// Converts the keys of 0.2: `engine_config.scheduler.policy` and `engine_config.model_init_kwargs`.
pub(super) fn scheduler(value: &mut Value, notes: &mut Diagnostics) -> Result<(), CatalogError> {
    let mut draft = Draft { value, notes };
    if let Some(Value::Object(kwargs)) = draft.get("engine_config.model_init_kwargs").cloned() {
        for key in kwargs.keys() {
            draft.rename(
                &format!("engine_config.model_init_kwargs.{key}"),
                &format!("{KWARGS}.{key}"),
            );
        }
        draft.finish("engine_config.model_init_kwargs", "");
    }
    if draft.get("engine_config.scheduler").is_some() {
        draft.drop_table(AVIARY, "engine_config.scheduler.policy");
        policy(&mut draft, "engine_config.scheduler.policy")?;
        draft.finish(
            "engine_config.scheduler.policy",
            "type max_input_length max_batch_prefill_tokens max_batch_total_tokens max_total_tokens max_iterations_curr_batch max_waiting_tokens waiting_served_ratio",
        );
        draft.finish("engine_config.scheduler", "policy");
    }
    Ok(())
}

/// The token budgets of continuous batching, and their required order.
fn policy(draft: &mut Draft<'_>, at: &str) -> Result<(), CatalogError> {
    let number =
        |draft: &Draft<'_>, key: &str| draft.get(&format!("{at}.{key}")).and_then(Value::as_u64);
    let input = number(draft, "max_input_length");
    let prefill = number(draft, "max_batch_prefill_tokens");
    let total = number(draft, "max_batch_total_tokens");
    let sequence = number(draft, "max_total_tokens");
    let rules = [
        (
            "max_input_length",
            input,
            "max_batch_prefill_tokens",
            prefill,
        ),
        (
            "max_batch_prefill_tokens",
            prefill,
            "max_batch_total_tokens",
            total,
        ),
        (
            "max_total_tokens",
            sequence,
            "max_batch_total_tokens",
            total,
        ),
    ];
    for (less, small, more, large) in rules {
        if let (Some(small), Some(large)) = (small, large)
            && small > large
        {
            return Err(draft.notes.refuse(
                &format!("{at}.{less}"),
                format!("is {small}, and may not be more than {more}, which is {large}"),
            ));
        }
    }
    if let (Some(input), Some(sequence)) = (input, sequence)
        && input >= sequence
    {
        return Err(draft.notes.refuse(
            &format!("{at}.max_input_length"),
            format!("is {input}, and must be less than max_total_tokens, which is {sequence}, to leave room for a response"),
        ));
    }
    draft.rename(
        &format!("{at}.max_total_tokens"),
        "engine_config.max_total_tokens",
    );
    for (old, new) in [
        ("max_input_length", "max_input_tokens"),
        ("max_batch_prefill_tokens", "max_batch_prefill_tokens"),
        ("max_batch_total_tokens", "max_batch_total_tokens"),
        ("max_iterations_curr_batch", "max_waiting_tokens"),
        ("max_waiting_tokens", "max_waiting_tokens"),
        ("waiting_served_ratio", "waiting_served_ratio"),
    ] {
        draft.rename(&format!("{at}.{old}"), &format!("{KWARGS}.{new}"));
    }
    Ok(())
}
