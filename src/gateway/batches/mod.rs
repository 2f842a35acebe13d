//! Files and batches of requests (B4 to B6): uploads, the routes for both, and the runner, which executes requests in the room that
//! interactive requests leave.
//!
//! ```text
//!  upload ─▶ request file ─▶ batch ─▶ runner ─▶ room at a gate ─▶ the request's own route
//!                              ▲         │
//!                          store: state  └─▶ results, at most one per request, on disk within a second
//! ```

mod bucket;
mod content;
mod expiry;
mod file_routes;
mod finish;
mod job;
mod job_routes;
mod line;
mod message_results;
mod message_routes;
mod message_upload;
mod opening;
mod outlook;
mod owner;
mod progress;
mod result_files;
mod runner;
mod speed;
mod starting;
mod transfers;
mod upload;
mod upload_refusal;

use axum::http::Method;
use axum::http::request::Parts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::App;
pub use runner::run;

/// The routes for files and batches.
pub(crate) fn batch_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(file_routes::create, file_routes::list))
        .routes(routes!(file_routes::get, file_routes::delete))
        .routes(routes!(file_routes::content))
        .routes(routes!(job_routes::create, job_routes::list))
        .routes(routes!(job_routes::get))
        .routes(routes!(job_routes::cancel))
        .routes(routes!(message_routes::create, message_routes::list))
        .routes(routes!(message_routes::get, message_routes::delete))
        .routes(routes!(message_routes::cancel))
        .routes(routes!(message_results::results))
}

/// Returns true for uploads, whose bodies are read while they arrive.
pub fn is_upload(parts: &Parts, base: &str) -> bool {
    let path = parts.uri.path();
    let path = path.strip_prefix(base).unwrap_or(path);
    parts.method == Method::POST && matches!(path, "/v1/files" | "/v1/messages/batches")
}
