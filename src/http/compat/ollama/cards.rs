//! Ollama's `details` of a model, from what its files say.

use serde_json::{Map, Value, json};

use catalog::ModelCard;

pub(super) use crate::model_cards::Cards;

/// Ollama's `details`, with what is known. `parent`: the model that an adapter belongs to.
pub(super) fn details(card: &ModelCard, parent: &str) -> Value {
    let mut fields = Map::new();
    fields.insert("parent_model".to_owned(), json!(parent));
    for (name, value) in [
        ("format", card.format.map(|it| json!(it))),
        ("family", card.family.as_ref().map(|it| json!(it))),
        ("families", card.family.as_ref().map(|it| json!([it]))),
        (
            "parameter_size",
            card.parameters.map(|it| json!(short_count(it))),
        ),
        (
            "quantization_level",
            card.quantization.as_ref().map(|it| json!(it)),
        ),
    ] {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    }
    Value::Object(fields)
}

/// `8B`, `1.5B`, `134.52M`, `13K`.
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
    fn counts_are_written_as_ollama_writes_them() {
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
    fn of_what_is_not_known_nothing_is_said() {
        assert_eq!(
            details(&ModelCard::default(), ""),
            json!({"parent_model": ""})
        );
    }
}
