//! Runs random requests of every kind against random caches and limits.

use super::world::{World, text};
use crate::batch::room::response_room;
use crate::batch::schedule::{DraftLimits, Limits};
use crate::decoding::{BeamSettings, ContrastiveSettings, EarlyStopping, Strategy};
use crate::options::JoiningRule;
use crate::step::PAGE_TOKENS;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn any_strategy(random: &mut StdRng) -> Strategy {
    match random.random_range(0..6) {
        0 => Strategy::Beams(BeamSettings {
            beams: random.random_range(2..5),
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Never,
        }),
        1 => Strategy::Contrastive(ContrastiveSettings {
            penalty_alpha: 0.5,
            candidates: random.random_range(1..5),
        }),
        _ => Strategy::Sampling,
    }
}

#[test]
fn every_request_ends_exactly_once_and_in_order_under_random_load() {
    let (mut preemptions, mut known_tokens, mut accepted) = (0, 0, 0);
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let pages = random.random_range(6..40);
        let limits = Limits {
            pages,
            seats: random.random_range(1..10),
            prompt_rows: random.random_range(16..80),
            prompt_rows_beside: random.random_range(1..40),
            prefill_tokens: random.random_bool(0.3).then(|| random.random_range(1..200)),
            total_tokens: random.random_bool(0.3).then(|| random.random_range(1..400)),
            joining: random.random_bool(0.3).then(|| JoiningRule {
                served_ratio_milli: random.random_range(0..5000),
                steps: random.random_range(0..30),
            }),
            drafts: DraftLimits {
                tokens: [0, 1, 8, 15][random.random_range(0..4)],
                lookup_max: random.random_range(2..4),
                lookup_min: random.random_range(1..3),
            },
        };
        let mut world = World::new(limits);
        let mut arrived = 0;
        while arrived < 60 || !world.schedule.is_empty() {
            assert!(world.steps < 60_000, "a request starves");
            if arrived < 60 && random.random_bool(0.3) {
                let strategy = any_strategy(&mut random);
                let prompt = random.random_range(1..(pages * PAGE_TOKENS * 3 / 4).min(150));
                let room = response_room(strategy, pages, prompt);
                if room > 0 {
                    // Only a few different tokens, which makes prefixes coincide.
                    let first = random.random_range(0..4) * 1000;
                    let own = random.random_range(0..=prompt);
                    let mut tokens = text(first, own);
                    tokens.extend((own..prompt).map(|_| random.random_range(0..3)));
                    let wants_all_rows =
                        random.random_bool(0.15) || matches!(strategy, Strategy::Contrastive(_));
                    let response = random.random_range(1..=room.min(40));
                    world.arrive_with(tokens, response, strategy, wants_all_rows);
                    arrived += 1;
                }
            }
            if random.random_bool(0.02)
                && let Some(request) = world.known.keys().next_back().copied()
            {
                world.end(request);
            }
            if let Some(plan) = world.step() {
                world.advance(&plan, &mut random);
            } else {
                assert!(world.schedule.is_empty());
            }
        }
        let mut ended = world.ended.clone();
        ended.sort_unstable();
        assert!(ended.iter().copied().eq(1..=60), "each ends exactly once");
        assert_eq!(world.schedule.held_pages(), 0);
        preemptions += world.schedule.counts().preemptions;
        known_tokens += world.schedule.counts().known_tokens;
        accepted += world.accepted;
    }
    assert!(
        preemptions > 20 && known_tokens > 1000 && accepted > 1000,
        "{preemptions} {known_tokens} {accepted}"
    );
}
