//! The form after RayLLM: `model_loading_config`, `llm_engine`, `accelerator_type`, as in Anyscale's templates and Ray Serve LLM's
//! `LLMConfig`.

use serde_json::{Value, json};

use super::dropped_keys::RAY_SERVE;
use super::paths::Draft;
use super::rayllm::kind_of;
use crate::documents::{CatalogError, Diagnostics};

pub(super) fn llm_config(value: &mut Value, notes: &mut Diagnostics) -> Result<(), CatalogError> {
    let mut draft = Draft { value, notes };
    if draft.get("engine_config").is_some() {
        return Err(draft.notes.refuse(
            "model_loading_config",
            "is of another form than engine_config, which is given too; remove one of them",
        ));
    }
    engine(&mut draft)?;
    draft.rename("model_loading_config.model_id", "engine_config.model_id");
    source(&mut draft);
    draft.rename(
        "model_loading_config.tokenizer_source",
        "engine_config.tokenizer_id",
    );
    draft.drop_table(RAY_SERVE, "model_loading_config");
    draft.finish(
        "model_loading_config",
        "model_id model_source tokenizer_source",
    );
    for (old, new) in [
        ("engine_kwargs", "engine_config.engine_kwargs"),
        ("runtime_env", "engine_config.runtime_env"),
        ("generation", "engine_config.generation"),
        ("generation_config", "engine_config.generation"),
        (
            "max_request_context_length",
            "engine_config.max_total_tokens",
        ),
    ] {
        draft.rename(old, new);
    }
    // In that form these are engine options; here the pool sets both.
    for (old, new) in [
        ("max_model_len", "engine_config.max_total_tokens"),
        ("tensor_parallel_size", "pool_config.gpus_per_replica"),
    ] {
        draft.rename(&format!("engine_config.engine_kwargs.{old}"), new);
    }
    parallelism(&mut draft)?;
    accelerator(&mut draft)?;
    draft.drop_table(RAY_SERVE, "");
    Ok(())
}

fn accelerator(draft: &mut Draft<'_>) -> Result<(), CatalogError> {
    const FIELD: &str = "accelerator_type";
    let Some(value) = draft.take(FIELD) else {
        return Ok(());
    };
    let Some(name) = value.as_str() else {
        let problem = format!("{value} is not a kind of GPU, such as A10G");
        return Err(draft.notes.refuse(FIELD, problem));
    };
    match kind_of(&format!("accelerator_type:{name}")) {
        None => draft
            .notes
            .warn(FIELD, "has no effect: it does not name a kind of GPU"),
        Some(kind) if draft.put("pool_config.devices.kinds", json!([kind])) => {
            draft.notes.moved("pool_config.devices.kinds", FIELD);
        }
        Some(_) => draft.notes.warn(
            FIELD,
            "has no effect: pool_config.devices.kinds is also set and takes precedence",
        ),
    }
    Ok(())
}

fn engine(draft: &mut Draft<'_>) -> Result<(), CatalogError> {
    let name = draft.take("llm_engine").unwrap_or_else(|| json!("vLLM"));
    let Some(name) = name.as_str() else {
        let problem = format!("{name} is not known; known are vLLM, SGLang, TRTLLM and Embedding");
        return Err(draft.notes.refuse("llm_engine", problem));
    };
    let kind = match name.to_lowercase().trim_end_matches("engine") {
        "vllm" => "VLLMEngine",
        "sglang" => "SGLangEngine",
        "trtllm" => "TRTLLMEngine",
        "embedding" => "EmbeddingEngine",
        _ => {
            let problem =
                format!("`{name}` is not known; known are vLLM, SGLang, TRTLLM and Embedding");
            return Err(draft.notes.refuse("llm_engine", problem));
        }
    };
    draft.put("engine_config.type", json!(kind));
    draft.notes.moved("engine_config.type", "llm_engine");
    Ok(())
}

/// Reads a name on the hub, a path, or a bucket.
fn source(draft: &mut Draft<'_>) {
    const SOURCE: &str = "model_loading_config.model_source";
    match draft.get(SOURCE) {
        Some(Value::Object(mirror)) => {
            let uri = mirror.get("bucket_uri").and_then(Value::as_str);
            let is_google = uri.is_some_and(|uri| uri.starts_with("gs://"));
            draft.rename(
                SOURCE,
                if is_google {
                    "engine_config.gcs_mirror_config"
                } else {
                    "engine_config.s3_mirror_config"
                },
            );
        }
        Some(Value::String(text)) if text.starts_with("s3://") || text.starts_with("gs://") => {
            let (uri, section) = (
                text.clone(),
                if text.starts_with("gs://") {
                    "engine_config.gcs_mirror_config"
                } else {
                    "engine_config.s3_mirror_config"
                },
            );
            draft.take(SOURCE);
            draft.put(&format!("{section}.bucket_uri"), json!(uri));
            draft.notes.moved(&format!("{section}.bucket_uri"), SOURCE);
        }
        _ => draft.rename(SOURCE, "engine_config.hf_model_id"),
    }
}

/// A replica takes the product of both degrees in GPUs.
fn parallelism(draft: &mut Draft<'_>) -> Result<(), CatalogError> {
    let mut gpus = 1;
    let mut stated = None;
    for path in ["tensor_parallelism.degree", "pipeline_parallelism.degree"] {
        let Some(value) = draft.take(path) else {
            continue;
        };
        match value.as_u64().filter(|degree| (1..=4096).contains(degree)) {
            Some(degree) => gpus *= degree,
            None => {
                let problem = format!("{value} is not allowed; allowed: 1 to 4096");
                return Err(draft.notes.refuse(path, problem));
            }
        }
        stated.get_or_insert(path);
        if path.starts_with("pipeline") && gpus > 1 {
            draft.notes.warn(
                path,
                "pipelines are not used: the replica's GPUs divide each layer",
            );
        }
    }
    for section in ["tensor_parallelism", "pipeline_parallelism"] {
        draft.finish(section, "degree");
    }
    if let Some(path) = stated {
        if draft.put("pool_config.gpus_per_replica", json!(gpus)) {
            draft.notes.moved("pool_config.gpus_per_replica", path);
        } else {
            draft.notes.warn(
                path,
                "has no effect: another key sets the number of GPUs and takes precedence",
            );
        }
    }
    Ok(())
}
