//! Decides which engines receive non-streaming requests without `stream`: engines that stop computing when the client disconnects,
//! and whose metrics show their progress.

use crate::engines::{ENGINES, Metrics};
use crate::recipes::Recipe;

/// The embedded engine's metrics.
pub const CANDLE_METRICS: Metrics = Metrics {
    path: "/metrics",
    running: "candle_engine_requests_running",
    waiting: "candle_engine_requests_waiting",
    cache_used: &["candle_engine_cache_used_ratio"],
    generated: Some("candle_engine_sampled_tokens_total"),
};

/// The metrics of the engine whose metric of running requests has this name.
pub fn metrics_named(running: &str) -> Option<Metrics> {
    let engines = ENGINES.iter().filter_map(|engine| engine.metrics);
    let mut all = engines.chain([CANDLE_METRICS]);
    all.find(|metrics| metrics.running == running)
}

impl Recipe {
    /// The engine's metrics, if it has any.
    pub fn metrics(&self) -> Option<Metrics> {
        match self {
            Recipe::Server(server) => server.engine.metrics,
            Recipe::Candle(_) => Some(CANDLE_METRICS),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }

    /// Returns true if non-streaming requests may be passed to the engine unchanged. Unknown programs always get streaming
    /// requests, which end when the reader disconnects and show each token.
    pub fn takes_plain_requests(&self) -> bool {
        let ends_with_client = match self {
            Recipe::Server(server) => server.engine.ends_with_client,
            Recipe::Candle(_) => true,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => false,
        };
        ends_with_client
            && self
                .metrics()
                .is_some_and(|metrics| metrics.generated.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{ENGINES, ServerRecipe};

    #[test]
    fn only_vllm_takes_non_streaming_requests() {
        let plain = ENGINES.iter().filter(|engine| {
            let recipe = Recipe::Server(Box::new(ServerRecipe::new(engine, "m")));
            recipe.takes_plain_requests()
        });
        let words: Vec<&str> = plain.map(|engine| engine.word).collect();
        assert_eq!(words, ["vllm"]);
    }
}
