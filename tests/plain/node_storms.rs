//! Random worlds with nodes that join, fall silent, die and return: never two owners of a device, no placement on an unreachable
//! node, no forgotten replica, no two open node requests of a size, and no idle node kept. `NODE_STORMS=10000 cargo test --test plain
//! node_storms::` runs more of them; a failure prints its seed.

use model_pool::sim::{
    NodeFault, NodeStorm, NodeStormReport, ReturnFault, ReturnStorm, ReturnStormReport,
};

fn count(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
fn no_device_has_two_owners_and_no_replica_is_forgotten() {
    let first = count("NODE_STORM", 0);
    let seeds = count("NODE_STORMS", 400);
    let mut all = NodeStormReport::default();
    for seed in first..first + seeds {
        let one = NodeStorm::new(seed).run();
        assert!(one.broken.is_empty(), "seed {seed}: {:#?}", one.broken);
        all.steps += one.steps;
        all.responded += one.responded;
        all.launches += one.launches;
        all.silences += one.silences;
        all.gone += one.gone;
        all.disowned += one.disowned;
        all.adopted += one.adopted;
        all.spared += one.spared;
        all.surplus += one.surplus;
        all.restarts += one.restarts;
        all.drains += one.drains;
        all.requested += one.requested;
        all.given_back += one.given_back;
        all.moved += one.moved;
        all.limits_over += one.limits_over;
        all.consolidated += one.consolidated;
        all.plans.add(&one.plans);
    }
    println!("{all:?}");
    // The storms must cover enough cases to be meaningful.
    let lively = [all.responded, all.launches, all.silences, all.gone];
    assert!(
        lively.iter().all(|count| *count > seeds),
        "too quiet: {all:?}"
    );
    let rarer = [
        all.disowned,
        all.adopted,
        all.restarts,
        all.drains,
        all.requested,
        all.given_back,
        all.moved,
        all.limits_over,
    ];
    assert!(
        rarer.iter().all(|count| *count > seeds / 5),
        "too quiet: {all:?}"
    );
    assert!(all.surplus > 0, "too quiet: {all:?}");
    // Needs a model that stays for long on a requested node, and a free place.
    assert!(all.consolidated > seeds / 10, "too quiet: {all:?}");
    // A load does what its plan says, also while nodes are away or requested.
    let plans = [all.plans.placed, all.plans.refused, all.plans.waits];
    assert!(plans.iter().all(|count| *count > seeds), "{all:?}");
    // Needs a restart while a model loads on one node and is ready on another.
    assert!(all.spared > 0, "too quiet: {all:?}");
}

#[test]
fn the_same_seed_gives_the_same_node_storm() {
    for seed in 0..10 {
        assert_eq!(NodeStorm::new(seed).run(), NodeStorm::new(seed).run());
    }
}

/// Returns true if an early seed reveals the planted fault as a violation of this rule.
fn caught(fault: NodeFault, rule: &str) -> bool {
    (0..100).any(|seed| {
        let storm = NodeStorm {
            seed,
            fault: Some(fault),
        };
        storm.run().broken.iter().any(|what| what.starts_with(rule))
    })
}

#[test]
fn engines_hidden_by_a_returning_node_are_caught() {
    assert!(caught(NodeFault::EnginesHidden, "N4"));
}

#[test]
fn a_launch_on_a_silent_node_is_caught() {
    assert!(caught(NodeFault::SilenceEnded, "N2"));
}

#[test]
fn using_memory_of_an_engine_that_is_still_running_is_caught() {
    assert!(caught(NodeFault::EndsAtOnce, "N4"));
}

#[test]
fn an_unreported_started_load_that_ends_for_an_adopted_replica_is_caught() {
    assert!(caught(NodeFault::BegunUnseen, "D2"));
}

#[test]
fn n8_nodes_that_return_in_any_order_lose_no_engine_needlessly() {
    let first = count("NODE_STORM", 0);
    let seeds = count("NODE_STORMS", 1_000);
    let mut all = ReturnStormReport::default();
    for seed in first..first + seeds {
        let one = ReturnStorm { seed, fault: None }.run();
        assert!(one.broken.is_empty(), "seed {seed}: {one:#?}");
        all.held += one.held;
        all.adopted += one.adopted;
        all.launches += one.launches;
        all.surplus += one.surplus;
        all.gone += one.gone;
        all.granted += one.granted;
    }
    println!("{all:?}");
    let lively = [all.held, all.adopted, all.granted];
    assert!(
        lively.iter().all(|count| *count > 2 * seeds),
        "too quiet: {all:?}"
    );
    let rarer = [all.launches, all.surplus, all.gone];
    assert!(
        rarer.iter().all(|count| *count > seeds / 8),
        "too quiet: {all:?}"
    );
}

/// Returns true if an early storm of returning nodes reveals the planted fault.
fn caught_at_return(fault: ReturnFault, finding: &str) -> bool {
    (0..100).any(|seed| {
        let fault = Some(fault);
        let report = ReturnStorm { seed, fault }.run();
        report.broken.iter().any(|what| what.contains(finding))
    })
}

#[test]
fn a_controller_that_forgets_the_nodes_of_its_replicas_is_caught() {
    assert!(caught_at_return(
        ReturnFault::PlacesForgotten,
        "is loaded twice"
    ));
}

#[test]
fn releasing_devices_only_after_their_node_joined_is_caught() {
    assert!(caught_at_return(
        ReturnFault::AllowedLate,
        "ends needlessly"
    ));
}
