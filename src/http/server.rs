//! The listener and the routing table. What happens to a connection, and to a request
//! before its route, is the `edge`'s.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::json;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::admin;
use crate::auth::audit;
use crate::auth::scraper::{self, Scraper};
use crate::compat;
use crate::edge::LOOK_EVERY;
use crate::error::Failure;
use crate::front::Front;
use crate::inference::routes::{
    audio, completions, embeddings, hot_models, listing, messages, responses, tokens, unary_routes,
};
use crate::inference::upstream::quiet::quiet;
use crate::landing;
use crate::openapi;
use crate::paths::without_folders;
use crate::state::App;
use config::ServerSection;

#[derive(Debug, Error)]
#[error(
    "cannot listen on {address}: {source}; choose another address with server.listen or MODEL_POOL__SERVER__LISTEN"
)]
pub struct ListenError {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

/// Connections that may wait to be accepted; the system caps it (`net.core.somaxconn`, 4,096 on Linux).
const BACKLOG: u32 = 4096;

/// A bound listener with its routes.
pub struct Server {
    listener: TcpListener,
    front: Front,
}

impl Server {
    /// Takes the address; nothing is served before [`Server::serve`].
    pub async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
        listener_at(address).map_err(|source| ListenError { address, source })
    }

    pub fn new(listener: TcpListener, app: App) -> Server {
        let router = router(app.clone());
        // Laid over the whole table, fallbacks too; the edge sends nothing but inference there.
        let for_pages = cors(&app.config.server).map(|cors| router.clone().layer(cors));
        let front = Front {
            app,
            router,
            for_pages,
        };
        Server { listener, front }
    }

    /// Serves until `stop` fires, then lets open connections finish what they have begun. How long
    /// that may take is for the caller, who may drop this.
    pub async fn serve(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let edge = Arc::clone(&self.front.app.edge);
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                _ = looks.tick(), if edge.has_tls() => {
                    let edge = Arc::clone(&edge);
                    let _ = tokio::task::spawn_blocking(move || edge.look_again()).await;
                    continue;
                }
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
            if let Some(connection) = self.front.connection(socket, peer, stop.clone()) {
                connections.spawn(quiet(connection));
            }
        }
        // New clients are refused from now on, and not left waiting for an answer.
        drop(self.listener);
        while connections.join_next().await.is_some() {}
    }
}

/// A listener whose queue holds a burst of clients. The standard library asks for 128 connections; those beyond try
/// again after a second.
fn listener_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As the standard library does: an address may be taken again at once after a restart.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn router(app: App) -> Router {
    let base = app.config.server.base_path.as_str().to_owned();
    let inference = || {
        OpenApiRouter::new()
            .routes(routes!(completions::chat_completions))
            .routes(routes!(completions::completions))
            .routes(routes!(messages::create))
            .routes(routes!(responses::create))
            .routes(routes!(responses::get, responses::delete))
            .routes(routes!(messages::count_tokens))
            .routes(routes!(tokens::tokenize))
            .routes(routes!(tokens::detokenize))
            .routes(routes!(audio::transcriptions))
            .routes(routes!(audio::translations))
            .routes(routes!(audio::speech))
            .routes(routes!(embeddings::embeddings))
            .routes(routes!(unary_routes::rerank))
            .routes(routes!(unary_routes::score))
            .routes(routes!(listing::models))
            // `{*model}` takes ids with slashes; in the document it is the plain `{model}`.
            .route("/v1/models/{*model}", get(listing::model))
            .route("/v1/{*rest}", any(listing::not_served))
    };
    let (based, api) = OpenApiRouter::new()
        .merge(inference())
        .merge(hot_models::routes())
        .merge(
            admin::routes().route_layer(axum::middleware::from_fn_with_state(
                app.clone(),
                audit::record,
            )),
        )
        .routes(routes!(health))
        .routes(routes!(ready))
        .split_for_parts();
    let mut api = api;
    api.merge(<OneModel as utoipa::OpenApi>::openapi());
    let document = openapi::document(api, &base);
    let docs = utoipa_swagger_ui::SwaggerUi::new(format!("{base}/docs"))
        .url(format!("{base}/openapi.json"), document);
    let (alias, _) = inference().split_for_parts();
    let scrapers_alone = axum::middleware::from_extractor_with_state::<Scraper, App>(app.clone());
    let based = compat::below_base(based, &app);
    let alias = compat::beside_openai(alias, &app);
    Router::new()
        .nest(&base, based)
        .merge(alias)
        .route("/", get(root))
        .route(
            "/metrics",
            get(scraper::metrics).route_layer(scrapers_alone),
        )
        .merge(docs)
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

/// Browsers may call from the configured origins. They send no cookies, and whoever may call needs a
/// key as anybody does.
fn cors(server: &ServerSection) -> Option<CorsLayer> {
    let section = server.cors.as_ref()?;
    let is_any = section.origins.iter().any(|origin| origin == "*");
    let listed = section.origins.iter();
    let listed = listed.filter_map(|origin| HeaderValue::from_str(origin).ok());
    let origins = match is_any {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(listed),
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        // OpenAI's clients send a dozen headers of their own.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
        .max_age(section.max_age.duration());
    Some(layer)
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

/// Readiness: requests are taken, loads come to an end, and what administrators ask for can be kept.
#[utoipa::path(get, path = "/ready", tag = "operation", responses(
    (status = 200, description = "Requests are taken", example = json!({"ready": true, "reason": null})),
    (status = 503, description = "Shutting down, a load is stuck, or the state cannot be written", example = json!({"ready": false, "reason": "the pool is shutting down"}))))]
async fn ready(State(app): State<App>) -> Response {
    let snapshot = app.handle.snapshot();
    let reason = if snapshot.pool.closing {
        Some("the pool is shutting down".to_owned())
    } else {
        // The process answers, and still nothing may be loaded any more.
        let path = app.handle.load_path();
        // Anybody may ask, so that no model is named.
        let stuck = "the load path is stuck; the service's log says on what";
        let stuck = path.stuck().map(|_| stuck.to_owned());
        stuck.or_else(|| {
            let trouble = app.handle.store().trouble()?;
            Some(without_folders(&format!(
                "the state cannot be written, so administrators' changes are refused; models are served: {}",
                trouble.reason
            )))
        })
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

/// A page for browsers. Programs find no route here.
async fn root(State(app): State<App>, request: Request<Body>) -> Response {
    let base = app.config.server.base_path.as_str();
    if landing::prefers_html(request.headers()) {
        return landing::page(base);
    }
    let mut answer = Failure::no_route("/", base).into_response();
    let accept = HeaderValue::from_static("accept");
    answer.headers_mut().insert(header::VARY, accept);
    answer
}

async fn not_found(State(app): State<App>, request: Request<Body>) -> Failure {
    Failure::no_route(request.uri().path(), app.config.server.base_path.as_str())
}

async fn wrong_method(State(app): State<App>, request: Request<Body>) -> Failure {
    let message = format!(
        "{} does not go with {}; the routes are listed at {}/docs",
        request.method(),
        request.uri().path(),
        app.config.server.base_path.as_str()
    );
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request_error",
        "method_not_allowed",
        message,
    )
}
