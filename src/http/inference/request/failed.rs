//! A request that came to nothing: counted for its model, where that is known.

use axum::response::{IntoResponse, Response};

use crate::edge::record;
use crate::error::Failure;
use crate::state::App;

/// The catalogue's name of the model, once it is known, goes with a failure into the metrics.
pub(crate) type Failed = (Option<String>, Failure);

pub(crate) fn into_response(app: &App, (model, failure): Failed) -> Response {
    mark(&failure);
    if let Some(model) = model {
        app.metrics.request(&model, failure.status.as_u16());
    }
    failure.into_response()
}

/// The request's trace says why it came to nothing.
pub(crate) fn mark(failure: &Failure) {
    let error = &failure.body.error;
    record::trace(|trace| trace.refused(error.code.unwrap_or(error.kind), &error.message));
}
