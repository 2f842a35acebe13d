//! Reads the embedded engine's `speculative_config`, which uses vLLM's names.

use serde::{Deserialize, Deserializer};

use super::recipe::Speculation;
use crate::documents::{CatalogError, Diagnostics, limits};

/// The engine's limits.
const TOKENS_MAX: u32 = 64;
const LOOKUP_MAX: u32 = 16;
/// The engine's defaults for the lookup.
const LONGEST: u32 = 3;
const SHORTEST: u32 = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpeculativeConfig {
    method: Option<Method>,
    /// Maximum tokens proposed per step.
    num_speculative_tokens: Option<i64>,
    /// Number of most recent tokens to look up.
    prompt_lookup_max: Option<i64>,
    prompt_lookup_min: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    Ngram,
}

/// Reads a key whose `null` is meaningful: it disables speculation.
pub(super) fn or_null<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<SpeculativeConfig>>, D::Error> {
    Option::deserialize(from).map(Some)
}

pub(crate) fn read(
    config: Option<Option<SpeculativeConfig>>,
    notes: &Diagnostics,
) -> Result<Speculation, CatalogError> {
    let config = match config {
        None => return Ok(Speculation::default()),
        Some(None) => {
            return Ok(Speculation {
                tokens: Some(0),
                ..Speculation::default()
            });
        }
        Some(Some(config)) => config,
    };
    // No other method exists.
    let (Some(Method::Ngram) | None) = config.method;
    let field = |key: &str| format!("engine_config.engine_kwargs.speculative_config.{key}");
    let lookup = |key: &str, value: Option<i64>| {
        let bounded = |value| limits::count(value, LOOKUP_MAX);
        value
            .map(|value| notes.check(&field(key), value, bounded))
            .transpose()
    };
    let bounded = |value: i64| match u32::try_from(value) {
        Ok(count) if count <= TOKENS_MAX => Ok(count),
        _ => Err(format!("allowed: 0 to {TOKENS_MAX}")),
    };
    let tokens = config.num_speculative_tokens;
    let tokens = tokens
        .map(|value| notes.check(&field("num_speculative_tokens"), value, bounded))
        .transpose()?;
    let longest = lookup("prompt_lookup_max", config.prompt_lookup_max)?;
    let shortest = lookup("prompt_lookup_min", config.prompt_lookup_min)?;
    let (longest, shortest) = match (longest, shortest) {
        (Some(longest), Some(shortest)) if shortest > longest => {
            return Err(notes.refuse(
                &field("prompt_lookup_min"),
                format!(
                    "is {shortest}, and may not be more than prompt_lookup_max, which is {longest}"
                ),
            ));
        }
        // If only one bound is given, the other default is adjusted to be consistent.
        (Some(longest), None) => (Some(longest), Some(longest.min(SHORTEST))),
        (None, Some(shortest)) => (Some(shortest.max(LONGEST)), Some(shortest)),
        both => both,
    };
    Ok(Speculation {
        tokens,
        lookup_max: longest,
        lookup_min: shortest,
    })
}
