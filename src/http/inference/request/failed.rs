//! A request that came to nothing: counted for its model, where that is known.

use axum::response::{IntoResponse, Response};

use crate::error::Failure;
use crate::state::App;

/// The catalogue's name of the model, once it is known, goes with a failure into the metrics.
pub(crate) type Failed = (Option<String>, Failure);

pub(crate) fn into_response(app: &App, (model, failure): Failed) -> Response {
    if let Some(model) = model {
        app.metrics.request(&model, failure.status.as_u16());
    }
    failure.into_response()
}
