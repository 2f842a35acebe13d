//! Owns `config.json` and `generation_config.json`: reads them, refuses what this engine cannot compute. Never reads weights.

use crate::error::EngineError;
use crate::sampling::SamplingSettings;
use candle_transformers::models::llama::{Config, LlamaConfig, LlamaEosToks};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SUPPORTED_ARCHITECTURE: &str = "LlamaForCausalLM";

/// A model's shape, checked, with every token id that ends an answer.
#[derive(Debug)]
pub(crate) struct ModelConfig {
    pub llama: Config,
    pub end_tokens: BTreeSet<u32>,
    /// How the model's makers want tokens chosen when a request does not say.
    pub sampling_defaults: SamplingSettings,
    pub file: PathBuf,
}

impl ModelConfig {
    /// Reads the folder's configuration.
    ///
    /// # Errors
    /// A file that is missing or no JSON, another architecture, or numbers that contradict each other.
    pub fn read(folder: &Path) -> Result<Self, EngineError> {
        if !folder.is_dir() {
            return Err(EngineError::model(
                folder,
                "there is no such folder",
                "give the folder of a Hugging Face model",
            ));
        }
        let file = folder.join("config.json");
        let json = read_json(&file)?.ok_or_else(|| {
            EngineError::model(&file, "the file is missing", "download the model's folder completely: config.json, tokenizer.json, *.safetensors")
        })?;
        let wrong = |problem: String| {
            EngineError::model(
                &file,
                problem,
                "only Llama models in Hugging Face's form are supported",
            )
        };
        check_architecture(&json).map_err(wrong)?;
        let config: LlamaConfig = serde_json::from_value(with_flat_rope(json))
            .map_err(|error| wrong(error.to_string()))?;
        let llama = config.into_config(false);
        check_numbers(&llama).map_err(wrong)?;
        let mut end_tokens: BTreeSet<u32> = match &llama.eos_token_id {
            None => BTreeSet::new(),
            Some(LlamaEosToks::Single(token)) => BTreeSet::from([*token]),
            Some(LlamaEosToks::Multiple(tokens)) => tokens.iter().copied().collect(),
        };
        let mut sampling_defaults = SamplingSettings::default();
        let generation_file = folder.join("generation_config.json");
        if let Some(generation) = read_json(&generation_file)? {
            end_tokens.extend(token_ids(&generation["eos_token_id"]).ok_or_else(|| {
                EngineError::model(
                    &generation_file,
                    "eos_token_id is neither a token id nor a list of them",
                    "correct it or remove the file",
                )
            })?);
            sampling_defaults = sampling_of(&generation);
        }
        Ok(Self {
            llama,
            end_tokens,
            sampling_defaults,
            file,
        })
    }
}

/// The JSON of a file, `None` where there is no such file.
///
/// # Errors
/// A file that cannot be read or is no JSON.
pub(crate) fn read_json(file: &Path) -> Result<Option<Value>, EngineError> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(EngineError::model(
                file,
                error,
                "make the file readable for this user",
            ));
        }
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        EngineError::model(
            file,
            format!("it is not valid JSON ({error})"),
            "download it again or repair it",
        )
    })
}

/// Numbers that make no sense are left to the defaults: they are advice, not a part of the model.
fn sampling_of(generation: &Value) -> SamplingSettings {
    let number = |name: &str, most: f64| {
        generation[name]
            .as_f64()
            .filter(|value| (0.0..=most).contains(value))
            .map(|value| value as f32)
    };
    let defaults = SamplingSettings::default();
    SamplingSettings {
        temperature: if generation["do_sample"] == false {
            0.0
        } else {
            number("temperature", 2.0).unwrap_or(defaults.temperature)
        },
        top_p: number("top_p", 1.0).unwrap_or(defaults.top_p),
        top_k: generation["top_k"]
            .as_u64()
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| *count > 0),
        repetition_penalty: number("repetition_penalty", 10.0)
            .filter(|penalty| *penalty >= 0.01)
            .unwrap_or(defaults.repetition_penalty),
        ..defaults
    }
}

fn token_ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(values) => values.iter().map(id).collect(),
        value => id(value).map(|id| vec![id]),
    }
}

fn check_architecture(json: &Value) -> Result<(), String> {
    let names: Vec<&str> = json["architectures"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !names.contains(&SUPPORTED_ARCHITECTURE) {
        let found = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        return Err(format!(
            "its architecture is {found}, this engine supports {SUPPORTED_ARCHITECTURE}"
        ));
    }
    for bias in ["attention_bias", "mlp_bias"] {
        if json[bias] == Value::Bool(true) {
            return Err(format!(
                "{bias} is true, which this engine does not compute"
            ));
        }
    }
    match json["hidden_act"].as_str() {
        None | Some("silu") => {}
        Some(other) => return Err(format!("hidden_act is {other}, this engine supports silu")),
    }
    let number = |name: &str| json[name].as_u64();
    if let (Some(width), Some(hidden), Some(heads)) = (
        number("head_dim"),
        number("hidden_size"),
        number("num_attention_heads"),
    ) && width.checked_mul(heads) != Some(hidden)
    {
        return Err(format!(
            "head_dim {width} × {heads} heads is not hidden_size {hidden}, which this engine needs"
        ));
    }
    if !json["quantization_config"].is_null() {
        return Err("its weights are quantised, this engine supports F32, F16 and BF16".to_owned());
    }
    Ok(())
}

/// Newer files keep the rotary numbers in `rope_parameters`; the reader knows only the older keys.
fn with_flat_rope(mut json: Value) -> Value {
    let parameters = json["rope_parameters"].clone();
    if let (Some(object), Some(rope)) = (json.as_object_mut(), parameters.as_object()) {
        if let Some(theta) = rope.get("rope_theta") {
            object.entry("rope_theta").or_insert_with(|| theta.clone());
        }
        if rope.get("rope_type").is_some_and(|kind| kind != "default") {
            object
                .entry("rope_scaling")
                .or_insert_with(|| parameters.clone());
        }
    }
    json
}

fn check_numbers(config: &Config) -> Result<(), String> {
    for (name, value, most) in [
        ("hidden_size", config.hidden_size, 1 << 20),
        ("intermediate_size", config.intermediate_size, 1 << 24),
        ("vocab_size", config.vocab_size, 1 << 26),
        ("num_hidden_layers", config.num_hidden_layers, 4096),
        ("num_attention_heads", config.num_attention_heads, 1 << 16),
        ("num_key_value_heads", config.num_key_value_heads, 1 << 16),
        (
            "max_position_embeddings",
            config.max_position_embeddings,
            1 << 28,
        ),
    ] {
        if value == 0 || value > most {
            return Err(format!(
                "{name} is {value}, which is not between 1 and {most}"
            ));
        }
    }
    let (hidden, heads, groups) = (
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads,
    );
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(2) {
        return Err(format!(
            "hidden_size {hidden} does not divide into {heads} heads of even width"
        ));
    }
    if !heads.is_multiple_of(groups) {
        return Err(format!(
            "{heads} attention heads do not divide into {groups} key-value heads"
        ));
    }
    Ok(())
}
