//! Ollama's API (`compat.ollama`, docs/guides/ollama.md): its routes, mapped onto the gateway, the catalogue and current orders.

mod cards;
mod embed;
mod generate;
mod keep;
mod listing;
mod pull;
mod running;
mod show;
mod unload;

use std::sync::Arc;

use axum::Extension;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use gateway::state::App;

/// Ollama's response at `/`, by which programs recognize it.
const RUNNING: &str = "Ollama is running";

/// The routes, served with and without the base path.
pub(crate) fn routes(app: &App) -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(generate::chat))
        .routes(routes!(generate::generate))
        .routes(routes!(embed::embed))
        .routes(routes!(embed::embeddings))
        .routes(routes!(listing::tags))
        .routes(routes!(listing::version))
        .routes(routes!(show::show))
        .routes(routes!(running::ps))
        .routes(routes!(pull::pull))
        .routes(routes!(pull::push))
        .routes(routes!(pull::create))
        .routes(routes!(pull::copy))
        .routes(routes!(pull::delete))
        .route("/api/blobs/{*digest}", any(pull::blobs))
        .layer(Extension(Arc::clone(&app.cards)))
}

/// The response at `/` for programs.
pub(crate) fn root() -> Response {
    let mut response = RUNNING.into_response();
    let accept = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, accept);
    response
}
