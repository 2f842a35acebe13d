//! Requests and responses for nodes and join tokens.

use serde::Serialize;
use utoipa::ToSchema;

use super::cordons::Removed;
use super::values::at;
use controller::Snapshot;
use pool::{NodeAmounts, NodeId, NodeOutlook, NodeUse, PendingNode, ReplicaId, Time};
use store::{NodeToken, TokenRefusal};

/// A machine of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct NodeView {
    #[schema(example = "gpu-2")]
    pub node: String,
    /// `joined`, `silent`, `draining`, `released` (the pool is returning it), `ending` (its time limit is near or a cheaper
    /// place is free, and replicas are moving), or `ends_others` (it stops engines that no longer belong to the pool).
    #[schema(example = "joined")]
    pub state: &'static str,
    /// Start of the current state; null if it never changed.
    pub since: Option<String>,
    /// Reason for the current state.
    pub reason: Option<String>,
    /// Names of the node's devices.
    #[schema(example = json!(["gpu-2/gpu0"]))]
    pub devices: Vec<String>,
    /// Replicas on the node.
    #[schema(example = json!(["r7"]))]
    pub replicas: Vec<String>,
    /// True for the controller's own machine, which needs no network connection.
    pub is_controller: bool,
    /// Version of the node's program.
    pub version: Option<String>,
    /// Remote address of the node's connection.
    pub address: Option<String>,
    /// Address that receives requests for the node's engines.
    pub relay: Option<String>,
    /// True if these requests are encrypted in transit.
    pub is_encrypted: Option<bool>,
    pub joined_at: Option<String>,
    /// End of the node's lease; null if it has none or it is unknown.
    pub ends_at: Option<String>,
    /// Node size, from `cluster.shapes`, if the pool requested the node.
    pub shape: Option<String>,
    pub cost_per_hour: Option<f64>,
}

/// A node that was requested from the cluster (S2).
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RequestedNodeView {
    /// Node size, from `cluster.shapes`.
    #[schema(example = "a100x4")]
    pub shape: String,
    /// Model for which the node was requested.
    #[schema(example = "llama-3-70b")]
    pub model: String,
    /// Number shared by requests that were made together, for a replica that spans several nodes (M8); null for a single request.
    pub set: Option<u64>,
    pub since: String,
    /// Status reported by the cluster.
    #[schema(example = "lease 4711: other jobs are before it (Priority)")]
    pub reason: String,
    /// `unknown` (the cluster has not considered the request), `waits`, `stuck` (no machine comes unless the pool gives one back),
    /// `never` (the request cannot start), `starts` (it has its machine), or `joined`.
    #[schema(example = "waits")]
    pub outlook: &'static str,
    /// Start that the cluster expects; null if it gives none.
    pub starts_at: Option<String>,
    pub cost_per_hour: Option<f64>,
}

/// A node size of the cluster (S2).
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct NodeShapeView {
    #[schema(example = "a100x4")]
    pub shape: String,
    pub gpus: u32,
    /// Memory that replicas may hold on each GPU, after headroom, as configured or as measured on a node of this size.
    pub bytes_per_gpu: u64,
    pub cost_per_hour: Option<f64>,
    /// Nodes of this size that count towards the limits, with open requests.
    pub held: u32,
    pub max_nodes: Option<u32>,
    /// Reason why no node of this size is requested now; null if one may be requested.
    #[schema(
        example = "the limit of 2 nodes of this size is reached (max_nodes in cluster.shapes)"
    )]
    pub unavailable: Option<String>,
    /// Time after which a node of this size may be requested again, if that depends on time alone.
    pub retry_at: Option<String>,
}

/// The use of requested nodes in a period.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct NodeUseView {
    /// `day`, `month`, or `batch_day`: the part of the day for batches.
    #[schema(example = "day")]
    pub period: &'static str,
    pub gpu_hours: f64,
    /// In the currency of `cost_per_hour`.
    pub cost: f64,
    pub gpu_hours_max: Option<f64>,
    pub cost_max: Option<f64>,
}

