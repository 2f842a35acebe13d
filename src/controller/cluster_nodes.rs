//! The cluster that hands out nodes, as the loop knows it: its shapes, and the task beside the loop that calls it (S2).

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use cluster::{ClusterOrder, is_node_of};
use config::{Config, ShapeSection};
use pool::{DemandId, KindId, NodeShape, ShapeId, Time};

/// Names of nodes to come that are remembered.
const NAMES_MAX: usize = 64;
/// With this number a node says that the cluster has started it, for a request that it does not know: all pods of a
/// Deployment start alike.
const OF_CLUSTER: DemandId = DemandId(0);

#[derive(Debug, Default)]
pub(super) struct ClusterNodes {
    /// `None`: there is no cluster.
    orders: Option<mpsc::UnboundedSender<ClusterOrder>>,
    shapes: Vec<String>,
    /// The requests that nodes of these names come for.
    demands: BTreeMap<String, DemandId>,
    /// When the leases of nodes end, by their names.
    ends: BTreeMap<String, Time>,
    /// The request whose node has no name yet.
    unnamed: Option<DemandId>,
}

impl ClusterNodes {
    pub fn request(&mut self, demand: DemandId, shape: ShapeId) {
        self.unnamed = Some(demand);
        if let Some(shape) = self.shapes.get(shape.0 as usize) {
            let (demand, shape) = (demand.0, shape.clone());
            self.order(ClusterOrder::Request { demand, shape });
        }
    }

    pub fn cancel(&mut self, demand: DemandId) {
        self.ended(demand);
        self.order(ClusterOrder::Cancel { demand: demand.0 });
    }

    pub fn release(&self, node: &str) {
        let node = node.to_owned();
        self.order(ClusterOrder::Release { node });
    }

    /// The request that this node comes for, where the cluster has named it. `own` is what the node says; one that the
    /// cluster has started may know no more than that ([`OF_CLUSTER`]).
    pub fn joined(&mut self, node: &str, own: Option<DemandId>) -> Option<DemandId> {
        self.order(ClusterOrder::Joined {
            node: node.to_owned(),
        });
        let named = self.demands.keys().find(|name| is_node_of(name, node));
        let named = named.cloned().and_then(|name| self.demands.remove(&name));
        let unnamed = self.unnamed.filter(|_| own == Some(OF_CLUSTER));
        let demand = named.or(unnamed).or(own);
        if let Some(demand) = demand {
            self.ended(demand);
        }
        demand
    }

    /// No node is waited for any more.
    pub fn ended(&mut self, demand: DemandId) {
        self.unnamed.take_if(|it| *it == demand);
    }

    /// It has been ordered to end.
    pub fn leaves(&self, node: &str) {
        self.order(ClusterOrder::Leaves {
            node: node.to_owned(),
        });
    }

    pub fn gone(&mut self, node: &str) {
        self.ends.remove(node);
        self.order(ClusterOrder::Gone {
            node: node.to_owned(),
        });
    }

    /// The cluster is there, and its task takes orders.
    pub fn begin(&mut self, shapes: Vec<String>, orders: mpsc::UnboundedSender<ClusterOrder>) {
        self.shapes = shapes;
        self.orders = Some(orders);
    }

    pub fn is_there(&self) -> bool {
        self.orders.is_some()
    }

    /// A node of this name will come for the request.
    pub fn names(&mut self, node: String, demand: DemandId) {
        if self.demands.len() >= NAMES_MAX {
            self.demands.pop_first();
        }
        self.ended(demand);
        self.demands.insert(node, demand);
    }

    pub fn ends(&mut self, node: String, at: Time) {
        self.ends.insert(node, at);
    }

    /// When the lease of the node ends, if it has one.
    pub fn end_of(&self, node: &str) -> Option<Time> {
        self.ends.get(node).copied()
    }

    fn order(&self, order: ClusterOrder) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }
}

/// What the cluster can bring.
pub(super) fn shapes(config: &Config) -> Vec<NodeShape> {
    let all = &config.cluster.shapes;
    let shape = |(shape, number): (&ShapeSection, u32)| {
        let alike = all.iter().position(|it| sort_of(it) == sort_of(shape));
        let memory = shape.memory.0;
        NodeShape {
            shape: ShapeId(number),
            name: shape.name.clone(),
            devices: shape.gpus,
            bytes_per_device: memory.saturating_sub(config.inventory.headroom.of(memory)),
            // What devices they have is known once a node has joined: these numbers belong to none.
            kind: KindId(u32::MAX - alike.map_or(number, |it| it as u32)),
            cost_per_hour_cents: shape.cost_per_hour.map(|it| (it * 100.0).round() as u32),
        }
    };
    all.iter().zip(0..).map(shape).collect()
}

/// Shapes that differ in this have other machines: that there is none of one says nothing of the other.
fn sort_of(shape: &ShapeSection) -> impl PartialEq + '_ {
    // Without the number of GPUs, which comes last.
    let gres = shape.gres.as_deref();
    let gres = gres.map(|it| it.rsplit_once(':').map_or(it, |(name, _)| name));
    let slurm = (
        gres,
        shape.partition.as_deref(),
        shape.constraint.as_deref(),
    );
    let pbs = (shape.queue.as_deref(), traits(shape));
    (
        slurm,
        pbs,
        (&shape.resources, &shape.labels),
        shape.memory.0,
    )
}

/// What PBS' nodes of this shape must be, without how much they must have: larger nodes need more processors.
fn traits(shape: &ShapeSection) -> Vec<&str> {
    let parts = shape.select.iter().flat_map(|it| it.split(':'));
    let is_amount = |part: &&str| {
        part.split_once('=')
            .is_some_and(|(_, value)| value.starts_with(|it: char| it.is_ascii_digit()))
    };
    parts.filter(|part| !is_amount(part)).collect()
}
