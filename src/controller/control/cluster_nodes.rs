//! The loop's view of the cluster that hands out nodes: its shapes, and the channel to the task that calls it (S2).

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;

use catalog::Entry;
use cluster::{ClusterOrder, ShapeRoom, is_node_of};
use config::{Config, ShapeSection};
use pool::{DemandId, Event, KindId, NodeRoom, NodeShape, ShapeId, Time};

/// Maximum number of remembered names of future nodes. Several sets of nodes for the largest model have fewer.
const NAMES_MAX: usize = 1024;
/// A node that reports this number was started by the cluster for a request it does not know: all pods of a Deployment start alike.
const OF_CLUSTER: DemandId = DemandId(0);

/// Prefix of a shape's name in the store's table of remembered figures, where a model has its own name.
const SHAPE_KEY: &str = "node shape: ";
/// Stored for a shape whose figures were forgotten. The pool ignores it.
const FORGOTTEN: &[u64] = &[0];

#[derive(Debug, Default)]
pub(crate) struct ClusterNodes {
    /// `None` without a cluster.
    orders: Option<mpsc::UnboundedSender<ClusterOrder>>,
    shapes: Vec<String>,
    /// The last stored results of `Pool::remembered_shape`, in the order of `shapes`.
    remembered: BTreeMap<ShapeId, Vec<u64>>,
    /// Requests by the name of the node that will come for them.
    demands: BTreeMap<String, DemandId>,
    /// End of each node's lease, by node name.
    ends: BTreeMap<String, Time>,
    /// Requests whose nodes have no name yet.
    unnamed: BTreeSet<DemandId>,
}

impl ClusterNodes {
    /// Requests one node for each of `demands`. Several are for one replica and come together.
    pub fn request(&mut self, demands: &[DemandId], shape: ShapeId) {
        self.unnamed.extend(demands);
        if let Some(shape) = self.shapes.get(shape.0 as usize) {
            let demands = demands.iter().map(|demand| demand.0).collect();
            let shape = shape.clone();
            self.order(ClusterOrder::Request { demands, shape });
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

    /// The request that this node comes for, if the cluster has named it. `own` is the request that the node itself reports; a node
    /// started by the cluster may report only [`OF_CLUSTER`].
    pub fn joined(&mut self, node: &str, own: Option<DemandId>) -> Option<DemandId> {
        self.order(ClusterOrder::Joined {
            node: node.to_owned(),
        });
        let named = self.demands.keys().find(|name| is_node_of(name, node));
        let named = named.cloned().and_then(|name| self.demands.remove(&name));
        let unnamed = self.unnamed.first().copied();
        let unnamed = unnamed.filter(|_| own == Some(OF_CLUSTER));
        let demand = named.or(unnamed).or(own);
        if let Some(demand) = demand {
            self.ended(demand);
        }
        demand
    }

    /// Forgets a request for which no node is expected any more.
    pub fn ended(&mut self, demand: DemandId) {
        self.unnamed.remove(&demand);
    }

    /// Reports to the task that the node has been ordered to end.
    pub fn leaves(&self, node: &str) {
        self.order(ClusterOrder::Leaves {
            node: node.to_owned(),
        });
    }

    /// Reports to the task that the node does not respond: its lease may have ended.
    pub fn silent(&self, node: &str) {
        self.order(ClusterOrder::Silent {
            node: node.to_owned(),
        });
    }

    pub fn gone(&mut self, node: &str) {
        self.ends.remove(node);
        self.order(ClusterOrder::Gone {
            node: node.to_owned(),
        });
    }

    /// Takes the cluster's shapes and the channel of its task.
    pub fn begin(&mut self, shapes: Vec<String>, orders: mpsc::UnboundedSender<ClusterOrder>) {
        self.shapes = shapes;
        self.orders = Some(orders);
    }

    /// The measured figures of shapes, as stored.
    pub fn remembered(&mut self, stored: &BTreeMap<String, Vec<u64>>) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, number) in self.shapes.iter().zip(0..) {
            if let Some(numbers) = stored.get(&format!("{SHAPE_KEY}{name}")) {
                let (shape, numbers) = (ShapeId(number), numbers.clone());
                self.remembered.insert(shape, numbers.clone());
                events.push(Event::ShapeRemembered { shape, numbers });
            }
        }
        events
    }

    /// The store's keys and figures of shapes whose figures have changed since the last call.
    pub fn remember(
        &mut self,
        figures: impl Fn(ShapeId) -> Option<Vec<u64>>,
    ) -> Vec<(String, Vec<u64>)> {
        let mut changed = Vec::new();
        for (name, number) in self.shapes.iter().zip(0..) {
            let known = self.remembered.get(&ShapeId(number));
            // A reset forgets the figures.
            let numbers = figures(ShapeId(number)).or_else(|| known.map(|_| FORGOTTEN.to_vec()));
            if let Some(numbers) = numbers.filter(|numbers| known != Some(numbers)) {
                self.remembered.insert(ShapeId(number), numbers.clone());
                changed.push((format!("{SHAPE_KEY}{name}"), numbers));
            }
        }
        changed
    }

    /// Replaces the names of shapes with their numbers.
    pub fn numbered(&self, shapes: BTreeMap<String, ShapeRoom>) -> Vec<(ShapeId, NodeRoom)> {
        let numbered = |(name, ShapeRoom { nodes, why })| {
            let shape = self.number_of(String::as_str(&name))?;
            Some((shape, NodeRoom { nodes, why }))
        };
        shapes.into_iter().filter_map(numbered).collect()
    }

