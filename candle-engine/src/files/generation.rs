//! Reads the end tokens and sampling defaults from a model's files.

use super::json::read_json;
use crate::error::EngineError;
use crate::sampling::SamplingSettings;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Generation defaults.
#[derive(Debug, Default)]
pub(super) struct Generation {
    pub end_tokens: BTreeSet<u32>,
    pub sampling: SamplingSettings,
}

impl Generation {
    /// Reads `eos_token_id` of `config.json`, and `generation_config.json`.
    ///
    /// # Errors
    /// If token ids are invalid.
    pub fn of_folder(folder: &Path, config: &Value) -> Result<Self, EngineError> {
        let ids = |json: &Value, file: &Path, remedy: &str| {
            token_ids(&json["eos_token_id"]).ok_or_else(|| {
                EngineError::model(
                    file,
                    "eos_token_id is neither a token id nor a list of them",
                    remedy,
                )
            })
        };
        let file = folder.join("config.json");
        let mut end_tokens: BTreeSet<u32> = BTreeSet::new();
        for part in [config, &config["text_config"]] {
            end_tokens.extend(ids(part, &file, "correct it")?);
        }
        let mut sampling = SamplingSettings::default();
        let generation_file = folder.join("generation_config.json");
        if let Some(generation) = read_json(&generation_file)? {
            end_tokens.extend(ids(
                &generation,
                &generation_file,
                "correct it or remove the file",
            )?);
            sampling = sampling_of(&generation);
        }
        Ok(Self {
            end_tokens,
            sampling,
        })
    }
}

/// Values out of range fall back to the defaults: they are advice, not part of the model.
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
