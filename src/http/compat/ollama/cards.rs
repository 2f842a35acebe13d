//! Ollama's `details` of a model, from the headers of its files.

use serde_json::{Value, json};

use catalog::ModelCard;

pub(super) use gateway::model_cards::Cards;

/// Ollama's `details`. Ollama sends every field, and its clients require them; an unknown one is empty. `parent`: the base model of
/// an adapter.
pub(super) fn details(card: &ModelCard, parent: &str) -> Value {
    let families: Vec<&String> = card.family.iter().collect();
    json!({
        "parent_model": parent,
        "format": card.format.unwrap_or_default(),
        "family": card.family.as_deref().unwrap_or_default(),
        "families": families,
        "parameter_size": card.parameters.map(short_count).unwrap_or_default(),
        "quantization_level": card.quantization.as_deref().unwrap_or_default(),
    })
}

/// Formats a count as `8B`, `1.5B`, `134.52M` or `13K`.
fn short_count(count: u64) -> String {
    let number = count as f64;
    let (part, unit, digits) = match count {
        1_000_000_000.. => (number / 1e9, "B", 1),
        1_000_000.. => (number / 1e6, "M", 2),
        1_000.. => (number / 1e3, "K", 0),
        _ => return count.to_string(),
    };
    let digits = if part.fract() == 0.0 { 0 } else { digits };
    format!("{part:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_formatted_like_ollamas() {
        for (count, words) in [
            (999, "999"),
            (13_400, "13K"),
            (134_515_008, "134.52M"),
            (7_000_000, "7M"),
            (1_543_714_304, "1.5B"),
            (8_000_000_000, "8B"),
        ] {
            assert_eq!(short_count(count), words);
        }
    }

    #[test]
    fn unknown_card_fields_are_empty_strings() {
        let expected = json!({
            "parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "", "quantization_level": "",
        });
        assert_eq!(details(&ModelCard::default(), ""), expected);
    }
}