impl NodeShapeView {
    pub fn all(snapshot: &Snapshot) -> Vec<NodeShapeView> {
        let shapes = snapshot.pool.node_shapes.iter();
        shapes
            .map(|view| NodeShapeView {
                shape: view.shape.name.clone(),
                gpus: view.shape.devices,
                bytes_per_gpu: view.shape.bytes_per_device.0,
                cost_per_hour: view.shape.cost_per_hour_cents.map(cost),
                held: view.held,
                max_nodes: view.shape.nodes_max,
                unavailable: view.unavailable.clone(),
                retry_at: view.retry.map(at),
            })
            .collect()
    }
}

impl NodeUseView {
    /// The period in a sentence, after "this".
    pub fn period_text(&self) -> &'static str {
        match self.period {
            "batch_day" => "day for batches",
            period => period,
        }
    }

    pub fn all(snapshot: &Snapshot) -> Vec<NodeUseView> {
        if snapshot.pool.node_shapes.is_empty() {
            return Vec::new();
        }
        let (spent, budget) = (&snapshot.pool.nodes_spent, &snapshot.pool.node_budget);
        let view = |period, used: &NodeUse, most: &NodeAmounts| NodeUseView {
            period,
            gpu_hours: hours(used.gpu_seconds),
            cost: used.cents as f64 / 100.0,
            gpu_hours_max: most.gpu_seconds.map(hours),
            cost_max: most.cents.map(|cents| cents as f64 / 100.0),
        };
        let mut all = vec![
            view("day", &spent.day, &budget.day),
            view("month", &spent.month, &budget.month),
        ];
        let of_batches = snapshot.pool.batch_nodes.as_ref();
        all.extend(of_batches.map(|nodes| view("batch_day", &spent.batch_day, &nodes.day)));
        all
    }
}

fn hours(seconds: u64) -> f64 {
    (seconds as f64 / 36.0).round() / 100.0
}

fn cost(cents: u32) -> f64 {
    f64::from(cents) / 100.0
}

impl RequestedNodeView {
    /// The open requests, the oldest first.
    pub fn all(snapshot: &Snapshot) -> Vec<RequestedNodeView> {
        let pending = snapshot.pool.node_demands.iter();
        pending
            .map(|pending| RequestedNodeView::new(pending, snapshot))
            .collect()
    }

