//! Requests and responses for nodes and join tokens.

use serde::Serialize;
use utoipa::ToSchema;

use super::cordons::Removed;
use super::values::at;
use controller::Snapshot;
use pool::{NodeId, ReplicaId, Time};
use store::{NodeToken, TokenRefusal};

/// A machine of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeView {
    #[schema(example = "gpu-2")]
    pub node: String,
    /// `joined`, `silent`, `draining`, `released` (the pool is returning it), `ending` (its time limit is near, and replicas in use
    /// are moving), or `ends_others` (it stops engines that no longer belong to the pool).
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
}

/// A node that was requested from the cluster (S2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RequestedNodeView {
    /// Node size, from `cluster.shapes`.
    #[schema(example = "a100x4")]
    pub shape: String,
    /// Model for which the node was requested.
    #[schema(example = "llama-3-70b")]
    pub model: String,
    pub since: String,
    /// Status reported by the cluster.
    #[schema(example = "lease 4711: other jobs are before it (Priority)")]
    pub reason: String,
}

impl RequestedNodeView {
    pub fn from_snapshot(snapshot: &Snapshot) -> Option<RequestedNodeView> {
        let pending = snapshot.pool.node_demand.as_ref()?;
        let mut models = snapshot.pool.models.iter();
        let model = models.find(|model| model.model == pending.model);
        Some(RequestedNodeView {
            shape: pending.shape_name.clone(),
            model: model.map_or_else(String::new, |model| model.name.clone()),
            since: at(pending.since),
            reason: match &pending.joined {
                Some(_) => "it has joined; its devices are not known yet".to_owned(),
                None => pending.reason.clone(),
            },
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    /// The pending node request of the pool; null if none.
    pub requested: Option<RequestedNodeView>,
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
    /// Every node of the pool. The controller's machine is first.
    pub fn all(snapshot: &Snapshot) -> Vec<NodeView> {
        let views = snapshot.pool.nodes.iter();
        views
            .map(|view| {
                let facts = snapshot.nodes.get(&view.node);
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
            state: token.check(now).map_or_else(TokenRefusal::name, |()| "valid"),
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
