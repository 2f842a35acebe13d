//! Tests the bound and the clairvoyant policy against the true optimum of cases small enough to try every choice: one device, a few
//! models, and requests far enough apart not to wait for each other.

use alloc::vec::Vec;

use super::*;
use crate::Random;
use pool::{Bytes, DeviceId, DeviceReading, KeyId, ModelId, ModelSpec, Span, Time};

const MEMORY_GIB: u64 = 10;

fn case(seed: u64) -> (Scenario, Vec<Arrival>) {
    let mut random = Random::new(seed);
    let spec = |nth: usize, random: &mut Random| ModelSpec {
        name: format!("model-{nth}"),
        bytes_per_device: Bytes(random.between(2, 8) * Bytes::GIB),
        reload: Span::from_secs(random.between(1, 30)),
        keep_hot: Span::from_secs(86_400 * 365),
        ..ModelSpec::default()
    };
    let models: Vec<ModelSpec> = (0..4).map(|nth| spec(nth, &mut random)).collect();
    let device = DeviceReading {
        name: "gpu0".into(),
        total: Bytes(MEMORY_GIB * Bytes::GIB),
        ..DeviceReading::default()
    };
    let mut at = 0;
    let requests = 6 + random.below(12);
    let arrivals = (0..requests).map(|_| {
        at += random.between(100, 2_000) * 1_000;
        Arrival {
            at: Time(at),
            model: ModelId(random.below(4) as u32),
            key: KeyId(0),
            service: Span::from_secs(1),
        }
    });
    let arrivals = arrivals.collect();
    let scenario = Scenario {
        devices: vec![(DeviceId(0), device)],
        models,
        stop_takes: Span::ZERO,
        ..Scenario::default()
    };
    (scenario, arrivals)
}

/// The least loading time that these requests need: for every set of models that may have been kept, the least time to get there.
fn least(scenario: &Scenario, arrivals: &[Arrival]) -> Span {
    let sets = 1_usize << scenario.models.len();
    let models = |set: usize| {
        let all = scenario.models.iter().enumerate();
        all.filter(move |(nth, _)| set >> nth & 1 == 1)
    };
    let fits = |set: usize| {
        let bytes: Bytes = models(set).map(|(_, spec)| spec.bytes_per_device).sum();
        bytes.0 <= MEMORY_GIB * Bytes::GIB
    };
    let mut cost: Vec<Option<u64>> = vec![None; sets];
    cost[0] = Some(0);
    for arrival in arrivals {
        let own = 1 << arrival.model.0;
        let reload = scenario.models[arrival.model.0 as usize].reload.0;
        let mut next: Vec<Option<u64>> = vec![None; sets];
        for (before, paid) in cost.iter().enumerate() {
            let Some(paid) = paid else { continue };
            let paid = paid + if before & own == 0 { reload } else { 0 };
            // Any model may have left by this time, except the serving one.
            let kept = (0..sets).filter(|set| set & own != 0 && set & !(before | own) == 0);
            for set in kept.filter(|set| fits(*set)) {
                next[set] = Some(next[set].map_or(paid, |known| known.min(paid)));
            }
        }
        cost = next;
    }
    Span(cost.into_iter().flatten().min().unwrap_or(0))
}

#[test]
fn no_policy_costs_less_than_the_bound_or_loads_less_than_the_minimum() {
    let (mut all_bounds, mut all_least) = (0, 0);
    for seed in 0..150 {
        let (scenario, arrivals) = case(seed);
        let least = least(&scenario, &arrivals);
        let bound = bound(&scenario, arrivals.iter().copied());
        assert!(bound.reload <= least, "seed {seed}: {bound:?} {least}");
        let options = Options::default();
        let uses = arrivals.iter().map(|arrival| (arrival.at, arrival.model));
        let rule = Offline::new(scenario.models.len(), uses);
        let known = arrivals.iter().copied();
        let offline = run_baseline(&scenario, rule, known.clone(), &options, &mut |_, _| {});
        let ours = run(&scenario, known, &options, &mut |_, _| {});
        for report in [&offline, &ours] {
            assert_eq!(report.all.served, report.all.requests, "seed {seed}");
            let took = report.all.reload;
            assert!(took >= least, "seed {seed}: {} {took}", report.policy);
        }
        all_bounds += bound.reload.0;
        all_least += least.0;
    }
    // A bound far below the truth would be useless. It treats memory as free while a model serves, so it is lower.
    assert!(all_bounds * 10 >= all_least * 6, "{all_bounds} {all_least}");
}
