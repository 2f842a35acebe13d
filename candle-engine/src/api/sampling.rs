//! Parses the sampling and stop fields of a request.

use super::TOKENS_MAX;
use crate::api_error::ApiError;
use crate::batch::Ending;
use crate::fields::{Fields, expected};
use crate::sampling::SamplingSettings;
use serde_json::Value;
use std::collections::BTreeMap;

const STOPS_MAX: usize = 8;
const STOP_TOKENS_MAX: usize = 64;
const BIASES_MAX: usize = 1024;

/// Takes the sampling fields of a request, with the model's own settings as defaults.
pub(super) fn take_sampling(
    fields: &mut Fields,
    defaults: &SamplingSettings,
) -> Result<SamplingSettings, ApiError> {
    let mut number = |name: &'static str, range, default: f32| {
        fields
            .number_in(name, range)
            .map(|value| value.map_or(default, |value| value as f32))
    };
    Ok(SamplingSettings {
        temperature: number("temperature", 0.0..=2.0, defaults.temperature)?,
        top_p: number("top_p", 0.0..=1.0, defaults.top_p)?,
        min_p: number("min_p", 0.0..=1.0, defaults.min_p)?,
        typical_p: number("typical_p", 0.0..=1.0, defaults.typical_p)?,
        presence_penalty: number("presence_penalty", -2.0..=2.0, 0.0)?,
        frequency_penalty: number("frequency_penalty", -2.0..=2.0, 0.0)?,
        repetition_penalty: number(
            "repetition_penalty",
            0.01..=10.0,
            defaults.repetition_penalty,
        )?,
        // Other engines write -1 or 0 for all tokens.
        top_k: match fields.integer("top_k", -1..=i64::from(u32::MAX))? {
            None => defaults.top_k,
            Some(count) => usize::try_from(count).ok().filter(|count| *count > 0),
        },
        seed: fields
            .integer("seed", i64::MIN..=i64::MAX)?
            .map(|seed| seed as u64),
        logit_bias: parse_logit_bias(fields.take("logit_bias"))?,
    })
}

/// Takes the stop conditions of a request.
pub(super) fn take_ending(fields: &mut Fields) -> Result<Ending, ApiError> {
    Ok(Ending {
        stop: parse_stop(fields.take("stop"))?,
        stop_tokens: parse_stop_tokens(fields.take("stop_token_ids"))?,
        min_tokens: fields
            .integer("min_tokens", 0..=TOKENS_MAX)?
            .map_or(0, |count| count as usize),
        ignores_end: fields.flag("ignore_eos")?.unwrap_or(false),
    })
}

fn parse_stop(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wanted =
        || format!("a non-empty string, or a list of at most {STOPS_MAX} non-empty strings");
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let stops: Option<Vec<String>> = match &value {
        Value::String(stop) => Some(vec![stop.clone()]),
        Value::Array(stops) if stops.len() <= STOPS_MAX => stops
            .iter()
            .map(|stop| stop.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    stops
        .filter(|stops| stops.iter().all(|stop| !stop.is_empty()))
        .ok_or_else(|| expected("stop", wanted(), &value))
}

/// Accepts token ids, and lists of ids for sequences.
fn parse_stop_tokens(value: Option<Value>) -> Result<Vec<Vec<u32>>, ApiError> {
    let wanted =
        || format!("a list of at most {STOP_TOKENS_MAX} token ids, or lists of as many token ids");
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let row = |value: &Value| match value {
        Value::Array(ids) if (1..=STOP_TOKENS_MAX).contains(&ids.len()) => {
            ids.iter().map(id).collect()
        }
        single => id(single).map(|id| vec![id]),
    };
    let rows = value
        .as_array()
        .filter(|rows| rows.len() <= STOP_TOKENS_MAX)
        .and_then(|rows| rows.iter().map(row).collect::<Option<_>>());
    rows.ok_or_else(|| expected("stop_token_ids", wanted(), &value))
}

fn parse_logit_bias(value: Option<Value>) -> Result<BTreeMap<u32, f32>, ApiError> {
    let wanted =
        || format!("an object from at most {BIASES_MAX} token ids to numbers from -100 to 100");
    let Some(value) = value else {
        return Ok(BTreeMap::new());
    };
    let bias = |(token, bias): (&String, &Value)| {
        let bias = bias.as_f64().filter(|bias| bias.abs() <= 100.0)?;
        Some((token.parse().ok()?, bias as f32))
    };
    let biases = value
        .as_object()
        .filter(|map| map.len() <= BIASES_MAX)
        .and_then(|map| map.iter().map(bias).collect::<Option<_>>());
    biases.ok_or_else(|| expected("logit_bias", wanted(), &value))
}
