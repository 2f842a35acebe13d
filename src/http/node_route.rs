//! The route by which a node connects: its token is looked at here, and then the connection is the controller's. Wrong
//! tokens cost little and are answered only so often.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use crate::auth::caller::bearer;
use crate::auth::secret_file::secret_in;
use crate::error::Failure;
use crate::state::App;
use node_link::UPGRADE;
use pool::{Span, Time};
use store::{NoPass, NodePass, hash_key};

/// Refusals within the span, of all clients together, after which every request is refused unchecked until it is over.
const REFUSALS_MAX: u32 = 20;
const REFUSALS_WITHIN: Span = Span::from_secs(10);

/// Connections of nodes, and how often a token was wrong of late.
#[derive(Debug, Default)]
pub struct NodeRoute {
    refusals: Mutex<Refusals>,
    connections: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Refusals {
    since: Time,
    count: u32,
}

impl NodeRoute {
    fn is_over(&self, now: Time) -> bool {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        now.since(refusals.since) >= REFUSALS_WITHIN || refusals.count < REFUSALS_MAX
    }

    /// Whether it is worth a line of the log.
    fn refused(&self, now: Time) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(refusals.since) >= REFUSALS_WITHIN {
            *refusals = Refusals {
                since: now,
                count: 0,
            };
        }
        refusals.count += 1;
        refusals.count == 1
    }
}

/// Nodes connect here; the protocol is not HTTP.
pub async fn connect(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request<Body>,
) -> Response {
    let now = app.handle.clock().now();
    let wants = request.headers().get(header::UPGRADE);
    if wants.is_none_or(|it| it.as_bytes() != UPGRADE.as_bytes()) {
        let message = "only `model-pool node` connects here, with an upgrade of HTTP/1.1";
        return failure(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message);
    }
    if !app.nodes.is_over(now) {
        let message = "too many nodes came with a wrong token; try again in some seconds";
        return failure(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_exceeded",
            message,
        );
    }
    let text = bearer(request.headers()).unwrap_or_default();
    let pass = match app.handle.store().node_pass(text, now).await {
        Ok(Ok(pass)) => pass,
        Ok(Err(NoPass::Unknown)) if is_in_file(&app, text) => NodePass::Token,
        Ok(Err(problem)) => {
            let how = "make another with `admin-client nodes token`";
            let message = match problem {
                NoPass::Unknown => format!("the token is not one of this controller's; {how}"),
                NoPass::Revoked => format!("the token was revoked; {how}"),
                NoPass::Expired { at } => {
                    format!("the token expired {} ago; {how}", now.since(at))
                }
            };
            if app.nodes.refused(now) {
                tracing::warn!(%peer, "a node is refused: {message}");
            }
            return failure(StatusCode::UNAUTHORIZED, "invalid_token", &message);
        }
        Err(fault) => {
            tracing::warn!(%fault, "a node cannot join");
            let message = "the state cannot be read or written; the service's log says why";
            return failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "state_unavailable",
                message,
            );
        }
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

/// Whether it is the token in `node.join_token_file`. The file is read each time: who takes it away there locks it out.
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

fn failure(status: StatusCode, code: &'static str, message: &str) -> Response {
    Failure::new(status, "invalid_request_error", code, message.to_owned()).into_response()
}
