//! Requests and answers about nodes, and about the tokens with which they join.

use serde::Serialize;
use utoipa::ToSchema;

use super::cordons::{Removed, Until};
use super::values::at;
use controller::Snapshot;
use pool::{NodeId, ReplicaId, Span, Time};
use store::NodeToken;

/// What `nodes/drain` takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"node": "gpu-2", "reason": "new kernel", "until": "2h"}))]
pub struct DrainNodeRequest {
    /// Its name.
    #[schema(min_length = 1, example = "gpu-2")]
    pub node: String,
    /// For people; without it: who asked.
    pub reason: Option<String>,
    /// When it is expected to be over: a moment (RFC 3339) or a length such as `2h`. Only shown; it takes an `undrain`
    /// to end it.
    #[schema(value_type = Option<String>, example = "2h")]
    pub until: Option<Until>,
    /// Cut the requests in flight instead of letting them finish.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
    /// Answer when everything has left the node.
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

/// What `nodes/undrain` takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"node": "gpu-2"}))]
pub struct UndrainNodeRequest {
    /// Its name.
    #[schema(min_length = 1, example = "gpu-2")]
    pub node: String,
}

/// What `nodes/tokens` takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"expires": "24h"}))]
pub struct NodeTokenRequest {
    /// How long nodes may join with it, `1s` to `365d`; a node that has joined stays.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", default = "24h", example = "24h")]
    pub expires: Option<Span>,
}

/// A machine of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeView {
    #[schema(example = "gpu-2")]
    pub node: String,
    /// `joined`, `silent`, `draining`, `released` (the pool gives it back), `ending` (its time ends soon, and what is in use
    /// moves), or `ends_others`: it ends engines that are not the pool's any more.
    #[schema(example = "joined")]
    pub state: &'static str,
    /// Since when it has been in this state; null: always.
    pub since: Option<String>,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// Names of its devices.
    #[schema(example = json!(["gpu-2/gpu0"]))]
    pub devices: Vec<String>,
    /// Replicas on it.
    #[schema(example = json!(["r7"]))]
    pub replicas: Vec<String>,
    /// The machine of the controller itself, with no network in between.
    pub is_controller: bool,
    /// The version of its program.
    pub version: Option<String>,
    /// Where its connection comes from.
    pub address: Option<String>,
    /// Where requests for its engines go.
    pub relay: Option<String>,
    /// Whether those are encrypted on the way.
    pub is_encrypted: Option<bool>,
    pub joined_at: Option<String>,
    /// When its lease ends; null: it has none, or that is not known.
    pub ends_at: Option<String>,
}

/// A node that is still to come (S2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RequestedNodeView {
    /// Its size, from `cluster.shapes`.
    #[schema(example = "a100x4")]
    pub shape: String,
    /// The model that it was requested for.
    #[schema(example = "llama-3-70b")]
    pub model: String,
    pub since: String,
    /// What the cluster says about it.
    #[schema(example = "lease 4711: other jobs are before it (Priority)")]
    pub reason: String,
}

impl RequestedNodeView {
    pub fn of(snapshot: &Snapshot) -> Option<RequestedNodeView> {
        let pending = snapshot.pool.node_demand.as_ref()?;
        let mut models = snapshot.pool.models.iter();
        let model = models.find(|it| it.model == pending.model);
        Some(RequestedNodeView {
            shape: pending.shape_name.clone(),
            model: model.map_or_else(String::new, |it| it.name.clone()),
            since: at(pending.since),
            reason: match &pending.joined {
                Some(_) => "it has joined; its devices are still to come".to_owned(),
                None => pending.reason.clone(),
            },
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    /// The node that the pool has requested from its cluster; null: none.
    pub requested: Option<RequestedNodeView>,
    pub tokens: Vec<NodeTokenView>,
}

/// A token with which nodes join, without its secret part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeTokenView {
    #[schema(example = "t2")]
    pub id: String,
    #[schema(example = "mp-Ab3xY9")]
    pub prefix: String,
    pub created_at: String,
    pub expires_at: String,
    /// When a node last joined with it.
    pub used_at: Option<String>,
    /// `valid`, `expired` or `revoked`.
    #[schema(example = "valid")]
    pub state: &'static str,
}

/// A new token, shown once.
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
pub struct DrainNodeAnswer {
    #[schema(example = "gpu-2")]
    pub node: String,
    /// Replicas that have left the node.
    pub left: Vec<String>,
    /// Replicas that are still on it.
    pub draining: Vec<String>,
    /// When requests that are still in flight are cut; absent where nothing drains.
    pub cut_at: Option<String>,
    #[schema(example = "o5")]
    pub order: String,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UndrainNodeAnswer {
    #[schema(example = "gpu-2")]
    pub node: String,
    #[schema(example = "o6")]
    pub order: String,
}

impl NodeView {
    /// Every node of the pool; the controller's own machine is the first.
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
                        .map(|it| snapshot.device_name(*it))
                        .collect(),
                    replicas: replicas_on(view.node, snapshot),
                    is_controller: view.node == NodeId(0),
                    version: facts.map(|it| it.version.clone()),
                    address: facts.map(|it| it.address.to_string()),
                    relay: facts.map(|it| it.relay.to_string()),
                    is_encrypted: facts.map(|it| it.is_encrypted),
                    joined_at: facts.map(|it| at(it.joined_at)),
                    ends_at: view.ends.map(at),
                }
            })
            .collect()
    }
}

/// The name of a node: its own, or that of the controller's machine.
pub fn name_of(node: NodeId, snapshot: &Snapshot) -> String {
    if let Some(facts) = snapshot.nodes.get(&node) {
        return facts.name.clone();
    }
    let view = snapshot.pool.nodes.iter().find(|it| it.node == node);
    if let Some(expected) = view.filter(|_| node != NodeId(0)) {
        return expected.name.clone();
    }
    let mut devices = snapshot.devices.values();
    let here = devices.find(|it| it.info.node == node);
    here.map_or_else(|| node.to_string(), |it| it.info.node_name.clone())
}

fn replicas_on(node: NodeId, snapshot: &Snapshot) -> Vec<String> {
    let replicas = snapshot.replicas_on(node).iter();
    replicas.map(ReplicaId::to_string).collect()
}

impl NodeTokenView {
    pub fn of(token: &NodeToken, now: Time) -> NodeTokenView {
        NodeTokenView {
            id: format!("t{}", token.id),
            prefix: token.prefix.clone(),
            created_at: at(token.created),
            expires_at: at(token.expires),
            used_at: token.used.map(at),
            state: match (token.revoked, token.expires <= now) {
                (true, _) => "revoked",
                (false, true) => "expired",
                (false, false) => "valid",
            },
        }
    }
}

impl DrainNodeAnswer {
    pub fn of(node: NodeId, removed: Removed<'_>) -> DrainNodeAnswer {
        let draining = replicas_on(node, removed.snapshot);
        DrainNodeAnswer {
            node: name_of(node, removed.snapshot),
            left: removed.left_names(),
            cut_at: (!draining.is_empty()).then(|| at(removed.cut_at)),
            draining,
            order: removed.order,
            took_ms: removed.took.0,
        }
    }
}
