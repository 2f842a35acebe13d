//! Who may read the metrics, which name every model: `auth.metrics` says so. It reads none itself.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::auth::{Admin, bearer, from_loopback};
use super::cross_site;
use super::error::Failure;
use super::state::App;
use config::MetricsAuth;

/// Somebody who may read the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Scraper;

impl FromRequestParts<App> for Scraper {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Scraper, Failure> {
        let has_key = bearer(&parts.headers).is_some();
        match app.config.auth.metrics {
            MetricsAuth::Open => return Ok(Scraper),
            MetricsAuth::Loopback if !has_key && from_loopback(parts) => {
                cross_site::check(parts, app)?;
                return Ok(Scraper);
            }
            MetricsAuth::Loopback | MetricsAuth::Admin => {}
        }
        if !has_key {
            return Err(Failure::unauthorized(
                "the metrics name every model, so that an admin key is needed here (auth.metrics): send it as `Authorization: Bearer mp-…`; `admin-client keys create prometheus --role admin --routes /metrics` makes one that is for nothing else",
            ));
        }
        // A key that is sent counts, also where none would be needed.
        Admin::from_request_parts(parts, app).await.map(|_| Scraper)
    }
}
