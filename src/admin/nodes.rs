//! Nodes: list them, manage tokens for joining, and take nodes out of service (N5). The pool decides what leaves a node, and when.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use utoipa::{IntoParams, ToSchema};

use super::out_of_service::{Order, end, put_back, reason, remove, until};
use api_types::dto::{
    DrainNodeResponse, NewNodeToken, NodeList, NodeShapeView, NodeTokenView, NodeUseView, NodeView,
    Removed, RequestedNodeView, RevokedNodeToken, UndrainNodeResponse, Until, node_name,
};
use api_types::error::{ErrorKind, Failure};
use controller::Snapshot;
use gateway::auth::{Admin, Reader};
use gateway::fields::{Body, Fields, Nothing, OrderFields, Params, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::{Command, NodeId, Span};
use store::{StoreError, generate_key};

const EXPIRES: Span = Span::from_secs(24 * 3600);
const EXPIRES_MAX: Span = Span::from_secs(365 * 24 * 3600);

/// Request to drain a node.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"node": "gpu-2", "reason": "new kernel", "until": "2h"}))]
pub(crate) struct DrainNodeRequest {
    /// Name of the node.
    #[schema(min_length = 1, example = "gpu-2")]
    pub node: String,
    /// Reason shown to users. Defaults to the name of the caller.
    pub reason: Option<String>,
    /// Expected end: a time (RFC 3339) or a duration such as `2h`. Informational; the drain ends only with `undrain`.
    #[schema(value_type = Option<String>, example = "2h")]
    pub until: Option<Until>,
    /// Cuts requests in flight instead of letting them finish.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
    /// Responds once everything has left the node.
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

impl Strict for DrainNodeRequest {
    fn read(fields: &mut Fields) -> Result<DrainNodeRequest, Failure> {
        Ok(DrainNodeRequest {
            reason: reason(fields)?,
            node: fields.needed_text("node", "\"gpu-2\"; GET /admin/nodes lists them")?,
            until: until(fields)?,
            now: fields.flag("now")?.unwrap_or(false),
            wait: fields.flag("wait")?.unwrap_or(true),
        })
    }
}

/// Request to return a node to service.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"node": "gpu-2"}))]
pub(crate) struct UndrainNodeRequest {
    /// Name of the node.
    #[schema(min_length = 1, example = "gpu-2")]
    pub node: String,
}

impl Strict for UndrainNodeRequest {
    fn read(fields: &mut Fields) -> Result<UndrainNodeRequest, Failure> {
        let node = fields.needed_text("node", "\"gpu-2\"; GET /admin/nodes lists them")?;
        Ok(UndrainNodeRequest { node })
    }
}

/// Request to create a join token.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"expires": "24h"}))]
pub(crate) struct NodeTokenRequest {
    /// Time during which nodes may join with the token, `1s` to `365d`. Nodes that have joined stay.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", default = "24h", example = "24h")]
    pub expires: Option<Span>,
}

impl Strict for NodeTokenRequest {
    fn read(fields: &mut Fields) -> Result<NodeTokenRequest, Failure> {
        let expires = fields.length("expires")?;
        if expires.is_some_and(|time| time > EXPIRES_MAX) {
            return Err(Failure::invalid(
                Some("expires".to_owned()),
                "expires: allowed: at most 365d",
            ));
        }
        Ok(NodeTokenRequest { expires })
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct NodeTokenQuery {
    /// The token's id, as in the list.
    #[param(value_type = String, pattern = "^t[0-9]{1,9}$", example = "t2")]
    id: u64,
}

impl Strict for NodeTokenQuery {
    fn read(fields: &mut Fields) -> Result<NodeTokenQuery, Failure> {
        let text = fields.needed_text("id", "?id=t2")?;
        let id = text
            .strip_prefix('t')
            .and_then(|digits| digits.parse().ok());
        let id = id.ok_or_else(|| {
            Failure::invalid(
                Some("id".to_owned()),
                "id: is not the id of a token; ids look like t2",
            )
        })?;
        Ok(NodeTokenQuery { id })
    }
}

/// List nodes
///
/// The machines of the pool, including the controller's own, and the tokens with which others may join.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/nodes", tag = "admin: pool", operation_id = "list_nodes", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The nodes", body = NodeList, example = json!({"nodes": [{
            "node": "gpu-2", "state": "joined", "since": "2026-01-31T20:15:00.000Z", "reason": null,
            "devices": ["gpu-2/gpu0"], "replicas": ["r7"], "is_controller": false, "version": "0.1.0",
            "address": "10.0.0.2:51544", "relay": "10.0.0.2:7000", "is_encrypted": true,
            "joined_at": "2026-01-31T20:15:00.000Z", "ends_at": null, "shape": null, "cost_per_hour": null}], "requested": [], "shapes": [], "spent": [],
            "tokens": [{"id": "t2", "prefix": "mp-Ab3xY9", "created_at": "2026-01-31T20:00:00.000Z",
            "expires_at": "2026-02-01T20:00:00.000Z", "used_at": "2026-01-31T20:15:00.000Z", "state": "valid"}]})),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Reader,
    _: Params<Nothing>,
) -> Result<Json<NodeList>, Failure> {
    let tokens = app.handle.store().node_tokens().await.map_err(unread)?;
    let now = app.handle.clock().wall();
    let snapshot = app.handle.snapshot();
    Ok(Json(NodeList {
        nodes: NodeView::all(&snapshot),
        requested: RequestedNodeView::all(&snapshot),
        shapes: NodeShapeView::all(&snapshot),
        spent: NodeUseView::all(&snapshot),
        tokens: tokens
            .iter()
            .map(|token| NodeTokenView::from_record(token, now))
            .collect(),
    }))
}

