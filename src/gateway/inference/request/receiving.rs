//! The first step of every inference request: reads the body within its size limit.

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::inference::request::failed::Failed;
use crate::inference::request::surrogates::{may_have_halves, without_halves};
use crate::state::App;
use api_types::error::Failure;
use edge::record;

/// Reads a JSON body within the size limit, and replaces unpaired surrogates.
pub async fn read(app: &App, body: Body) -> Result<Bytes, Failed> {
    let body = read_form(app, body).await?;
    mended(app, body).await
}

/// Replaces unpaired surrogates in a body that has been read.
pub(crate) async fn mended(app: &App, body: Bytes) -> Result<Bytes, Failed> {
    if !may_have_halves(&body) {
        return Ok(body);
    }
    let (bytes, share) = (body.len(), record::share());
    let mend = move || Ok(share.charge(without_halves(body)));
    // Boxed because it is rare, and large within each request's future.
    let mended = Box::pin(app.reading.run(bytes, mend)).await;
    mended.map_err(|failure| (None, failure))
}

/// Reads a body of any format within the size limit.
pub(crate) async fn read_form(app: &App, body: Body) -> Result<Bytes, Failed> {
    let limit = app.config().server.body_limit.0.0;
    let body = read_body(body, limit).await;
    body.map_err(|failure| (None, failure))
}

async fn read_body(body: Body, limit: u64) -> Result<Bytes, Failure> {
    let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, limit_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(limit)),
        Err(error) => Err(Failure::invalid(
            None,
            format!("the body did not arrive completely: {error}"),
        )),
    }
}
