//! The way of a chat or completion, whichever API it is in. Each stage is a file, is entered once, and hands its result to
//! the next. Why a model is ready or not is decided by the pool.
//!
//! ```text
//!  received ──▶ understood ──▶ admitted ──▶ seated ──▶ answered
//!  its body,    its model,     its limits   a seat,    to the engine
//!  translated   its fields     (admission)  or a wait  and back
//! ```

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;

use crate::auth::User;
use crate::dialect::{Dialect, Teller, TranslatedRequest};
use crate::error::Failure;
use crate::inference::admission;
use crate::inference::admission::RequestContext;
use crate::inference::again;
use crate::inference::received::receive;
use crate::inference::request::failed::Failed;
use crate::inference::seated::{Seated, seat};
use crate::inference::understood::understand;
use crate::state::App;

/// Whatever the dialect, `path` says which of the engine's routes is meant.
pub(crate) async fn complete(
    app: App,
    user: User,
    request: Request<Body>,
    path: &'static str,
    dialect: Dialect,
) -> Response {
    let visit = RequestContext::new(&app, user, request.headers());
    // Pinned here, because to move a future of this size costs as much as to read the request.
    let work = std::pin::pin!(async {
        let translated = receive(&app, &visit, request, dialect).await?;
        answer(&app, &visit, path, translated).await
    });
    visit.end(&app, work).await
}

/// Answers a request that is in OpenAI's form already. Its body has its share of the memory for bodies.
pub(crate) async fn answer(
    app: &App,
    visit: &RequestContext,
    path: &'static str,
    translated: TranslatedRequest<Teller>,
) -> Result<Response, Failed> {
    let request = understand(app, visit, path, translated).await?;
    let model = request.model.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    let admitted = admission::admit(app, visit, &model, request.bytes).await;
    match seat(app, visit, request, admitted.map_err(fail)?).await? {
        Seated::Now(call, lease) => again::answer(app, visit, call, lease).await,
        Seated::Streaming(response) => Ok(response),
    }
}