    pub fn number_of(&self, shape: &str) -> Option<ShapeId> {
        let number = self.shapes.iter().position(|name| name == shape)?;
        u32::try_from(number).ok().map(ShapeId)
    }

    pub fn is_there(&self) -> bool {
        self.orders.is_some()
    }

    /// Remembers that a node of this name will come for the request.
    pub fn names(&mut self, node: String, demand: DemandId) {
        if self.demands.len() >= NAMES_MAX {
            let oldest = self.demands.iter().min_by_key(|(_, demand)| **demand);
            if let Some(oldest) = oldest.map(|(node, _)| node.clone()) {
                self.demands.remove(&oldest);
            }
        }
        self.ended(demand);
        self.demands.insert(node, demand);
    }

    pub fn ends(&mut self, node: String, at: Time) {
        self.ends.insert(node, at);
    }

    /// End of the node's lease, if it has one.
    pub fn end_of(&self, node: &str) -> Option<Time> {
        self.ends.get(node).copied()
    }

    fn order(&self, order: ClusterOrder) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }
}

/// The node shapes that the cluster offers.
pub(crate) fn shapes(config: &Config) -> Vec<NodeShape> {
    let all = &config.cluster.shapes;
    let shape = |(shape, number): (&ShapeSection, u32)| {
        let alike = all
            .iter()
            .position(|other| sort_of(other) == sort_of(shape));
        let memory = shape.memory.0;
        NodeShape {
            shape: ShapeId(number),
            name: shape.name.clone(),
            devices: shape.gpus,
            bytes_per_device: memory.saturating_sub(config.inventory.headroom.resolve(memory)),
            // The devices of a shape are known only after a node has joined; these numbers match no real kind.
            kind: KindId(u32::MAX - alike.map_or(number, |index| index as u32)),
            nodes_max: shape.max_nodes,
            cost_per_hour_cents: shape
                .cost_per_hour
                .map(|cost| (cost * 100.0).round() as u32),
        }
    };
    all.iter().zip(0..).map(shape).collect()
}

/// The shapes that a model may use whose file names a maker and no other property of devices.
pub(crate) fn allowed_shapes(entry: &Entry, config: &Config) -> Option<BTreeSet<ShapeId>> {
    let maker = entry.devices.only_maker()?;
    let shapes = config.cluster.shapes.iter().zip(0..);
    let of_maker = shapes.filter(|(shape, _)| shape.maker() == maker);
    Some(of_maker.map(|(_, number)| ShapeId(number)).collect())
}

/// The traits that make shapes comparable. A cluster without machines of one kind may still have machines of another.
fn sort_of(shape: &ShapeSection) -> impl PartialEq + '_ {
    // Drops the number of GPUs, which comes last.
    let gres = shape.gres.as_deref();
    let gres = gres.map(|gres| gres.rsplit_once(':').map_or(gres, |(name, _)| name));
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
        (shape.memory.0, shape.maker()),
    )
}

/// The properties that PBS requires of this shape's nodes, without amounts: larger nodes need more processors.
fn traits(shape: &ShapeSection) -> Vec<&str> {
    let parts = shape.select.iter().flat_map(|select| select.split(':'));
    let is_amount = |part: &&str| {
        part.split_once('=')
            .is_some_and(|(_, value)| value.starts_with(|first: char| first.is_ascii_digit()))
    };
    parts.filter(|part| !is_amount(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> (ClusterNodes, mpsc::UnboundedReceiver<ClusterOrder>) {
        let (orders, received) = mpsc::unbounded_channel();
        let mut nodes = ClusterNodes::default();
        nodes.begin(vec!["one".to_owned(), "two".to_owned()], orders);
        (nodes, received)
    }

    #[test]
    fn m8_a_set_is_one_order_and_any_node_of_a_deployment_joins_for_one_of_its_requests() {
        let (mut nodes, mut orders) = connected();
        let set = [DemandId(7), DemandId(8), DemandId(9)];
        nodes.request(&set, ShapeId(1));
        let expected = ClusterOrder::Request {
            demands: vec![7, 8, 9],
            shape: "two".to_owned(),
        };
        assert_eq!(orders.try_recv(), Ok(expected));
        nodes.names("pod-b".to_owned(), DemandId(8));
        let joined =
            ["pod-x-1", "pod-b", "pod-x-2"].map(|node| nodes.joined(node, Some(OF_CLUSTER)));
        assert_eq!(joined, [DemandId(7), DemandId(8), DemandId(9)].map(Some));
        // No request is left.
        assert_eq!(nodes.joined("pod-x-3", Some(OF_CLUSTER)), Some(OF_CLUSTER));
    }

    #[test]
    fn m8_the_names_of_several_of_the_largest_sets_are_kept_and_the_oldest_is_forgotten_first() {
        let (mut nodes, _orders) = connected();
        let devices = catalog::DEVICES_MAX as usize;
        assert!(NAMES_MAX >= 4 * devices);
        for demand in 0..=NAMES_MAX as u64 {
            nodes.names(format!("node-{demand}"), DemandId(demand + 1));
        }
        let demand_of = |nodes: &mut ClusterNodes, node: &str| nodes.joined(node, None);
        assert_eq!(demand_of(&mut nodes, "node-0"), None);
        let latest = format!("node-{NAMES_MAX}");
        let expected = DemandId(NAMES_MAX as u64 + 1);
        assert_eq!(demand_of(&mut nodes, &latest), Some(expected));
        assert_eq!(demand_of(&mut nodes, "node-1"), Some(DemandId(2)));
    }
}
