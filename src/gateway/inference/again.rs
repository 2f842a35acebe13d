//! Retries a chat or completion, once, if its engine ended before the first token. This is safe because the client has received
//! nothing yet, and costs nothing because the engine is local. Without a retry, the client receives the cause and a time to try
//! again.

use std::sync::Arc;

use axum::body::Bytes;
use axum::response::Response;

use crate::inference::admission;
use crate::inference::admission::RequestContext;
use crate::inference::call::Call;
use crate::inference::request::failed::Failed;
use crate::inference::seated::{Seated, seat};
use crate::state::App;
use crate::upstream::remote;
use api_types::error::{ENGINE_CRASHED, Failure};
use controller::Lease;
use pool::Span;

/// Largest body kept for a retry. Longer ones are released once the engine has them.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// `Retry-After` if the load time is unknown.
const RETRY: Span = Span::from_secs(10);

/// The body to keep for a retry, or `None` if the request cannot be retried.
pub(crate) fn kept(body: &Bytes, lease: &Lease) -> Option<Bytes> {
    let keeps = body.len() <= KEPT_BYTES_MAX && remote::of_lease(lease).is_none();
    keeps.then(|| body.clone())
}

pub async fn respond(
    app: &App,
    context: &RequestContext,
    mut call: Call,
    lease: Lease,
) -> Result<Response, Failed> {
    call.kept = kept(&call.request.body, &lease);
    match call.respond(context, lease).await {
        Ok(response) => Ok(response),
        Err(failure) if failure.body.error.code == Some(ENGINE_CRASHED) => {
            // Boxed because it is rare, and large within each request's future.
            Box::pin(place_again(app, context, call, failure)).await
        }
        Err(failure) => Err((Some(call.request.model.to_string()), failure)),
    }
}

/// Takes another seat for a request whose engine ended, and sends it again. `failure` is the error of the first attempt.
async fn place_again(
    app: &App,
    context: &RequestContext,
    mut call: Call,
    failure: Failure,
) -> Result<Response, Failed> {
    let model = Arc::clone(&call.request.model);
    let fail = |failure: Failure| (Some(model.to_string()), failure);
    let route = Arc::clone(&call.request.route);
    let sight = call.sight.clone();
    let Some(body) = call.kept.take() else {
        let when = admission::not_ready(app, &sight, &route).await;
        return Err(fail(failure.again_in(when.retry().unwrap_or(RETRY))));
    };
    tracing::info!(
        model = &*model,
        "engine ended before its response began; retrying the request"
    );
    call.request.body = body;
    match seat(app, context, call.request, call.admitted).await {
        Ok(Seated::Now(mut call, lease)) => {
            let responded = call.respond(context, lease).await;
            responded.map_err(|again| match again.body.error.code {
                Some(ENGINE_CRASHED) => fail(again.again_in(RETRY)),
                _ => fail(again),
            })
        }
        Ok(Seated::Streaming(response)) => Ok(response),
        // The engine's failure tells the client more than the lack of another seat.
        Err((_, refused)) => Err(fail(failure.again_in(refused.retry().unwrap_or(RETRY)))),
    }
}
