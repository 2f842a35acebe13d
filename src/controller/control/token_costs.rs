//! The measured costs of tokens: taken from the meters of models, reported to the pool, and stored for the next process.

use std::collections::BTreeMap;

use super::state::Control;
use crate::journal::Job;
use pool::{Event, ModelId, TokenCosts};

/// Prefix of a model's name in the store's table of remembered figures.
const COSTS_KEY: &str = "token costs: ";
/// Costs that differ by less than this part are the same measurement.
const CHANGE_PART: u64 = 10;

impl Control {
    /// Continues from the costs that an earlier process has measured.
    pub(super) fn remembered_costs(&self, stored: &BTreeMap<String, Vec<u64>>) -> Vec<Event> {
        let costs = self.models.facts().iter().filter_map(|(&model, facts)| {
            let key = format!("{COSTS_KEY}{}", facts.entry.name);
            let &[prompt_us, output_us, usual_output] = stored.get(&key)?.as_slice() else {
                return None;
            };
            if let Some(route) = self.publishing.route(model) {
                route.tokens.remember(usual_output);
            }
            let costs = TokenCosts::new(prompt_us, output_us);
            Some(Event::TokensMeasured { model, costs })
        });
        costs.collect()
    }

    /// Takes the costs of all models, as far as they have changed.
    pub(crate) fn measure_all_tokens(&mut self) {
        let models: Vec<ModelId> = self.models.facts().keys().copied().collect();
        models
            .into_iter()
            .for_each(|model| self.measure_tokens(model));
    }

    /// Takes the costs of a model, if they have changed.
    pub(crate) fn measure_tokens(&mut self, model: ModelId) {
        let route = self.publishing.route(model);
        let Some((costs, usual_output)) = route.and_then(|route| route.tokens.costs()) else {
            return;
        };
        let known = self.pool.token_costs(model);
        if known.is_some_and(|known| is_same(known, costs)) {
            return;
        }
        self.journal.write(Job::Remembered {
            model: format!("{COSTS_KEY}{}", self.models.name(model)),
            numbers: vec![costs.prompt_us(), costs.output_us(), usual_output],
        });
        self.turn(Event::TokensMeasured { model, costs });
    }
}

fn is_same(known: TokenCosts, costs: TokenCosts) -> bool {
    let is_near = |one: u64, other: u64| one.abs_diff(other) <= one / CHANGE_PART;
    is_near(known.prompt_us(), costs.prompt_us()) && is_near(known.output_us(), costs.output_us())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_more_than_a_tenth_is_a_new_measurement() {
        let known = TokenCosts::new(100, 20_000);
        assert!(is_same(known, TokenCosts::new(110, 18_000)));
        assert!(!is_same(known, TokenCosts::new(111, 20_000)));
        assert!(!is_same(known, TokenCosts::new(100, 22_001)));
    }
}
