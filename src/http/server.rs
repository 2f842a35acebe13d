//! Listeners, the routing table, and what every request gets: a request id, TCP without Nagle's
//! delay, a bounded head.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::Failure;
use super::quiet::quiet;
use super::state::App;
use super::{admin, gateway, hot_models, listing, metrics, openapi, passing};

/// A client that takes longer for its head is no client.
const HEAD_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Error)]
#[error(
    "cannot listen on {address}: {source}; choose another address with server.listen or MODEL_POOL__SERVER__LISTEN"
)]
pub struct ListenError {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

/// A bound listener with its routes.
pub struct Server {
    listener: TcpListener,
    router: Router,
}

impl Server {
    /// Takes the address; nothing is served before [`Server::serve`].
    pub async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
        TcpListener::bind(address)
            .await
            .map_err(|source| ListenError { address, source })
    }

    pub fn new(listener: TcpListener, app: App) -> Server {
        Server {
            listener,
            router: router(app),
        }
    }

    /// Serves until `stop` fires, then lets open connections finish what they have begun. How long
    /// that may take is for the caller, who may drop this.
    pub async fn serve(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: others must end before one can begin.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            // Small frames of a stream must not wait for the client's acknowledgements.
            let _ = socket.set_nodelay(true);
            let connection = connection(socket, peer, self.router.clone(), stop.clone());
            connections.spawn(quiet(connection));
        }
        while connections.join_next().await.is_some() {}
    }
}

/// How long a new connection may take to send its first request once the server stops.
const FIRST_REQUEST_WITHIN: std::time::Duration = std::time::Duration::from_millis(500);

async fn connection(
    socket: tokio::net::TcpStream,
    peer: SocketAddr,
    router: Router,
    stop: CancellationToken,
) {
    let begun = CancellationToken::new();
    let begins = begun.clone();
    let service = tower::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        begins.cancel();
        request.extensions_mut().insert(ConnectInfo(peer));
        tower::ServiceExt::oneshot(router.clone(), request.map(Body::new))
    });
    let mut builder =
        hyper_util::server::conn::auto::Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX);
    let serving = builder.serve_connection(TokioIo::new(socket), TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = stop.cancelled() => {}
    }
    // Of a connection that was accepted a moment ago the first request is on its way: hyper would close
    // it unread.
    tokio::select! {
        _ = serving.as_mut() => return,
        () = begun.cancelled() => {}
        () = tokio::time::sleep(FIRST_REQUEST_WITHIN) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

fn router(app: App) -> Router {
    let base = app.config.server.base_path.as_str().to_owned();
    let inference = || {
        OpenApiRouter::new()
            .routes(routes!(gateway::chat_completions))
            .routes(routes!(gateway::completions))
            .routes(routes!(passing::embeddings))
            .routes(routes!(passing::rerank))
            .routes(routes!(passing::score))
            .routes(routes!(listing::models))
            // `{*model}` takes ids with slashes; in the document it is the plain `{model}`.
            .route("/v1/models/{*model}", get(listing::model))
            .route("/v1/{*rest}", any(listing::not_served))
    };
    let (based, api) = OpenApiRouter::new()
        .merge(inference())
        .merge(hot_models::routes())
        .merge(admin::routes())
        .routes(routes!(health))
        .routes(routes!(ready))
        .split_for_parts();
    let mut api = api;
    api.merge(<OneModel as utoipa::OpenApi>::openapi());
    let document = openapi::document(api, &base);
    let docs = utoipa_swagger_ui::SwaggerUi::new(format!("{base}/docs"))
        .url(format!("{base}/openapi.json"), document);
    let (alias, _) = inference().split_for_parts();
    Router::new()
        .nest(&base, based)
        .merge(alias)
        .route("/metrics", get(metrics::render))
        .with_state(app.clone())
        .merge(docs)
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app, identify))
}

/// The route with a wildcard, which the router cannot describe by itself.
#[derive(utoipa::OpenApi)]
#[openapi(paths(listing::model))]
struct OneModel;

/// Liveness: the process answers.
#[utoipa::path(get, path = "/health", tag = "operation", responses((status = 200, description = "The process answers", example = json!({"status": "ok"}))))]
async fn health() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Readiness: requests are taken, and loads come to an end.
#[utoipa::path(get, path = "/ready", tag = "operation", responses(
    (status = 200, description = "Requests are taken", example = json!({"ready": true, "reason": null})),
    (status = 503, description = "Shutting down, or a load is stuck", example = json!({"ready": false, "reason": "the pool is shutting down"}))))]
async fn ready(State(app): State<App>) -> Response {
    let snapshot = app.handle.snapshot();
    let reason = if snapshot.pool.closing {
        Some("the pool is shutting down".to_owned())
    } else {
        // The process answers, and still nothing may be loaded any more.
        let path = app.handle.load_path();
        path.stuck()
            .map(|it| format!("the load path is stuck: {}", it.what))
    };
    let status = if reason.is_none() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(json!({ "ready": reason.is_none(), "reason": reason })),
    )
        .into_response()
}

async fn not_found(request: Request<Body>) -> Failure {
    let path: String = request.uri().path().chars().take(200).collect();
    Failure::not_found(format!(
        "there is nothing at {path}; the routes are listed at /llm/docs"
    ))
}

async fn wrong_method(request: Request<Body>) -> Failure {
    let message = format!(
        "{} does not go with {}; the routes are listed at /llm/docs",
        request.method(),
        request.uri().path()
    );
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request_error",
        "method_not_allowed",
        message,
    )
}

/// Gives every answer an `x-request-id`: the client's own if it sent a sane one.
async fn identify(State(app): State<App>, request: Request<Body>, next: Next) -> Response {
    let sent = request
        .headers()
        .get("x-request-id")
        .filter(|id| id.len() <= 128 && id.as_bytes().iter().all(|byte| byte.is_ascii_graphic()));
    let id = sent.cloned().unwrap_or_else(|| app.request_ids.next());
    let mut response = next.run(request).await;
    response.headers_mut().insert("x-request-id", id);
    response
}

/// Ids of requests: a random part of this start, and a count.
#[derive(Debug)]
pub(super) struct RequestIds {
    start: String,
    count: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        let start = uuid::Uuid::now_v7().simple().to_string();
        RequestIds {
            start: start[start.len() - 12..].to_owned(),
            count: AtomicU64::new(1),
        }
    }
}

impl RequestIds {
    fn next(&self) -> HeaderValue {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let text = format!("req-{}-{count}", self.start);
        HeaderValue::from_str(&text).expect("hexadecimal digits make a header")
    }
}

pub(super) type SharedIds = Arc<RequestIds>;