/// Create a token for nodes
///
/// `model-pool node` uses it to join until it expires. The token is only shown in this response. A node that has joined can return
/// without it.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/nodes/tokens", tag = "admin: pool", operation_id = "create_node_token", security(("admin_key" = [])),
    request_body(content = NodeTokenRequest, example = json!({"expires": "24h"})),
    responses(
        (status = 200, description = "The token, shown once", body = NewNodeToken,
            example = json!({"id": "t2", "token": "mp-…", "expires_at": "2026-02-01T20:00:00.000Z"})),
        AdminErrors,
    )
)]
pub(crate) async fn create_token(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<NodeTokenRequest>,
) -> Result<Json<NewNodeToken>, Failure> {
    let now = app.handle.clock().wall();
    let expires = now + request.expires.unwrap_or(EXPIRES);
    let text = generate_key().map_err(unread)?;
    let store = app.handle.store();
    let token = store
        .add_node_token(&text, now, expires)
        .await
        .map_err(unread)?;
    let view = NodeTokenView::from_record(&token, now);
    tracing::info!(admin = admin.name, token = view.id, "node token created");
    Ok(Json(NewNodeToken {
        id: view.id,
        token: text.reveal().to_owned(),
        expires_at: view.expires_at,
    }))
}

/// Revoke a token for nodes
///
/// No more nodes can join with it. Nodes that have joined with it stay.
///
/// Administrators only.
#[utoipa::path(
    delete, path = "/admin/nodes/tokens", tag = "admin: pool", operation_id = "revoke_node_token", security(("admin_key" = [])),
    params(NodeTokenQuery),
    responses(
        (status = 200, description = "It is void", body = RevokedNodeToken, example = json!({"revoked": "t2"})),
        AdminErrors,
    )
)]
pub(crate) async fn revoke_token(
    State(app): State<App>,
    admin: Admin,
    Params(query): Params<NodeTokenQuery>,
) -> Result<Json<RevokedNodeToken>, Failure> {
    let revoked = format!("t{}", query.id);
    let done = app
        .handle
        .store()
        .revoke_node_token(query.id)
        .await
        .map_err(unread)?;
    if !done {
        let message = format!(
            "there is no token {revoked}, or it is revoked; `admin-client nodes list` shows all tokens"
        );
        return Err(not_found("token_not_found", "id", message));
    }
    tracing::info!(admin = admin.name, token = revoked, "node token revoked");
    Ok(Json(RevokedNodeToken { revoked }))
}

