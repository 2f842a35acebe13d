//! `GET /metrics`. The metrics name every model, so `auth.metrics` decides who may read them.

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;

use crate::auth::Reader;
use crate::auth::credential::bearer;
use crate::auth::cross_site;
use crate::groups_view;
use crate::state::App;
use api_types::error::Failure;
use config::MetricsAuth;
use edge::record;

/// A person or program that may read the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Scraper;

impl FromRequestParts<App> for Scraper {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Scraper, Failure> {
        let has_key = bearer(&parts.headers).is_some();
        match app.config().auth.metrics {
            MetricsAuth::Open => return Ok(Scraper),
            MetricsAuth::Loopback if !has_key && record::from_loopback() => {
                cross_site::check(parts, app)?;
                return Ok(Scraper);
            }
            MetricsAuth::Loopback | MetricsAuth::Admin => {}
        }
        if !has_key {
            return Err(Failure::unauthorized(
                "the metrics name every model, so an admin key is required (auth.metrics): send it as `Authorization: Bearer mp-…`; `admin-client keys create prometheus --role admin --routes /metrics` creates one for this route only",
            ));
        }
        // A key that is sent is checked even if none is required.
        Reader::from_request_parts(parts, app)
            .await
            .map(|_| Scraper)
    }
}

/// Serves the metrics in Prometheus's text format.
pub async fn metrics(State(app): State<App>) -> Response {
    let (groups, batches) = (groups_view::list(&app), app.batches.figures());
    let lists = (&*groups, &batches);
    let has_vllm_names = app.config().server.vllm_metrics;
    let (handle, traces) = (&app.handle, app.traces.as_deref());
    app.metrics
        .render(handle, &app.reading, traces, lists, has_vllm_names)
        .await
}
