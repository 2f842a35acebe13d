//! Calculates the maximum length of a completion that the cache can hold, however its sequences fork.

use crate::decoding::Strategy;
use crate::options::EngineOptions;
use crate::step::PAGE_TOKENS;

/// Number of pages of the KV cache: a full context per seat, up to the limit on all tokens.
pub(crate) fn page_count(options: &EngineOptions) -> usize {
    let seats = options.context_tokens.div_ceil(PAGE_TOKENS) * options.concurrency;
    let total = options
        .budgets
        .total
        .map(|total| total.div_ceil(PAGE_TOKENS));
    total.map_or(seats, |total| total.min(seats))
}

/// Maximum number of tokens of a completion that `pages` pages are guaranteed to hold after `prompt` prompt tokens.
pub(crate) fn response_room(strategy: Strategy, pages: usize, prompt: usize) -> usize {
    if prompt.div_ceil(PAGE_TOKENS) > pages {
        return 0;
    }
    // The last token of a completion is never computed.
    let room = match strategy {
        Strategy::Sampling => pages * PAGE_TOKENS - prompt + 1,
        // The full pages of the prompt once, and everything after them for each beam.
        Strategy::Beams(settings) => {
            let each = (pages - prompt / PAGE_TOKENS) / settings.beams;
            (each * PAGE_TOKENS + 1).saturating_sub(prompt % PAGE_TOKENS)
        }
        // A page for each candidate, whose token follows the completion so far.
        Strategy::Contrastive(settings) => {
            let shared = (pages + 1).saturating_sub(settings.candidates);
            (shared * PAGE_TOKENS).saturating_sub(prompt)
        }
    };
    room.max(usize::from(!matches!(strategy, Strategy::Contrastive(_))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping};

    #[test]
    fn the_room_for_a_response_counts_all_its_sequences() {
        let beams = |beams| {
            Strategy::Beams(BeamSettings {
                beams,
                length_penalty: 1.0,
                early_stopping: EarlyStopping::Never,
            })
        };
        let contrastive = |candidates| {
            Strategy::Contrastive(ContrastiveSettings {
                penalty_alpha: 0.6,
                candidates,
            })
        };
        for (strategy, pages, prompt, room) in [
            (Strategy::Sampling, 2, 30, 3),
            (Strategy::Sampling, 2, 32, 1),
            (Strategy::Sampling, 2, 33, 0),
            // One full page, and three for each beam, of which 4 tokens are the prompt's.
            (beams(2), 7, 20, 45),
            (beams(8), 7, 20, 1),
            // 4 candidates, and two pages before them.
            (contrastive(4), 6, 20, 28),
            (contrastive(8), 6, 20, 0),
        ] {
            assert_eq!(response_room(strategy, pages, prompt), room, "{strategy:?}");
        }
    }
}
