//! Translates the sampling parameters of the GPT-J pipeline into the fields of each engine.

use serde_json::{Map, Value, json};

use api_types::error::Failure;
use catalog::Recipe;

/// The pipeline's fixed parameters.
const BEAMS: u32 = 4;
const PENALTY_ALPHA: f64 = 0.6;
const TOP_K: u32 = 4;

/// A decoding strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    Greedy,
    Multinomial,
    BeamSearch,
    ContrastiveSearch,
}

impl Strategy {
    /// Parses the current name, or a spelling used by the pipeline's clients.
    pub fn read(text: &str) -> Result<Strategy, Failure> {
        match text.trim().to_lowercase().replace([' ', '-'], "_").as_str() {
            "greedy" | "greedy_search" => Ok(Strategy::Greedy),
            "multinomial" | "multinomial_sampling" => Ok(Strategy::Multinomial),
            "beam_search" => Ok(Strategy::BeamSearch),
            "contrastive" | "contrastive_search" => Ok(Strategy::ContrastiveSearch),
            _ => {
                let shown: String = text.chars().take(60).collect();
                Err(refused(format!(
                    "{shown:?} is not known; allowed: multinomial, beam_search, contrastive_search, greedy"
                )))
            }
        }
    }

    /// The engines that support the strategy, for a message.
    fn engines(self) -> &'static str {
        match self {
            Strategy::Greedy | Strategy::Multinomial => "all engines have",
            Strategy::BeamSearch => "CandleEngine and VLLMEngine have",
            Strategy::ContrastiveSearch => "only CandleEngine has",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Strategy::Greedy => "greedy",
            Strategy::Multinomial => "multinomial",
            Strategy::BeamSearch => "beam_search",
            Strategy::ContrastiveSearch => "contrastive_search",
        }
    }
}

/// The request fields that select the strategy on this engine. Without a strategy, the embedded engine uses the pipeline's default,
/// and other engines use their own.
pub(super) fn fields(
    strategy: Option<Strategy>,
    recipe: &Recipe,
) -> Result<Map<String, Value>, Failure> {
    let fields = match (strategy, recipe) {
        (strategy, Recipe::Candle(_)) => {
            let strategy = strategy.unwrap_or(Strategy::ContrastiveSearch);
            let mut fields = json!({"decoding_strategy": strategy.name()});
            match strategy {
                Strategy::BeamSearch => fields["num_beams"] = json!(BEAMS),
                Strategy::ContrastiveSearch => {
                    fields["penalty_alpha"] = json!(PENALTY_ALPHA);
                    fields["top_k"] = json!(TOP_K);
                }
                Strategy::Greedy | Strategy::Multinomial => {}
            }
            fields
        }
        (None, _) => json!({}),
        (Some(Strategy::Greedy), _) => json!({"temperature": 0}),
        (Some(Strategy::Multinomial), _) => json!({"temperature": 1}),
        // On these engines, `n` is the number of beams, and the best result comes first.
        (Some(Strategy::BeamSearch), recipe) if has_beams(recipe) => {
            json!({"use_beam_search": true, "n": BEAMS, "temperature": 0})
        }
        (Some(strategy), recipe) => {
            return Err(refused(format!(
                "the {} engine of this model has no {}, which {}; it has {}",
                recipe.engine(),
                strategy.name(),
                strategy.engines(),
                names_of(recipe)
            )));
        }
    };
    Ok(match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    })
}

/// The strategies that an engine supports, for a message.
fn names_of(recipe: &Recipe) -> &'static str {
    if has_beams(recipe) {
        "multinomial, greedy and beam_search"
    } else {
        "multinomial and greedy"
    }
}

fn has_beams(recipe: &Recipe) -> bool {
    matches!(recipe, Recipe::Server(server) if server.engine.word == "vllm")
}

fn refused(problem: String) -> Failure {
    Failure::invalid(
        "decoding_strategy".to_owned(),
        format!("decoding_strategy: {problem}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{Entry, Reference, Source};
    use config::Config;

    fn recipe(engine: Value) -> Recipe {
        let (config, reference) = (Config::default(), Reference::default());
        let document = json!({"engine_config": engine});
        let read = Entry::from_document(&document, Source::Registered, &config, &reference);
        read.unwrap().0.recipe
    }

    fn fields_for(strategy: Option<Strategy>, recipe: &Recipe) -> Value {
        Value::Object(fields(strategy, recipe).unwrap())
    }

    #[test]
    fn strategies_are_also_known_by_their_old_names() {
        for (text, strategy) in [
            ("contrastive", Strategy::ContrastiveSearch),
            ("multinomial sampling", Strategy::Multinomial),
            ("multinomial", Strategy::Multinomial),
            ("beam search", Strategy::BeamSearch),
            ("beam_search", Strategy::BeamSearch),
            ("greedy", Strategy::Greedy),
        ] {
            assert_eq!(Strategy::read(text).unwrap(), strategy, "{text}");
        }
        let failure = Strategy::read("beams").unwrap_err();
        assert_eq!(failure.status().as_u16(), 400);
        let message = failure.body.error.message;
        assert!(
            message.contains("multinomial, beam_search, contrastive_search, greedy"),
            "{message}"
        );
    }

    #[test]
    fn the_embedded_engine_supports_every_strategy_and_defaults_to_the_old_pipelines() {
        let candle = recipe(json!({"model_id": "m", "type": "CandleEngine", "model_path": "/m"}));
        let contrastive =
            json!({"decoding_strategy": "contrastive_search", "penalty_alpha": 0.6, "top_k": 4});
        assert_eq!(fields_for(None, &candle), contrastive);
        assert_eq!(
            fields_for(Some(Strategy::ContrastiveSearch), &candle),
            contrastive
        );
        assert_eq!(
            fields_for(Some(Strategy::BeamSearch), &candle),
            json!({"decoding_strategy": "beam_search", "num_beams": 4})
        );
        assert_eq!(
            fields_for(Some(Strategy::Greedy), &candle),
            json!({"decoding_strategy": "greedy"})
        );
    }

    #[test]
    fn other_engines_get_supported_strategies_in_their_own_fields_and_refuse_the_rest() {
        let vllm = recipe(json!({"model_id": "m", "type": "VLLMEngine", "model_path": "/m"}));
        let llama =
            recipe(json!({"model_id": "m", "type": "LlamaCppEngine", "model_path": "/m.gguf"}));
        for recipe in [&vllm, &llama] {
            assert_eq!(fields_for(None, recipe), json!({}));
            assert_eq!(
                fields_for(Some(Strategy::Greedy), recipe),
                json!({"temperature": 0})
            );
            assert_eq!(
                fields_for(Some(Strategy::Multinomial), recipe),
                json!({"temperature": 1})
            );
            assert!(fields(Some(Strategy::ContrastiveSearch), recipe).is_err());
        }
        let beams = fields_for(Some(Strategy::BeamSearch), &vllm);
        assert_eq!(
            (&beams["use_beam_search"], &beams["n"]),
            (&json!(true), &json!(4))
        );
        let failure = fields(Some(Strategy::BeamSearch), &llama).unwrap_err();
        let message = failure.body.error.message;
        assert!(
            message.contains("llama")
                && message.contains("no beam_search, which CandleEngine and VLLMEngine have"),
            "{message}"
        );
        let failure = fields(Some(Strategy::ContrastiveSearch), &vllm).unwrap_err();
        let message = failure.body.error.message;
        assert!(
            message.contains(
                "no contrastive_search, which only CandleEngine has; it has multinomial, greedy and beam_search"
            ),
            "{message}"
        );
    }
}
