//! Storms of two keys whose models exclude each other: the bounds of fairness between keys (P9), on many seeds.

use model_pool::sim::{KeyClients, KeyStorm, KeyStormReport};

const SEEDS: u64 = 60;

fn play(clients: KeyClients, hides_keys: bool) -> Vec<KeyStormReport> {
    let storms = (0..SEEDS).map(|seed| KeyStorm {
        seed,
        clients,
        hides_keys,
    });
    storms.map(KeyStorm::run).collect()
}

fn hold(clients: KeyClients) {
    let reports = play(clients, false);
    for (seed, report) in reports.iter().enumerate() {
        assert!(report.broken.is_empty(), "seed {seed}: {:?}", report.broken);
        assert!(
            report.swaps > 4 && report.requests > 100,
            "seed {seed}: {report:?}"
        );
    }
    let worst = reports.iter().map(|report| report.worst).max();
    assert!(
        worst > Some(300),
        "the bound is far from what happens: {worst:?}"
    );
    let without_keys = play(clients, true);
    let broken = without_keys
        .iter()
        .filter(|report| !report.broken.is_empty());
    let broken = broken.count() as u64;
    assert!(
        broken > SEEDS / 4,
        "without keys only {broken} of {SEEDS} storms break the bound"
    );
}

#[test]
fn two_keys_that_always_have_requests_are_served_alike() {
    hold(KeyClients::Backlogged);
}

#[test]
fn a_short_request_waits_for_one_turn_of_a_key_with_many_long_ones() {
    hold(KeyClients::HeavyAndLight);
}

#[test]
fn two_groups_that_always_have_requests_are_served_alike_however_many_keys_they_have() {
    hold(KeyClients::TwoGroups);
}
