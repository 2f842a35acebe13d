//! RayLLM 0.5's form where it differs from the current one, and extensions in its users' files: newer and older names, keys of Ray
//! Serve, options of removed engines, accelerator types.

use serde_json::{Value, json};

use super::dropped_keys::{self, RAYLLM};
use super::paths::Draft;
use crate::documents::{CatalogError, Diagnostics};

const KWARGS: &str = "engine_config.engine_kwargs";

/// Converts the document. `has_default`: the form has a default engine for files that name none.
pub(super) fn tidy(
    value: &mut Value,
    has_default: bool,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    let mut draft = Draft { value, notes };
    draft.drop_table(RAYLLM, "");
    deployment(&mut draft);
    scaling(&mut draft);
    if has_default && draft.get("engine_config.type").is_none() {
        default_engine(&mut draft);
    }
    engine(&mut draft)
}

/// RayLLM 0.5's model classes each have a default engine.
fn default_engine(draft: &mut Draft<'_>) {
    if draft.get("engine_config").is_none() {
        return;
    }
    let kind = match draft.text("engine_config.model_type") {
        Some("embedding") => "EmbeddingEngine",
        _ => "VLLMEngine",
    };
    draft.put("engine_config.type", json!(kind));
    draft.notes.warn(
        "engine_config.type",
        format!("is missing; {kind} is used, as in RayLLM 0.5"),
    );
}

fn deployment(draft: &mut Draft<'_>) {
    let at = "deployment_config";
    for key in ["max_concurrent_queries", "max_ongoing_requests"] {
        as_integer(draft, &format!("{at}.{key}"));
    }
    if draft
        .get("deployment_config.max_ongoing_requests")
        .is_some()
    {
        draft.drop_key(
            "deployment_config.max_concurrent_queries",
            "it is the old name of max_ongoing_requests, which is also set and takes precedence",
        );
    }
    let scaling = "deployment_config.autoscaling_config";
    for key in ["min_replicas", "initial_replicas", "max_replicas"] {
        as_integer(draft, &format!("{scaling}.{key}"));
    }
    if draft
        .get(&format!("{scaling}.target_ongoing_requests"))
        .is_some()
    {
        draft.drop_key(
            &format!("{scaling}.target_num_ongoing_requests_per_replica"),
            "it is the old name of target_ongoing_requests, which is also set and takes precedence",
        );
    }
    // Variables of the actor applied to the engine in it.
    draft.rename(
        "deployment_config.ray_actor_options.runtime_env",
        "engine_config.runtime_env",
    );
    draft.drop_table(RAYLLM, dropped_keys::ACTOR);
    if draft.get(dropped_keys::ACTOR).is_some() {
        let known: Vec<&str> = dropped_keys::keys_of(RAYLLM, dropped_keys::ACTOR)
            .map(|(key, _)| key)
            .collect();
        draft.finish(dropped_keys::ACTOR, &known.join(" "));
    }
    match draft
        .get("deployment_config.max_queued_requests")
        .and_then(Value::as_i64)
    {
        // Ray's value for no limit.
        Some(-1) => draft.drop_key(
            "deployment_config.max_queued_requests",
            "every queue is limited: pool.queue_limit",
        ),
        _ => draft.rename(
            "deployment_config.max_queued_requests",
            "pool_config.queue_limit",
        ),
    }
    draft.drop_table(RAYLLM, at);
    draft.drop_table(RAYLLM, dropped_keys::SCALING);
}

/// Converts an integer that is written as `48.0`.
fn as_integer(draft: &mut Draft<'_>, path: &str) {
    let float = draft.get(path).filter(|value| value.is_f64());
    let Some(number) = float.and_then(Value::as_f64) else {
        return;
    };
    if number.fract() == 0.0 && number.abs() < 1e15 {
        draft.take(path);
        draft.put(path, json!(number as i64));
    }
}

fn scaling(draft: &mut Draft<'_>) {
    let zero =
        "each replica gets at least one device, which is host memory on machines without GPUs";
    as_integer(draft, "scaling_config.num_workers");
    for key in [
        "scaling_config.num_workers",
        "scaling_config.num_gpus_per_worker",
    ] {
        if draft.get(key).and_then(Value::as_f64) == Some(0.0) {
            draft.drop_key(key, zero);
        }
    }
    let part = "scaling_config.num_gpus_per_worker";
    if draft
        .get(part)
        .and_then(Value::as_f64)
        .is_some_and(|gpus| gpus > 0.0 && gpus < 1.0)
    {
        draft.drop_key(
            part,
            "models share a GPU by the memory they need, which pool_config.memory_gib can set",
        );
    }
    accelerators(draft, "scaling_config.resources_per_worker");
}

