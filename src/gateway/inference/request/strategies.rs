//! Decoding strategies that only some engines support. A request for one is refused on other engines rather than answered with
//! another strategy.

use serde_json::Value;
use serde_json::value::RawValue;

/// A decoding strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    Contrastive,
    Beams,
}

impl Strategy {
    /// The engines that support the strategy, with their fields for it.
    pub fn engines(self) -> &'static str {
        match self {
            Strategy::Contrastive => {
                "only CandleEngine supports contrastive search (decoding_strategy, penalty_alpha, top_k)"
            }
            Strategy::Beams => {
                "beam search is supported by CandleEngine (decoding_strategy, num_beams), VLLMEngine and TRTLLMEngine (use_beam_search, n)"
            }
        }
    }

    /// The strategy that a request field selects.
    pub(crate) fn of_field(name: &str, value: &RawValue) -> Option<Strategy> {
        /// Longer than any of these values.
        const LETTERS_MAX: usize = 40;
        if value.get().len() > LETTERS_MAX {
            return None;
        }
        let value: Value = serde_json::from_str(value.get()).ok()?;
        match name {
            "decoding_strategy" => match value.as_str()? {
                "contrastive_search" => Some(Strategy::Contrastive),
                "beam_search" => Some(Strategy::Beams),
                _ => None,
            },
            "penalty_alpha" => value
                .as_f64()
                .is_some_and(|alpha| alpha > 0.0)
                .then_some(Strategy::Contrastive),
            "num_beams" => value
                .as_f64()
                .is_some_and(|beams| beams > 1.0)
                .then_some(Strategy::Beams),
            "use_beam_search" => (value == Value::Bool(true)).then_some(Strategy::Beams),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_decoding_field_selects_a_strategy_by_its_value() {
        let strategy_of = |name: &str, value: Value| {
            let value = serde_json::value::to_raw_value(&value).unwrap();
            Strategy::of_field(name, &value)
        };
        let contrastive = Some(Strategy::Contrastive);
        assert_eq!(
            strategy_of("decoding_strategy", json!("contrastive_search")),
            contrastive
        );
        assert_eq!(
            strategy_of("decoding_strategy", json!("beam_search")),
            Some(Strategy::Beams)
        );
        assert_eq!(strategy_of("penalty_alpha", json!(0.6)), contrastive);
        assert_eq!(strategy_of("num_beams", json!(4)), Some(Strategy::Beams));
        assert_eq!(
            strategy_of("use_beam_search", json!(true)),
            Some(Strategy::Beams)
        );
        for (name, value) in [
            ("decoding_strategy", json!("greedy")),
            ("decoding_strategy", json!(null)),
            ("decoding_strategy", json!("x".repeat(1000))),
            ("penalty_alpha", json!(0)),
            ("num_beams", json!(1)),
            ("use_beam_search", json!(false)),
            ("top_k", json!(4)),
        ] {
            assert_eq!(strategy_of(name, value.clone()), None, "{name}: {value}");
        }
    }
}