/// Take a node out of service
///
/// The pool places nothing new on the node, and drains and unloads its replicas (N5). A drain survives restarts and ends with
/// undrain. The response is sent when the node is empty, or immediately with `wait: false`.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/nodes/drain", tag = "admin: pool", operation_id = "drain_node", security(("admin_key" = [])),
    request_body(content = DrainNodeRequest, example = json!({"node": "gpu-2", "reason": "new kernel", "until": "2h"})),
    responses(
        (status = 200, description = "Everything has left the node", body = DrainNodeResponse, example = json!({
            "node": "gpu-2", "left": ["r7"], "draining": [], "cut_at": null, "order": "o5", "took_ms": 8200})),
        (status = 202, description = "Nothing new goes there, and what it holds leaves (`wait` is false)",
            body = DrainNodeResponse, example = json!({
            "node": "gpu-2", "left": [], "draining": ["r7"], "cut_at": "2026-01-31T20:25:00.000Z", "order": "o5",
            "took_ms": 3})),
        AdminErrors,
    )
)]
pub(crate) async fn drain(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<DrainNodeRequest>,
) -> Result<Response, Failure> {
    let node = find(&app.handle.snapshot(), &request.node)?;
    let until = end(request.until, app.handle.clock().now())?;
    let reason = request
        .reason
        .unwrap_or_else(|| format!("drained by {}", admin.name));
    let order = Order {
        what: "drain of a node",
        name: &request.node,
        command: Command::DrainNode {
            node,
            reason,
            until,
            now: request.now,
        },
    };
    let response = |removed: Removed<'_>| DrainNodeResponse::new(node, removed);
    remove(&app, admin, order, (request.now, request.wait), response).await
}

/// Put a node back into service
///
/// Ends a drain.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/nodes/undrain", tag = "admin: pool", operation_id = "undrain_node", security(("admin_key" = [])),
    request_body(content = UndrainNodeRequest, example = json!({"node": "gpu-2"})),
    responses(
        (status = 200, description = "The node serves again", body = UndrainNodeResponse,
            example = json!({"node": "gpu-2", "order": "o6"})),
        AdminErrors,
    )
)]
pub(crate) async fn undrain(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<UndrainNodeRequest>,
) -> Result<Json<UndrainNodeResponse>, Failure> {
    let node = find(&app.handle.snapshot(), &request.node)?;
    let name = request.node;
    let order = Order {
        what: "undrain of a node",
        name: &name,
        command: Command::UndrainNode { node },
    };
    let order = put_back(&app, admin, order).await?;
    Ok(Json(UndrainNodeResponse { node: name, order }))
}

/// Finds a node by name. Otherwise returns a 404 that lists the nodes.
fn find(snapshot: &Snapshot, name: &str) -> Result<NodeId, Failure> {
    let all = snapshot.pool.nodes.iter().map(|node| node.node);
    let named: Vec<(NodeId, String)> = all.map(|node| (node, node_name(node, snapshot))).collect();
    let found = named.iter().find(|(_, known)| known == name);
    found.map(|(node, _)| *node).ok_or_else(|| {
        let shown: String = name.chars().take(60).collect();
        let list: Vec<&str> = named.iter().map(|(_, name)| name.as_str()).collect();
        let message = format!("no node is {shown:?}; there are: {}", list.join(", "));
        not_found("node_not_found", "node", message)
    })
}

fn not_found(code: &'static str, param: &str, message: String) -> Failure {
    let mut failure = Failure::new(ErrorKind::NotFound, code, message);
    failure.body.error.param = Some(param.to_owned());
    failure
}

fn unread(fault: StoreError) -> Failure {
    tracing::warn!(%fault, "tokens of nodes cannot be read or written");
    Failure::new(
        ErrorKind::Unavailable,
        "state_unavailable",
        "the state cannot be read or written; see the server log".to_owned(),
    )
}
