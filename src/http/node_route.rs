//! The route by which nodes connect: checks the node's token, then hands the connection to the controller. A valid token is
//! accepted regardless of earlier wrong ones; for an address with many wrong ones, tokens are checked one at a time.

use std::net::SocketAddr;
use std::sync::PoisonError;

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;

use api_types::error::{ErrorKind, Failure};
use controller::NodePeer;
use edge::record;
use gateway::auth::credential::{bearer, place};
use gateway::credentials::failures::WRONG_NODE_TOKENS;
use gateway::credentials::secret_file::secret_in;
use gateway::state::App;
use node_link::UPGRADE;
use store::{NodePass, TokenRefusal, hash_key};

/// Accepts a node's connection. The protocol is not HTTP.
pub async fn connect(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request<Body>,
) -> Response {
    let now = app.handle.clock().now();
    let wants = request.headers().get(header::UPGRADE);
    if wants.is_none_or(|value| value.as_bytes() != UPGRADE.as_bytes()) {
        let message = "only `model-pool node` connects here, with an upgrade of HTTP/1.1";
        return failure(ErrorKind::UpgradeRequired, "upgrade_required", message);
    }
    let place = place();
    let is_suspect = app.nodes.wrong_tokens.over_for(&place, now).is_some();
    let turn = match is_suspect.then(|| app.nodes.suspect.acquire()) {
        Some(turn) => turn.await.ok(),
        None => None,
    };
    let text = bearer(request.headers()).unwrap_or_default();
    let wall = app.handle.clock().wall();
    let pass = app.handle.store().node_pass(text, wall).await;
    drop(turn);
    let pass = match pass {
        Ok(Ok(pass)) => pass,
        Ok(Err(TokenRefusal::Unknown)) if is_in_file(&app, text) => NodePass::Token,
        Ok(Err(problem)) => {
            let how = "create another with `admin-client nodes token`";
            let message = match problem {
                TokenRefusal::Unknown => format!("this controller does not know the token; {how}"),
                TokenRefusal::Revoked => format!("the token was revoked; {how}"),
                TokenRefusal::Expired { at } => {
                    format!("the token expired {} ago; {how}", wall.since(at))
                }
                TokenRefusal::Early { created } => format!(
                    "the token was created {} after the time that the controller's clock shows; correct the clock, or {how}",
                    created.since(wall)
                ),
            };
            if app.nodes.may_log(now) {
                tracing::warn!(%peer, "refused a node: {message}");
            }
            if let Some(left) = app.nodes.wrong_tokens.count(&place, now).over_for {
                let limit = WRONG_NODE_TOKENS;
                return Failure::new(
                    ErrorKind::TooMany,
                    "rate_limit_exceeded",
                    format!(
                        "{message}; more than {} wrong tokens came from {place} within {}",
                        limit.count, limit.within
                    ),
                )
                .again_in(left)
                .into_response();
            }
            return failure(ErrorKind::Unauthorized, "invalid_token", &message);
        }
        Err(fault) => {
            tracing::warn!(%fault, "a node cannot join");
            let message = "the state cannot be read or written; see the server log";
            return failure(ErrorKind::Unavailable, "state_unavailable", message);
        }
    };
    let client = record::client();
    let peer = NodePeer {
        address: SocketAddr::new(
            client.map_or(peer.ip(), |client| client.address),
            peer.port(),
        ),
        is_hidden: client.is_none_or(|client| client.is_hidden),
    };
    let upgrading = hyper::upgrade::on(&mut request);
    let handle = app.handle.clone();
    let ending = app.ending.clone();
    let connection = async move {
        let Ok(upgraded) = upgrading.await else {
            return;
        };
        tokio::select! {
            () = handle.serve_node(TokioIo::new(upgraded), peer, pass) => {}
            () = ending.cancelled() => {}
        }
    };
    let mut connections = app
        .nodes
        .connections
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    while connections.try_join_next().is_some() {}
    connections.spawn(connection);
    drop(connections);
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(UPGRADE));
    response
}

/// Returns true if this is the token in `node.join_token_file`. The file is read each time, so removing the token from it takes
/// effect immediately.
fn is_in_file(app: &App, text: &str) -> bool {
    let config = app.config();
    let Some(file) = &config.node.join_token_file else {
        return false;
    };
    match secret_in(file) {
        Ok(token) => hash_key(token.reveal()) == hash_key(text),
        Err(error) => {
            tracing::warn!("node.join_token_file: {error}");
            false
        }
    }
}

fn failure(kind: ErrorKind, code: &'static str, message: &str) -> Response {
    Failure::new(kind, code, message.to_owned()).into_response()
}
