//! The cluster that hands out nodes, as the loop knows it: its shapes, and the task beside the loop that calls it (S2).

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use cluster::ClusterOrder;
use config::{Config, ShapeSection};
use pool::{Bytes, DemandId, KindId, NodeShape, ShapeId, Time};

/// Names of nodes to come that are remembered.
const NAMES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ClusterNodes {
    /// `None`: there is no cluster.
    orders: Option<mpsc::UnboundedSender<ClusterOrder>>,
    shapes: Vec<String>,
    /// The requests that nodes of these names come for.
    demands: BTreeMap<String, DemandId>,
    /// When the leases of nodes end, by their names.
    ends: BTreeMap<String, Time>,
}

impl ClusterNodes {
    pub fn request(&self, demand: DemandId, shape: ShapeId) {
        if let Some(shape) = self.shapes.get(shape.0 as usize) {
            let (demand, shape) = (demand.0, shape.clone());
            self.order(ClusterOrder::Request { demand, shape });
        }
    }

    pub fn cancel(&self, demand: DemandId) {
        self.order(ClusterOrder::Cancel { demand: demand.0 });
    }

    pub fn release(&self, node: &str) {
        let node = node.to_owned();
        self.order(ClusterOrder::Release { node });
    }

    /// The request that this node comes for, where the cluster has named it.
    pub fn joined(&mut self, node: &str) -> Option<DemandId> {
        self.order(ClusterOrder::Joined {
            node: node.to_owned(),
        });
        self.demands.remove(node)
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
fn sort_of(shape: &ShapeSection) -> (Option<&str>, Option<&str>, Option<&str>, Bytes) {
    // Without the number of GPUs, which comes last.
    let gres = shape.gres.as_deref();
    let gres = gres.map(|it| it.rsplit_once(':').map_or(it, |(name, _)| name));
    let (partition, constraint) = (shape.partition.as_deref(), shape.constraint.as_deref());
    (gres, partition, constraint, shape.memory.0)
}