/// Converts Ray's resources that name a kind of GPU to a device constraint; other resources have no meaning here.
pub(super) fn accelerators(draft: &mut Draft<'_>, path: &str) {
    let Some(Value::Object(resources)) = draft.get(path).cloned() else {
        return;
    };
    let kinds: Vec<Value> = resources
        .keys()
        .filter_map(|name| kind_of(name))
        .map(Value::from)
        .collect();
    if kinds.is_empty() && !resources.is_empty() {
        return;
    }
    draft.take(path);
    for name in resources.keys().filter(|name| kind_of(name).is_none()) {
        draft.notes.warn(
            &format!("{path}.{name}"),
            "has no effect: the resource only has a meaning in Ray",
        );
    }
    if kinds.is_empty() {
        return;
    }
    if draft.put("pool_config.devices.kinds", Value::Array(kinds)) {
        draft.notes.moved("pool_config.devices.kinds", path);
    } else {
        draft.notes.warn(
            path,
            "has no effect: pool_config.devices.kinds is also set and takes precedence",
        );
    }
}

/// `accelerator_type_a100_40g`, `accelerator_type:NVIDIA_L4`: `A100 40G`, `L4`. `None`: not a kind of GPU.
pub(super) fn kind_of(resource: &str) -> Option<String> {
    let name = resource
        .strip_prefix("accelerator_type:")
        .or_else(|| resource.strip_prefix("accelerator_type_"))?;
    let words: Vec<String> = name
        .split(['-', '_', ' '])
        .map(str::to_uppercase)
        .filter(|word| !word.is_empty() && word != "NVIDIA" && word != "TESLA")
        .collect();
    match words.first()?.as_str() {
        "CPU" => None,
        _ => Some(words.join(" ")),
    }
}

/// Converts variables to text, whatever type YAML reads. A variable of Ray's form without a value is removed.
fn texts(draft: &mut Draft<'_>, path: &str) {
    let Some(Value::Object(mut variables)) = draft.get(path).cloned() else {
        return;
    };
    if path.ends_with("env_vars") && variables.values().any(Value::is_null) {
        for (name, _) in variables.iter().filter(|(_, value)| value.is_null()) {
            draft.notes.warn(
                &format!("{path}.{name}"),
                "has no effect: it has no value; write one, or name it in env_vars_to_propogate to pass it on",
            );
        }
        variables.retain(|_, value| !value.is_null());
        draft.take(path);
        draft.put(path, Value::Object(variables.clone()));
    }
    let is_plain = |value: &Value| value.is_number() || value.is_boolean();
    for (name, _) in variables.iter().filter(|(_, value)| value.is_f64()) {
        draft.notes.warn(
            &format!("{path}.{name}"),
            "is written as a number, which may have lost digits; put it into quotes",
        );
    }
    if variables.values().any(is_plain) {
        let as_text = |(name, value): (String, Value)| {
            if is_plain(&value) {
                (name, Value::String(value.to_string()))
            } else {
                (name, value)
            }
        };
        draft.take(path);
        draft.put(
            path,
            Value::Object(variables.into_iter().map(as_text).collect()),
        );
    }
}

fn engine(draft: &mut Draft<'_>) -> Result<(), CatalogError> {
    for path in ["engine_config.env", "engine_config.runtime_env.env_vars"] {
        texts(draft, path);
    }
    let kind = draft
        .text("engine_config.type")
        .unwrap_or_default()
        .to_owned();
    let has_both = draft.get("engine_config.s3_mirror_config").is_some()
        && draft.get("engine_config.gcs_mirror_config").is_some();
    if has_both {
        return Err(draft.notes.refuse(
            "engine_config.gcs_mirror_config",
            "and s3_mirror_config are both given; weights come from one of them",
        ));
    }
    match kind.as_str() {
        "VLLMEngine" => vllm(draft),
        "TRTLLMEngine" => trtllm(draft),
        "EmbeddingEngine" => embedding(draft),
        _ => {}
    }
    draft.drop_table(RAYLLM, "engine_config");
    let id = draft.text("engine_config.model_id").map(str::to_owned);
    let is_mirrored = ["s3_mirror_config", "gcs_mirror_config"]
        .iter()
        .any(|key| draft.get(&format!("engine_config.{key}")).is_some());
    // Without another location, the id is the model itself. For an embedded engine that is a file or folder, unless a mirror
    // provides the weights.
    let means_itself = |id: &String| match kind.as_str() {
        "CommandEngine" | "RemoteEngine" | "RayServeEngine" | "" => false,
        "CandleEngine" => is_mirrored,
        _ => is_mirrored || id.contains('/'),
    };
    if let Some(id) = id.filter(means_itself)
        && draft.get("engine_config.model_path").is_none()
        && draft.put("engine_config.hf_model_id", json!(id))
    {
        draft
            .notes
            .moved("engine_config.hf_model_id", "engine_config.model_id");
    }
    Ok(())
}

