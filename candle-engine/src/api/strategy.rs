//! Parses the fields that select sampling, beam search or contrastive search, and checks their combinations.

use super::sampling::take_sampling;
use crate::api_error::ApiError;
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping, Strategy};
use crate::fields::{Fields, expected};
use crate::sampling::SamplingSettings;
use serde_json::Value;

const NAMES: [&str; 4] = ["greedy", "multinomial", "beam_search", "contrastive_search"];
const BEAMS_DEFAULT: usize = 4;
/// The value in Su et al. (2022).
const PENALTY_ALPHA_DEFAULT: f32 = 0.6;
const CANDIDATES_DEFAULT: usize = 4;
/// Maximum number of candidates; each is computed for every token.
const CANDIDATES_MAX: usize = 64;
/// Fields that only one strategy has.
const BEAMS_ALONE: [&str; 3] = ["num_beams", "length_penalty", "early_stopping"];
const CONTRASTIVE_ALONE: [&str; 1] = ["penalty_alpha"];

/// Takes the strategy, and the sampling settings, which contain the penalties and biases of all strategies.
pub(super) fn take_strategy(
    fields: &mut Fields,
    defaults: &SamplingSettings,
) -> Result<(SamplingSettings, Strategy), ApiError> {
    let name = fields.text("decoding_strategy")?;
    let temperature = fields.get("temperature").and_then(Value::as_f64);
    for (names, strategy) in [
        (&BEAMS_ALONE[..], "beam_search"),
        (&CONTRASTIVE_ALONE, "contrastive_search"),
    ] {
        // Absent names become known, for suggestions.
        for name in names {
            if !fields.has(name) {
                fields.take(name);
            }
        }
        if let Some(field) = names.iter().find(|field| fields.has(field))
            && name.as_deref() != Some(strategy)
        {
            return Err(ApiError::field(
                *field,
                format!("`{field}` needs `decoding_strategy` to be \"{strategy}\""),
            ));
        }
    }
    match name.as_deref() {
        None => Ok((take_sampling(fields, defaults)?, Strategy::Sampling)),
        Some("greedy") => {
            if temperature.is_some_and(|temperature| temperature > 0.0) {
                return Err(excluded("temperature", "greedy", "leave it out, or give 0"));
            }
            let mut sampling = take_sampling(fields, defaults)?;
            sampling.temperature = 0.0;
            Ok((sampling, Strategy::Sampling))
        }
        Some("multinomial") => {
            if temperature == Some(0.0) {
                return Err(excluded("temperature", "multinomial", "give more than 0"));
            }
            let mut sampling = take_sampling(fields, defaults)?;
            // The default comes from the model's authors, who want the likeliest token; the request does not.
            if sampling.temperature == 0.0 {
                sampling.temperature = 1.0;
            }
            Ok((sampling, Strategy::Sampling))
        }
        Some("beam_search") => {
            refuse_drawing(fields, "beam_search")?;
            if fields
                .get("top_k")
                .and_then(Value::as_f64)
                .is_some_and(|count| count > 0.0)
            {
                return Err(excluded("top_k", "beam_search", "leave it out"));
            }
            let settings = take_beams(fields)?;
            Ok((take_sampling(fields, defaults)?, Strategy::Beams(settings)))
        }
        Some("contrastive_search") => {
            refuse_drawing(fields, "contrastive_search")?;
            let candidates = fields.integer("top_k", 1..=CANDIDATES_MAX as i64)?;
            let penalty_alpha = fields.number_in("penalty_alpha", 0.0..=1.0)?;
            let settings = ContrastiveSettings {
                penalty_alpha: penalty_alpha.map_or(PENALTY_ALPHA_DEFAULT, |alpha| alpha as f32),
                candidates: candidates.map_or(CANDIDATES_DEFAULT, |count| count as usize),
            };
            let sampling = take_sampling(fields, defaults)?;
            Ok((sampling, Strategy::Contrastive(settings)))
        }
        Some(other) => Err(expected(
            "decoding_strategy",
            format!("one of {}", NAMES.join(", ")),
            &Value::from(other),
        )),
    }
}

