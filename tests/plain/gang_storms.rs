//! Storms of replicas that span several nodes: the invariants of gangs (M8) on many seeds, and planted faults that the checks must find.
//! `GANG_STORMS=10000 cargo test --test plain gang_storms` plays more of them.

use model_pool::sim::{GangFault, GangStorm, GangStormReport};

fn count(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn m8_no_storm_leaves_a_gang_in_parts() {
    let seeds = count("GANG_STORMS", 300);
    let mut all = GangStormReport::default();
    for seed in 0..seeds {
        let one = GangStorm::new(seed).run();
        assert!(one.broken.is_empty(), "seed {seed}: {:#?}", one.broken);
        all.gangs += one.gangs;
        all.evicted += one.evicted;
        all.crashes += one.crashes;
        all.gone += one.gone;
        all.adopted += one.adopted;
        all.incomplete += one.incomplete;
        all.plans.add(&one.plans);
        all.mixed += one.mixed;
        all.requested += one.requested;
        all.given_back += one.given_back;
        all.sets += one.sets;
        all.complete_sets += one.complete_sets;
        all.broken_sets += one.broken_sets;
        all.on_requested += one.on_requested;
    }
    let lively = [all.gangs, all.evicted, all.crashes];
    assert!(lively.iter().all(|count| *count > seeds), "{all:?}");
    assert!(all.gone > seeds / 2, "{all:?}");
    let rarer = [all.adopted, all.incomplete, all.mixed];
    assert!(rarer.iter().all(|count| *count > seeds / 10), "{all:?}");
    assert!(all.plans.evicted > seeds / 5, "{all:?}");
    let of_cluster = [all.requested, all.sets, all.broken_sets, all.on_requested];
    assert!(of_cluster.iter().all(|count| *count > seeds), "{all:?}");
    let rarer = [all.given_back, all.complete_sets];
    assert!(rarer.iter().all(|count| *count > seeds / 4), "{all:?}");
}

#[test]
fn m8_a_storm_of_gangs_is_the_same_each_time() {
    assert_eq!(GangStorm::new(7).run(), GangStorm::new(7).run());
}

#[test]
fn m8_planted_faults_of_gangs_are_found() {
    for fault in [
        GangFault::OneEndsAll,
        GangFault::OthersRunOn,
        GangFault::ReachHidden,
        GangFault::DemandHidden,
        GangFault::RefusalHidden,
    ] {
        let is_found = |seed: &u64| {
            let storm = GangStorm {
                seed: *seed,
                fault: Some(fault),
            };
            !storm.run().broken.is_empty()
        };
        // In some storms no cluster brings nodes.
        let found = (0..40).filter(is_found).count();
        assert!(found > 10, "{fault:?} is found by {found} of 40 storms");
    }
}
