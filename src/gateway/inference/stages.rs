//! The path of a chat or completion, in any API. Each stage is a file, runs once, and hands its result to the next. The pool
//! decides about loading and placement.
//!
//! ```text
//!  received ──▶ understood ──▶ admitted ──▶ seated ──▶ answered
//!  its body,    its model,     its limits   a seat,    to the engine
//!  translated   its fields     (admission)  or a wait  and back
//! ```

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::Response;

use crate::auth::User;
use crate::inference::admission;
use crate::inference::admission::RequestContext;
use crate::inference::again;
use crate::inference::received::receive;
use crate::inference::request::failed::Failed;
use crate::inference::request::receiving::read;
use crate::inference::seated::{Seated, seat};
use crate::inference::understood::understand;
use crate::state::App;
use api_types::error::Failure;
use dialect::{Dialect, Teller, TranslatedRequest};

/// Serves a chat or completion. `path` is the engine's route, in every dialect.
pub(crate) fn complete(
    app: App,
    user: User,
    request: Request<Body>,
    path: &'static str,
    dialect: Dialect,
) -> impl Future<Output = Response> + Send {
    // Taken apart here, because the future is too small for the complete request.
    let (Parts { headers, .. }, body) = request.into_parts();
    let context = RequestContext::taking(&app, user, headers);
    async move {
        let work = pin!(async {
            let body = read(&app, body).await?;
            complete_read(&app, &context, body, path, dialect).await
        });
        context.end(&app, work).await
    }
}

/// Like [`complete`], for a request whose body has been read.
pub(crate) async fn complete_read(
    app: &App,
    context: &RequestContext,
    body: Bytes,
    path: &'static str,
    dialect: Dialect,
) -> Result<Response, Failed> {
    let translated = receive(app, context, body, dialect).await?;
    respond(app, context, path, translated).await
}

/// Serves a request in OpenAI's form whose body already holds its share of the body memory.
pub async fn respond(
    app: &App,
    context: &RequestContext,
    path: &'static str,
    translated: TranslatedRequest<Teller>,
) -> Result<Response, Failed> {
    let request = understand(app, context, path, translated).await?;
    let model = Arc::clone(&request.model);
    let fail = |failure: Failure| (Some(model.to_string()), failure);
    let admitted = admission::admit(app, context, &model, request.bytes).await;
    match seat(app, context, request, admitted.map_err(fail)?).await? {
        Seated::Now(call, lease) => again::respond(app, context, call, lease).await,
        Seated::Streaming(response) => Ok(response),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the future small: it is moved several times and lives in the connection's task.
    const FUTURE_BYTES_MAX: usize = 8 << 10;

    fn size_of_its_future<F: Future>(_unused: impl FnOnce() -> F) -> usize {
        size_of::<F>()
    }

    fn any<T>() -> T {
        unreachable!("only the future's type is used")
    }

    #[test]
    fn a_request_is_a_small_future_because_what_is_rare_is_boxed() {
        let size = size_of_its_future(|| complete(any(), any(), any(), any(), any()));
        assert!(size <= FUTURE_BYTES_MAX, "{size} bytes");
    }
}
