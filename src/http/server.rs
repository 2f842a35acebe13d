//! The listener and the router. Connections, and requests before they reach a route, are handled by `edge`.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::compat;
use crate::documents::documentation;
use crate::front::Front;
use crate::landing;
use crate::node_route;
use admin::audit_layer;
use admin::dashboard;
use api_types::error::{ErrorKind, Failure};
use api_types::paths::without_folders;
use api_types::schemas::models::{Health, Readiness};
use dialect::ollama;
use edge::listener::Listener;
use gateway::auth::scraper::{self, Scraper};
use gateway::inference::routes::{hot_models, listing};
use gateway::routes::user_routes;
use gateway::state::App;

/// A bound listener with its routes.
pub struct Server {
    listener: Listener,
    front: Front,
}

impl Server {
    pub fn new(listener: Listener, app: App) -> Server {
        let router = router(app.clone());
        let front = Front { app, router };
        Server { listener, front }
    }

    /// Serves until `stop` fires, then lets open connections finish their requests. The caller may drop the future to end this
    /// earlier.
    pub async fn serve(self, stop: CancellationToken) {
        edge::accept(self.listener, self.front, stop).await;
    }
}

fn router(app: App) -> Router {
    let base = app.base().to_owned();
    let audited = axum::middleware::from_fn_with_state(app.clone(), audit_layer::record);
    let based = user_routes()
        .merge(admin::routes().route_layer(audited))
        .merge(service_routes())
        .route("/node/connect", get(node_route::connect));
    let audited_again = axum::middleware::from_fn_with_state(app.clone(), audit_layer::record);
    let tools = admin::routes()
        .route_layer(audited_again)
        .merge(admin::service_routes());
    let (tools, described) = tools.split_for_parts();
    let mcp = mcp::router(&app, tools.with_state(app.clone()), &described);
    let (based, api) = compat::below_base(based, &app).split_for_parts();
    let (alias, _) = compat::at_root(user_routes(), &app).split_for_parts();
    let scrapers_alone = axum::middleware::from_extractor_with_state::<Scraper, App>(app.clone());
    Router::new()
        .nest(&base, based.merge(dashboard::routes()).merge(mcp))
        .merge(alias)
        .route("/", get(root))
        // Also at the root, for programs that do not know the base path.
        .route("/health", get(health))
        .route(
            "/metrics",
            get(scraper::metrics).route_layer(scrapers_alone),
        )
        .merge(documentation(api, &app))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

/// Loaded models, health, browser sessions, and votes; only below the base path.
pub(crate) fn service_routes() -> OpenApiRouter<App> {
    hot_models::routes()
        .routes(routes!(health))
        .routes(routes!(ready))
        .merge(admin::service_routes())
}

/// Check liveness
///
/// Everybody may call this.
#[utoipa::path(get, path = "/health", tag = "health", operation_id = "get_health", responses(
    (status = 200, description = "The process answers", body = Health, example = json!({"status": "ok"}))))]
async fn health() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Check readiness
///
/// Ready means that requests are accepted, loads make progress, and changes of administrators can be stored.
///
/// Everybody may call this.
#[utoipa::path(get, path = "/ready", tag = "health", operation_id = "get_readiness", responses(
    (status = 200, description = "Requests are served", body = Readiness, example = json!({"ready": true, "reason": null, "details": []})),
    (status = 503, description = "The service is shutting down, a load is stuck, or the state cannot be written", body = Readiness,
        example = json!({"ready": false, "reason": "the pool is shutting down", "details": []}))))]
async fn ready(State(app): State<App>) -> Response {
    let snapshot = app.handle.snapshot();
    let reason = if snapshot.pool.closing {
        Some("the pool is shutting down".to_owned())
    } else {
        // The process may respond although loading is stuck.
        let path = app.handle.load_path();
        // Public, so no model is named.
        let stuck = "the load path is stuck; see the server log";
        let stuck = path.stuck().map(|_| stuck.to_owned());
        stuck.or_else(|| {
            let trouble = app.handle.store().trouble()?;
            Some(without_folders(&format!(
                "the state cannot be written, so administrators' changes are refused; loaded models are served, and others may fail to load: {}",
                trouble.reason
            )))
        })
    };
    let status = if reason.is_none() {
        StatusCode::OK
    } else {
        ErrorKind::Unavailable.status()
    };
    (
        status,
        Json(json!({ "ready": reason.is_none(), "reason": reason, "details": details(&app) })),
    )
        .into_response()
}

/// Problems that do not affect readiness.
fn details(app: &App) -> Vec<String> {
    let mut details = broken_files(app);
    details.extend(match app.usages.refused() {
        0 => None,
        count => Some(format!(
            "the database refuses the usage of {count} keys and models, which is kept in memory only; see the server log"
        )),
    });
    details
}

/// The number of broken model files. Public, so none is named.
fn broken_files(app: &App) -> Vec<String> {
    let broken = app.handle.broken();
    let kept = broken.iter().filter(|file| file.serves_last_good).count();
    let base = app.base();
    let files = match broken.len() {
        0 => return Vec::new(),
        1 => "1 model file is broken".to_owned(),
        count => format!("{count} model files are broken"),
    };
    let instead = match kept {
        0 => "not served".to_owned(),
        kept if kept == broken.len() => "served by the last good version".to_owned(),
        kept => format!("not served, but {kept} by the last good version"),
    };
    vec![format!(
        "{files}, their models are {instead}; GET {base}/admin/models has the details"
    )]
}

/// The page for browsers. Programs get a 404, or Ollama's response.
async fn root(State(app): State<App>, request: Request<Body>) -> Response {
    let base = app.base();
    if landing::prefers_html(request.headers()) {
        return landing::page(base);
    }
    if app.config().compat.ollama {
        return compat::ollama::root();
    }
    let mut response = Failure::no_route("/", base).into_response();
    let accept = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, accept);
    response
}

async fn not_found(State(app): State<App>, request: Request<Body>) -> Failure {
    let (path, base) = (request.uri().path(), app.base());
    let mut failure = Failure::no_route(path, base);
    if let Some(near) = listing::without_v1(path, base) {
        let hint = format!("; did you mean {near}? The base URL of an OpenAI client ends with /v1");
        failure.body.error.message.push_str(&hint);
    }
    if !app.config().compat.ollama && ollama::is_route(path, base) {
        let message = &mut failure.body.error.message;
        message.push_str("; Ollama's API is switched on with compat.ollama in the configuration");
    }
    failure
}

async fn wrong_method(State(app): State<App>, request: Request<Body>) -> Response {
    let upgrade = request.headers().get(header::UPGRADE);
    if upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return no_websocket(request.uri().path());
    }
    let message = format!(
        "{} is not allowed for {}; the routes are listed at {}/docs",
        request.method(),
        request.uri().path(),
        app.base()
    );
    Failure::new(ErrorKind::MethodNotAllowed, "method_not_allowed", message).into_response()
}

/// Returns 426. Clients that prefer a WebSocket then fall back to HTTP immediately; other statuses make them retry.
fn no_websocket(path: &str) -> Response {
    let failure = Failure::new(
        ErrorKind::UpgradeRequired,
        "no_websocket",
        format!("{path} is not served over a WebSocket; send it as a POST request over HTTP"),
    );
    let mut response = failure.into_response();
    let protocol = HeaderValue::from_static("HTTP/1.1");
    response.headers_mut().insert(header::UPGRADE, protocol);
    let upgrade = HeaderValue::from_static("upgrade");
    response.headers_mut().insert(header::CONNECTION, upgrade);
    response
}
