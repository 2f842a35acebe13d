//! Failed requests, counted for their model if it is known.

use axum::response::{IntoResponse, Response};

use crate::state::App;
use api_types::error::Failure;
use edge::record;

/// A failure with the model's catalogue name, if known, for the metrics.
pub type Failed = (Option<String>, Failure);

pub fn into_response(app: &App, (model, failure): Failed) -> Response {
    mark(&failure);
    if let Some(model) = model {
        app.metrics.request(&model, failure.status().as_u16());
    }
    failure.into_response()
}

/// Records the failure in the request's trace.
pub(crate) fn mark(failure: &Failure) {
    let error = &failure.body.error;
    record::trace(|trace| trace.refused(error.code.unwrap_or(error.kind), &error.message));
}
