//! Short random runs with nodes for batches (B8). After every step all invariants hold, and the limits of these nodes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::random::{MODELS, Random, act};
use super::run::{DEVICE, Run};
use crate::plan::node_use::{is_idle, is_wanted};
use crate::{
    BatchNodes, Bytes, DemandId, Event, KindId, Limits, ModelSpec, NodeAmounts, NodeId,
    NodeOutlook, NodeShape, NodeUse, NodesSpent, Priority, ReplicaId, ShapeId, Span, check,
};

const RUNS: u64 = 120;
const STEPS: u32 = 150;
const BUDGET: u64 = 3_600;

/// A cluster that brings nodes, refuses them and takes them back.
#[derive(Default)]
struct Cluster {
    open: Vec<(DemandId, ShapeId)>,
    /// The nodes that are there, each with its request.
    nodes: BTreeMap<u32, DemandId>,
    /// The requests, cancellations and releases that have been carried out.
    seen: (usize, usize, usize),
    joined: u32,
    is_used_up: bool,
    given_back: u32,
    for_batches: u32,
}

impl Cluster {
    /// Carries out what the pool has decided since the last call.
    fn follow(&mut self, run: &mut Run, nodes_max: u32) {
        let (requested, cancelled, released) = self.seen;
        for request in &run.requested[requested..] {
            self.for_batches += u32::from(request.0.is_for_batches());
            let is_allowed = !self.is_used_up || !request.0.is_for_batches();
            assert!(is_allowed, "{request:?} with a used-up budget");
            self.open.push(*request);
        }
        for demand in &run.cancelled[cancelled..] {
            self.open.retain(|(open, _)| open != demand);
        }
        self.seen = (run.requested.len(), run.cancelled.len(), run.released.len());
        let open = self.open.iter().map(|(demand, _)| *demand);
        let all = open.chain(self.nodes.values().copied());
        let held = all.filter(|demand| demand.is_for_batches()).count();
        assert!(held <= nodes_max as usize, "{held} of {nodes_max}");
        let released = run.released[released..].to_vec();
        for NodeId(nth) in released {
            assert!(run.pool.replicas_on(NodeId(nth)).is_empty(), "node {nth}");
            self.given_back += 1;
            self.nodes.remove(&nth);
            run.node_goes(nth);
        }
    }

    fn act(&mut self, run: &mut Run, random: &mut Random) {
        match random.below(8) {
            0..=2 if !self.open.is_empty() => {
                let nth = random.below(self.open.len() as u32) as usize;
                let (demand, shape) = self.open.remove(nth);
                self.joined += 1;
                self.nodes.insert(self.joined, demand);
                run.node_joins(self.joined, demand, size(shape.0));
            }
            3 if !self.open.is_empty() => {
                let (demand, _) = self.open.remove(0);
                let why = "the quota is used up".into();
                run.step([Event::NodeRefused { demand, why }]);
            }
            4 => {
                if let Some((demand, _)) = self.open.first().copied() {
                    let outlook = NodeOutlook::Waits { starts: None };
                    let reason = "Priority".into();
                    run.step([Event::NodePending {
                        demand,
                        reason,
                        outlook,
                    }]);
                }
            }
            5 => {
                self.is_used_up = random.chance(3);
                let gpu_seconds = if self.is_used_up { BUDGET } else { 0 };
                let batch_day = NodeUse {
                    gpu_seconds,
                    cents: 0,
                };
                let spent = NodesSpent {
                    batch_day,
                    ..NodesSpent::default()
                };
                run.step([Event::NodesSpent { spent }]);
            }
            _ => {}
        }
    }
}

/// The memory of a node's device.
fn size(shape: u32) -> Bytes {
    match shape {
        0 => Bytes(6),
        _ => DEVICE,
    }
}

fn shapes() -> Vec<NodeShape> {
    let shape = |number: u32| NodeShape {
        shape: ShapeId(number),
        name: alloc::format!("size{number}"),
        devices: 1,
        bytes_per_device: size(number),
        kind: KindId(0),
        cost_per_hour_cents: Some(100 * (number + 1)),
        nodes_max: None,
    };
    (0..2).map(shape).collect()
}

#[test]
fn b8_random_nodes_for_batches_keep_all_invariants_and_their_limits() {
    let (mut requested, mut given_back) = (0, 0);
    for seed in 0..RUNS {
        let mut random = Random(seed ^ 0x6238);
        let models: Vec<ModelSpec> = (0..MODELS).map(|_| random.spec()).collect();
        let mut run = Run::new(1, &models);
        let nodes_max = 1 + random.below(2);
        let day = NodeAmounts {
            gpu_seconds: Some(BUDGET),
            cents: None,
        };
        let limits = Limits {
            nodes_max: random.chance(5).then(|| 1 + random.below(3)),
            batch_nodes: Some(BatchNodes { nodes_max, day }),
            ..Limits::default()
        };
        let shapes = shapes();
        run.step([Event::LimitsSet { limits }, Event::ShapesSet { shapes }]);
        let mut cluster = Cluster::default();
        for step in 0..STEPS {
            act(&mut run, &mut random);
            cluster.follow(&mut run, nodes_max);
            cluster.act(&mut run, &mut random);
            cluster.follow(&mut run, nodes_max);
            let found = check(&run.pool);
            assert!(found.is_empty(), "seed {seed}, step {step}: {found:?}");
        }
        requested += cluster.for_batches;
        given_back += cluster.given_back;
        // Always-hot models may hold all memory.
        let is_hot = |spec: &ModelSpec| spec.priority >= Priority::ALWAYS_HOT;
        if models.iter().any(is_hot) {
            continue;
        }
        run.batches(&[]);
        for _ in 0..20 {
            run.settle();
            let replicas: Vec<ReplicaId> = run.pool.replicas.keys().copied().collect();
            for replica in replicas {
                run.request_ends(replica);
                run.request_ends(replica);
            }
            run.after(Span::from_secs(60));
            cluster.follow(&mut run, nodes_max);
        }
        for (nth, demand) in &cluster.nodes {
            let node = NodeId(*nth);
            let is_kept = is_idle(&run.pool, node) && !is_wanted(&run.pool, node);
            assert!(
                !demand.is_for_batches() || !is_kept,
                "seed {seed}: node {nth}"
            );
        }
        let mut open = cluster.open.iter().map(|(demand, _)| demand);
        let is_open = open.any(|demand| demand.is_for_batches());
        let is_wanted = run.pool.demand_index.before_batches().next().is_some();
        assert!(!is_open || is_wanted, "seed {seed}: {:?}", cluster.open);
    }
    assert!(
        requested > 50 && given_back > 50,
        "{requested} {given_back}"
    );
}
