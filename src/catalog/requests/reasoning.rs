//! Translates reasoning settings for the engine of each model, in one place for all APIs. Reads no requests.

use crate::engines::{ReasoningFields, ReasoningSwitch, ReasoningWish};
use crate::recipes::Recipe;

impl Recipe {
    /// The settings as fields of this model's engine.
    pub fn reasoning(&self, wish: &ReasoningWish) -> ReasoningFields {
        match self {
            Recipe::Candle(_) => ReasoningSwitch::CANDLE.fields(wish, false),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                ReasoningSwitch::OPENAI.fields(wish, false)
            }
            Recipe::Server(server) => {
                let switch = server.engine.reasoning;
                let needed = switch.budget_needs;
                let has_budget = needed.is_none_or(|key| server.flags.has(key));
                switch.fields(wish, has_budget)
            }
        }
    }

    /// Returns true if the engine can report usage with every chunk. Unknown programs count as unable, because some refuse the
    /// field.
    pub fn has_continuous_usage(&self) -> bool {
        match self {
            Recipe::Candle(_) => true,
            Recipe::Server(server) => server.engine.continuous_usage,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => false,
        }
    }

    /// Returns true if the engine's reasoning fields are known and the client's can be translated.
    pub fn knows_reasoning(&self) -> bool {
        matches!(self, Recipe::Candle(_) | Recipe::Server(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{ENGINES, Effort, ServerRecipe};
    use serde_json::{Value, json};

    fn fields_for(word: &str, wish: ReasoningWish) -> Value {
        let engine = ENGINES.iter().find(|engine| engine.word == word).unwrap();
        let recipe = Recipe::Server(Box::new(ServerRecipe::new(engine, "m")));
        let fields_for = recipe.reasoning(&wish);
        let object = |all: Vec<(&'static str, Value)>| {
            all.into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<serde_json::Map<String, Value>>()
        };
        let unmet: Vec<String> = fields_for
            .unmet
            .iter()
            .map(|part| format!("{part:?}"))
            .collect();
        json!([
            object(fields_for.fields),
            object(fields_for.switches),
            unmet
        ])
    }

    #[test]
    fn effort_and_switch_are_sent_in_each_engines_own_fields() {
        let high = ReasoningWish {
            effort: Some(Effort::Max),
            ..ReasoningWish::default()
        };
        let on = json!({"enable_thinking": true, "thinking": true});
        let level = json!({"reasoning_effort": "high"});
        assert_eq!(fields_for("vllm", high), json!([level, on, []]));
        assert_eq!(fields_for("sglang", high), json!([level, on, []]));
        let both = json!({"enable_thinking": true, "thinking": true, "reasoning_effort": "high"});
        assert_eq!(fields_for("llama.cpp", high), json!([{}, both, []]));
        assert_eq!(fields_for("tgi", high), json!([{}, {}, ["Effort"]]));
        let off = ReasoningWish {
            effort: Some(Effort::None),
            ..ReasoningWish::default()
        };
        let switched = json!({"enable_thinking": false, "thinking": false});
        assert_eq!(fields_for("vllm", off), json!([{}, switched, []]));
        let disabled = ReasoningWish {
            thinks: Some(false),
            ..ReasoningWish::default()
        };
        assert_eq!(fields_for("vllm", disabled), json!([{}, switched, []]));
        assert_eq!(fields_for("tgi", disabled), json!([{}, {}, ["Thinks"]]));
    }

    #[test]
    fn a_reasoning_budget_is_sent_to_engines_that_support_it_and_reported_otherwise() {
        let wish = ReasoningWish {
            budget_tokens: Some(9),
            ..ReasoningWish::default()
        };
        assert_eq!(fields_for("vllm", wish), json!([{}, {}, ["Budget"]]));
        assert_eq!(
            fields_for("llama.cpp", wish),
            json!([{"thinking_budget_tokens": 9}, {}, []])
        );
        let switch = ENGINES
            .iter()
            .find(|engine| engine.word == "vllm")
            .unwrap()
            .reasoning;
        let fields = switch.fields(&wish, true).fields;
        assert_eq!(fields, [("thinking_token_budget", json!(9))]);
    }

    #[test]
    fn reasoning_fields_sent_to_an_engine_are_on_its_list_of_fields() {
        let wish = ReasoningWish {
            thinks: Some(true),
            effort: Some(Effort::High),
            budget_tokens: Some(9),
        };
        for engine in ENGINES {
            let recipe = Recipe::Server(Box::new(ServerRecipe::new(engine, "m")));
            let fields_for = engine.reasoning.fields(&wish, true);
            for (name, _) in fields_for.fields {
                let ask = crate::requests::request_fields::Ask::Chat;
                assert!(recipe.takes(ask, name), "{} {name}", engine.word);
                assert!(!recipe.ignores(name), "{} {name}", engine.word);
            }
            let takes_switches = recipe.takes(
                crate::requests::request_fields::Ask::Chat,
                "chat_template_kwargs",
            );
            assert!(
                fields_for.switches.is_empty() || takes_switches,
                "{}",
                engine.word
            );
        }
    }

    #[test]
    fn each_effort_parses_from_its_name() {
        for effort in Effort::ALL {
            assert_eq!(Effort::parse(effort.word()), Some(effort));
        }
        assert_eq!(Effort::parse("x"), None);
    }
}
