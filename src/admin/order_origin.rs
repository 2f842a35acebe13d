//! The origin of an order that MCP passes on to an admin route.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use controller::OrderTerms;
use gateway::state::App;
use pool::{KeyId, OrderEffect, Priority};

/// The name of the origin in the audit log.
pub(crate) const MCP: &str = "mcp";

/// Travels in the extensions of a request, which no client can set. Other requests have the default.
#[derive(Clone, Debug, Default)]
pub struct OrderOrigin {
    pub by_mcp: bool,
    /// The effect in the plan that the order carries out.
    pub planned: Option<OrderEffect>,
}

impl OrderOrigin {
    pub(crate) fn terms(self, by: KeyId, priority_max: Option<Priority>) -> OrderTerms {
        OrderTerms {
            by: Some(by),
            priority_max,
            planned: self.planned,
            by_mcp: self.by_mcp,
        }
    }
}

impl FromRequestParts<App> for OrderOrigin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<OrderOrigin, Infallible> {
        let origin = parts.extensions.get::<OrderOrigin>();
        Ok(origin.cloned().unwrap_or_default())
    }
}