fn take_beams(fields: &mut Fields) -> Result<BeamSettings, ApiError> {
    let beams = fields.integer("num_beams", 2..=8)?;
    let length_penalty = fields.number_in("length_penalty", -10.0..=10.0)?;
    let early_stopping = match fields.take("early_stopping") {
        None | Some(Value::Bool(false)) => EarlyStopping::WhenWorse,
        Some(Value::Bool(true)) => EarlyStopping::AtOnce,
        Some(Value::String(word)) if word == "never" => EarlyStopping::Never,
        Some(other) => {
            return Err(expected(
                "early_stopping",
                "true, false or \"never\"",
                &other,
            ));
        }
    };
    Ok(BeamSettings {
        beams: beams.map_or(BEAMS_DEFAULT, |beams| beams as usize),
        length_penalty: length_penalty.map_or(1.0, |penalty| penalty as f32),
        early_stopping,
    })
}

/// Rejects sampling fields, which would silently have no effect: the strategy draws no tokens.
fn refuse_drawing(fields: &Fields, strategy: &str) -> Result<(), ApiError> {
    for (name, neutral) in [
        ("temperature", &[0.0, 1.0][..]),
        ("top_p", &[1.0]),
        ("min_p", &[0.0]),
        ("typical_p", &[1.0]),
    ] {
        if fields
            .get(name)
            .and_then(Value::as_f64)
            .is_some_and(|value| !neutral.contains(&value))
        {
            return Err(excluded(name, strategy, "leave it out"));
        }
    }
    Ok(())
}

fn excluded(field: &str, strategy: &str, remedy: &str) -> ApiError {
    ApiError::field(
        field,
        format!("`{field}` cannot be combined with the decoding strategy {strategy}; {remedy}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(body: Value) -> Result<(SamplingSettings, Strategy), ApiError> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).expect("an object");
        take_strategy(&mut fields, &SamplingSettings::default())
    }

    #[test]
    fn each_decoding_strategy_has_default_settings() {
        let beams = take(json!({"decoding_strategy": "beam_search"})).expect("is taken");
        let Strategy::Beams(settings) = beams.1 else {
            panic!("no beams")
        };
        assert_eq!((settings.beams, settings.length_penalty), (4, 1.0));
        let contrast = take(json!({"decoding_strategy": "contrastive_search"})).expect("is taken");
        let wanted = ContrastiveSettings {
            penalty_alpha: 0.6,
            candidates: 4,
        };
        assert_eq!(contrast.1, Strategy::Contrastive(wanted));
        let greedy = take(json!({"decoding_strategy": "greedy"})).expect("is taken");
        assert_eq!((greedy.0.temperature, greedy.1), (0.0, Strategy::Sampling));
    }

    #[test]
    fn incompatible_decoding_settings_are_refused_by_field() {
        for (body, field) in [
            (json!({"decoding_strategy": "magic"}), "decoding_strategy"),
            (json!({"decoding_strategy": 5}), "decoding_strategy"),
            (json!({"num_beams": 4}), "num_beams"),
            (json!({"penalty_alpha": 0.6}), "penalty_alpha"),
            (
                json!({"decoding_strategy": "greedy", "temperature": 1}),
                "temperature",
            ),
            (
                json!({"decoding_strategy": "multinomial", "temperature": 0}),
                "temperature",
            ),
            (
                json!({"decoding_strategy": "beam_search", "num_beams": 1}),
                "num_beams",
            ),
            (
                json!({"decoding_strategy": "beam_search", "num_beams": 9}),
                "num_beams",
            ),
            (
                json!({"decoding_strategy": "beam_search", "top_k": 5}),
                "top_k",
            ),
            (
                json!({"decoding_strategy": "beam_search", "temperature": 0.7}),
                "temperature",
            ),
            (
                json!({"decoding_strategy": "beam_search", "early_stopping": 1}),
                "early_stopping",
            ),
            (
                json!({"decoding_strategy": "beam_search", "penalty_alpha": 0.1}),
                "penalty_alpha",
            ),
            (
                json!({"decoding_strategy": "contrastive_search", "top_k": 0}),
                "top_k",
            ),
            (
                json!({"decoding_strategy": "contrastive_search", "penalty_alpha": 2}),
                "penalty_alpha",
            ),
            (
                json!({"decoding_strategy": "contrastive_search", "min_p": 0.1}),
                "min_p",
            ),
        ] {
            let error = take(body.clone()).expect_err("must be refused");
            assert_eq!(
                error.param.as_deref(),
                Some(field),
                "{body}: {}",
                error.message
            );
        }
        let error = take(json!({"decoding_strategy": "magic"})).expect_err("must be refused");
        assert!(NAMES.iter().all(|name| error.message.contains(name)));
    }
}