/// Options that vLLM had in earlier versions, or that Ray handled.
fn vllm(draft: &mut Draft<'_>) {
    draft.rename("engine_config.tokenizer_id", &format!("{KWARGS}.tokenizer"));
    let eager = format!("{KWARGS}.enable_cuda_graph");
    if draft.get(&eager) == Some(&Value::Bool(false)) {
        draft.take(&eager);
        if draft.put(&format!("{KWARGS}.enforce_eager"), Value::Bool(true)) {
            draft
                .notes
                .moved(&format!("{KWARGS}.enforce_eager"), &eager);
        }
    }
    draft.rename(
        &format!("{KWARGS}.max_log_probs"),
        &format!("{KWARGS}.max_logprobs"),
    );
    speculative(draft);
    draft.drop_table(RAYLLM, KWARGS);
}

/// The keys for speculative decoding, which vLLM now takes as one object.
fn speculative(draft: &mut Draft<'_>) {
    const MODEL: &str = "engine_config.engine_kwargs.speculative_model";
    const CONFIG: &str = "engine_config.engine_kwargs.speculative_config";
    const KEYS: [(&str, &str); 6] = [
        ("num_speculative_tokens", "num_speculative_tokens"),
        ("ngram_prompt_lookup_max", "prompt_lookup_max"),
        ("ngram_prompt_lookup_min", "prompt_lookup_min"),
        (
            "speculative_draft_tensor_parallel_size",
            "draft_tensor_parallel_size",
        ),
        ("speculative_max_model_len", "max_model_len"),
        ("speculative_model_quantization", "quantization"),
    ];
    let is_on = draft.get(&format!("{KWARGS}.use_speculative")) != Some(&Value::Bool(false));
    let model = draft.text(MODEL).map(str::to_owned).filter(|_| is_on);
    let Some(model) = model.filter(|_| draft.get(CONFIG).is_none()) else {
        let instead = match draft.get(CONFIG) {
            Some(_) => "speculative_config is also set and takes precedence",
            None if is_on => "speculative_model is missing, so nothing is drafted",
            None => "use_speculative is false",
        };
        for (key, _) in KEYS {
            draft.drop_key(&format!("{KWARGS}.{key}"), instead);
        }
        draft.drop_key(MODEL, instead);
        return;
    };
    draft.take(MODEL);
    match model.as_str() {
        "[ngram]" => draft.put(&format!("{CONFIG}.method"), json!("ngram")),
        name => draft.put(&format!("{CONFIG}.model"), json!(name)),
    };
    draft.notes.moved(CONFIG, MODEL);
    for (old, new) in KEYS {
        let old = format!("{KWARGS}.{old}");
        match draft.get(&old) {
            Some(_) => draft.rename(&old, &format!("{CONFIG}.{new}")),
            None => drop(draft.take(&old)),
        }
    }
}

fn trtllm(draft: &mut Draft<'_>) {
    draft.rename("engine_config.model_local_path", "engine_config.model_path");
    draft.rename(
        "engine_config.max_num_sequences",
        &format!("{KWARGS}.max_batch_size"),
    );
    draft.rename(
        "engine_config.kv_cache_free_gpu_mem_fraction",
        &format!("{KWARGS}.kv_cache_free_gpu_memory_fraction"),
    );
}

fn embedding(draft: &mut Draft<'_>) {
    as_integer(draft, "engine_config.max_batch_size");
    draft.rename(
        "engine_config.max_batch_size",
        &format!("{KWARGS}.max_batch_requests"),
    );
}
