//! Which engines are asked without `stream` when their client is: those that end the work when it leaves, and whose
//! numbers show meanwhile that they compute.

use super::engines::Metrics;
use super::recipe::Recipe;

/// Where the embedded engine shows its numbers.
pub const CANDLE_METRICS: Metrics = Metrics {
    path: "/metrics",
    running: "candle_engine_requests_running",
    waiting: "candle_engine_requests_waiting",
    cache_used: &["candle_engine_cache_used_ratio"],
    generated: Some("candle_engine_sampled_tokens_total"),
};

impl Recipe {
    /// Where its engine tells its numbers, if it does.
    pub fn metrics(&self) -> Option<Metrics> {
        match self {
            Recipe::Server(server) => server.engine.metrics,
            Recipe::Candle(_) => Some(CANDLE_METRICS),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }

    /// Whether a request without `stream` may go to its engine as it is. Of programs of which nothing is known it is not
    /// supposed: those are asked for a stream, which ends when its reader leaves and shows each token.
    pub fn takes_plain_requests(&self) -> bool {
        let ends_with_client = match self {
            Recipe::Server(server) => server.engine.ends_with_client,
            Recipe::Candle(_) => true,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => false,
        };
        ends_with_client && self.metrics().is_some_and(|it| it.generated.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::engines::{ENGINES, ServerRecipe};
    use super::*;

    #[test]
    fn of_the_table_one_engine_is_asked_plainly() {
        let plain = ENGINES.iter().filter(|engine| {
            let recipe = Recipe::Server(Box::new(ServerRecipe::of(engine, "m")));
            recipe.takes_plain_requests()
        });
        let words: Vec<&str> = plain.map(|engine| engine.word).collect();
        assert_eq!(words, ["vllm"]);
    }
}
