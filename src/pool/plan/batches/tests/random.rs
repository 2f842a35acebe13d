//! Short random runs with batches, requests and orders. After every step all invariants hold.

use alloc::vec::Vec;

use super::run::{Run, load, spec, unload};
use crate::{
    Bytes, LoadReason, Loader, LoaderId, ModelId, ModelSpec, Parking, Priority, ReplicaId, Span,
    check,
};

const RUNS: u64 = 200;
const STEPS: u32 = 150;
pub(super) const MODELS: u32 = 5;

/// A linear congruential generator.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }

    pub(super) fn chance(&mut self, in_ten: u32) -> bool {
        self.below(10) < in_ten
    }

    pub(super) fn spec(&mut self) -> ModelSpec {
        let bytes = 2 + u64::from(self.below(8));
        let priority = self.below(4).saturating_sub(1);
        let loader = Loader {
            loader: LoaderId(0),
            takes: Span::from_secs(5),
        };
        let parking = Parking {
            host: Bytes(bytes),
            resident_per_device: Bytes(1),
            wakes_in: Span::from_secs(2),
        };
        ModelSpec {
            keep_hot: Span::from_secs(60),
            queue_timeout: Span::from_secs(100_000),
            min_resident: self.chance(3).then_some(Span::from_secs(40)),
            loader: self.chance(5).then_some(loader),
            parking: self.chance(3).then_some(parking),
            ..spec(bytes, priority)
        }
    }

    pub(super) fn any(&mut self, all: &[ReplicaId]) -> Option<ReplicaId> {
        match all.len() {
            0 => None,
            length => Some(all[self.below(length as u32) as usize]),
        }
    }
}

pub(super) fn act(run: &mut Run, random: &mut Random) {
    let nth = random.below(MODELS);
    let replicas: Vec<ReplicaId> = run.pool.replicas.keys().copied().collect();
    match random.below(13) {
        0..=1 => {
            let all = (0..MODELS).filter(|_| random.below(3) > 0);
            let all: Vec<u32> = all.collect();
            let demands = all.into_iter().map(|nth| {
                let lines = u64::from(random.below(4));
                (nth, lines, random.chance(5))
            });
            let demands: Vec<(u32, u64, bool)> = demands.collect();
            run.batches(&demands);
        }
        2 => run.arrives(nth),
        3..=4 => {
            if let Some(replica) = random.any(&replicas) {
                run.request_ends(replica);
            }
        }
        5 => {
            let serves = |id: &ReplicaId| run.pool.replicas[id].ready_since().is_some();
            let ready: Vec<ReplicaId> = replicas.into_iter().filter(serves).collect();
            if let Some(replica) = random.any(&ready) {
                run.enters(replica);
            }
        }
        6..=7 => {
            if let Some(replica) = random.any(&run.launching) {
                run.launching.retain(|other| *other != replica);
                run.step([crate::Event::ReplicaReady { replica }]);
            }
        }
        8..=9 => {
            if let Some(replica) = random.any(&run.stopping) {
                run.stopping.retain(|other| *other != replica);
                run.exits(replica);
            }
        }
        10 => {
            let command = if random.chance(5) {
                load(nth)
            } else {
                unload(nth)
            };
            run.orders(command);
        }
        _ => {
            let seconds = u64::from(random.below(30));
            run.after(Span::from_secs(seconds));
        }
    }
}

#[test]
fn random_batches_keep_all_invariants_and_evict_only_idle_models_of_priority_0() {
    let (mut loads, mut evicting) = (0, 0);
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let models: Vec<ModelSpec> = (0..MODELS).map(|_| random.spec()).collect();
        let mut run = Run::new(2, &models);
        for step in 0..STEPS {
            let known: Vec<ReplicaId> = run.pool.planned.keys().copied().collect();
            act(&mut run, &mut random);
            let found = check(&run.pool);
            assert!(found.is_empty(), "seed {seed}, step {step}: {found:?}");
            let new = run.pool.planned.iter();
            let new = new.filter(|(id, planned)| {
                !known.contains(id) && matches!(planned.why, LoadReason::Batch { .. })
            });
            for (_, planned) in new {
                loads += 1;
                evicting += u32::from(!planned.victims.is_empty());
                for victim in planned.victims.iter().map(|id| &run.pool.replicas[id]) {
                    let priority = run.pool.priority(victim.model);
                    let model = &run.pool.models[&victim.model];
                    let is_below =
                        priority == Priority(0) || run.pool.serves_only_batches(victim, model);
                    let is_right = is_below && victim.in_flight == 0;
                    assert!(is_right, "seed {seed}, step {step}: {victim:?}");
                }
            }
        }
        // Always-hot models may hold all memory. Without them, every request is served in the end.
        let is_hot = |spec: &ModelSpec| spec.priority >= Priority::ALWAYS_HOT;
        if models.iter().any(is_hot) {
            continue;
        }
        run.batches(&[]);
        for _ in 0..60 {
            run.settle();
            let replicas: Vec<ReplicaId> = run.pool.replicas.keys().copied().collect();
            for replica in replicas {
                run.request_ends(replica);
                run.request_ends(replica);
            }
            run.after(Span::from_secs(60));
        }
        let waits: Vec<ModelId> = run.pool.queues.waited_for().iter().copied().collect();
        assert!(waits.is_empty(), "seed {seed}: {waits:?}");
    }
    assert!(loads > 100 && evicting > 10, "{loads} {evicting}");
}
