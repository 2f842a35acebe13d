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

/// Records the failure in the request's trace, and its code for the metrics.
pub(crate) fn mark(failure: &Failure) {
    let code = note(failure);
    record::trace(|trace| trace.refused(code, &failure.body.error.message));
}

/// Records the code of the failure for the metrics.
pub(crate) fn note(failure: &Failure) -> &'static str {
    let error = &failure.body.error;
    let code = error.code.unwrap_or(error.kind);
    record::note(|facts| facts.error = Some(code));
    code
}