    fn new(pending: &PendingNode, snapshot: &Snapshot) -> RequestedNodeView {
        let mut models = snapshot.pool.models.iter();
        let model = models.find(|model| model.model == pending.model);
        let mut shapes = snapshot.pool.node_shapes.iter();
        let shape = shapes.find(|view| view.shape.shape == pending.shape);
        let (outlook, starts) = match (&pending.joined, pending.outlook) {
            (Some(_), _) => ("joined", None),
            (None, NodeOutlook::Unknown) => ("unknown", None),
            (None, NodeOutlook::Waits { starts }) => ("waits", starts),
            (None, NodeOutlook::Stuck) => ("stuck", None),
            (None, NodeOutlook::Never) => ("never", None),
            (None, NodeOutlook::Starts) => ("starts", None),
        };
        let together = pending.set.filter(|set| set.requests > 1);
        RequestedNodeView {
            shape: pending.shape_name.clone(),
            model: model.map_or_else(String::new, |model| model.name.clone()),
            set: together.map(|set| set.id.0),
            since: at(pending.since),
            reason: match (&pending.joined, together) {
                (Some(_), Some(set)) => format!(
                    "it has joined and waits for the other nodes of {} requested together (M8)",
                    set.requests
                ),
                (Some(_), None) => "it has joined; its devices are not known yet".to_owned(),
                (None, _) => pending.reason.clone(),
            },
            outlook,
            starts_at: starts.map(at),
            cost_per_hour: shape.and_then(|view| view.shape.cost_per_hour_cents.map(cost)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    /// The open requests of the pool for nodes, the oldest first.
    pub requested: Vec<RequestedNodeView>,
    /// The sizes that the cluster can bring. Empty without a cluster.
    pub shapes: Vec<NodeShapeView>,
    /// The use of requested nodes. Empty without a cluster.
    pub spent: Vec<NodeUseView>,
    pub tokens: Vec<NodeTokenView>,
}

/// A join token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeTokenView {
    #[schema(example = "t2")]
    pub id: String,
    #[schema(example = "mp-Ab3xY9")]
    pub prefix: String,
    pub created_at: String,
    pub expires_at: String,
    /// Time of the last join with this token.
    pub used_at: Option<String>,
    /// `valid`, `expired`, `revoked`, or `not_yet_valid` while the clock shows a time before the token's creation.
    #[schema(example = "valid")]
    pub state: &'static str,
}

/// A new token with its secret, shown only once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NewNodeToken {
    #[schema(example = "t2")]
    pub id: String,
    #[schema(example = "mp-…")]
    pub token: String,
    pub expires_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RevokedNodeToken {
    #[schema(example = "t2")]
    pub revoked: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DrainNodeResponse {
    #[schema(example = "gpu-2")]
    pub node: String,
    /// Replicas that have left the node.
    pub left: Vec<String>,
    /// Replicas that are still on the node.
    pub draining: Vec<String>,
    /// Time at which requests in flight are cut. Absent if nothing drains.
    pub cut_at: Option<String>,
    #[schema(example = "o5")]
    pub order: String,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UndrainNodeResponse {
    #[schema(example = "gpu-2")]
    pub node: String,
    #[schema(example = "o6")]
    pub order: String,
}

impl NodeView {
    /// Every node of the pool, by name. The controller's machine is first.
    pub fn all(snapshot: &Snapshot) -> Vec<NodeView> {
        let views = snapshot.pool.nodes.iter();
        views
            .map(|view| {
                let facts = snapshot.nodes.get(&view.node);
                let mut shapes = snapshot.pool.node_shapes.iter();
                let shape = shapes.find(|known| Some(known.shape.shape) == view.shape);
                let shape = shape.map(|known| &known.shape);
                NodeView {
                    node: name_of(view.node, snapshot),
                    state: view.state.name(),
                    since: (view.since > Time(0)).then(|| at(view.since)),
                    reason: (!view.reason.is_empty()).then(|| view.reason.clone()),
                    devices: view
                        .devices
                        .iter()
                        .map(|device| snapshot.device_name(*device))
                        .collect(),
                    replicas: replicas_on(view.node, snapshot),
                    is_controller: view.node == NodeId(0),
                    version: facts.map(|facts| facts.version.clone()),
                    address: facts.map(|facts| facts.address.to_string()),
                    relay: facts.map(|facts| facts.relay.to_string()),
                    is_encrypted: facts.map(|facts| facts.is_encrypted),
                    joined_at: facts.map(|facts| at(facts.joined_at)),
                    ends_at: view.ends.map(at),
                    shape: shape.map(|shape| shape.name.clone()),
                    cost_per_hour: shape.and_then(|shape| shape.cost_per_hour_cents.map(cost)),
                }
            })
            .collect()
    }
}

/// The name of a node; for node 0 the name of the controller's machine.
pub fn name_of(node: NodeId, snapshot: &Snapshot) -> String {
    if let Some(facts) = snapshot.nodes.get(&node) {
        return facts.name.clone();
    }
    let view = snapshot.pool.nodes.iter().find(|view| view.node == node);
    if let Some(expected) = view.filter(|_| node != NodeId(0)) {
        return expected.name.clone();
    }
    let mut devices = snapshot.devices.values();
    let here = devices.find(|device| device.info.node == node);
    here.map_or_else(|| node.to_string(), |device| device.info.node_name.clone())
}

fn replicas_on(node: NodeId, snapshot: &Snapshot) -> Vec<String> {
    let replicas = snapshot.replicas_on(node).iter();
    replicas.map(ReplicaId::to_string).collect()
}

impl NodeTokenView {
    pub fn from_record(token: &NodeToken, now: Time) -> NodeTokenView {
        NodeTokenView {
            id: format!("t{}", token.id),
            prefix: token.prefix.clone(),
            created_at: at(token.created),
            expires_at: at(token.expires),
            used_at: token.used.map(at),
            state: token
                .check(now)
                .map_or_else(TokenRefusal::name, |()| "valid"),
        }
    }
}

impl DrainNodeResponse {
    pub fn new(node: NodeId, removed: Removed<'_>) -> DrainNodeResponse {
        let draining = replicas_on(node, removed.snapshot);
        DrainNodeResponse {
            node: name_of(node, removed.snapshot),
            left: removed.left_names(),
            cut_at: (!draining.is_empty()).then(|| at(removed.cut_at)),
            draining,
            order: removed.order,
            took_ms: removed.took.0,
        }
    }
}
