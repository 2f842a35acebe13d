//! The path of a chat or completion, in any API. Each stage runs once and hands its result to the next. The pool decides about
//! loading and placement.
//!
//! ```text
//!  received ──▶ understood ──▶ admitted ──▶ seated ──▶ answered
//!  its body,    its model,     its limits   a seat,    to the engine
//!  translated   its fields     (admission)  or a wait  and back
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Method, Request, Uri};
use axum::response::{IntoResponse, Response};

use crate::auth::User;
use crate::inference::admission;
use crate::inference::admission::RequestContext;
use crate::inference::call::Call;
use crate::inference::member::{self, Spare};
use crate::inference::received::receive;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::request::receiving::{mended, read};
use crate::inference::response::tier::Tier;
use crate::inference::understood::{Understood, understand};
use crate::state::App;
use crate::upstream::remote;
use access::limits::Admission;
use api_types::dto::class_name;
use api_types::error::{ENGINE_CRASHED, Failure};
use catalog::Recipe;
use controller::{Lease, Seat};
use dialect::{CHAT, COMPLETIONS, Dialect, Teller, TranslatedRequest};
use edge::PlainBody;
use edge::record::{self, Record};
use pool::Span;

/// Largest body kept for a retry. Longer ones are released once the engine has them.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// `Retry-After` if the load time is unknown.
const RETRY: Span = Span::from_secs(10);

/// The engine's route, if [`respond_directly`] serves the request: the two most frequent routes.
pub fn direct_route(parts: &Parts, base: &str) -> Option<&'static str> {
    let path = parts.uri.path();
    let below = path.strip_prefix(base).unwrap_or(path);
    let mut usual = [CHAT, COMPLETIONS].into_iter();
    usual.find(|route| *route == below && parts.method == Method::POST)
}

/// Does the same as [`complete`] without the router, which allocates more than everything else for a request. `route` is from
/// [`direct_route`].
pub async fn respond_directly(
    app: App,
    mut parts: Parts,
    body: &mut PlainBody,
    record: &Record,
    route: &'static str,
) -> Response<Body> {
    // Permissions refer to routes without the base path.
    parts.uri = Uri::from_static(route);
    match User::from_request_parts(&mut parts, &app).await {
        Err(failure) => failure.into_response(),
        Ok(user) => {
            let headers = std::mem::take(&mut parts.headers);
            drop(parts);
            let context = RequestContext::taking(&app, user, headers);
            let work = pin!(async {
                let read = app.edge.read(body, record).await;
                let body = read.map_err(|failure| -> Failed { (None, failure) })?;
                let body = mended(&app, body).await?;
                complete_read(&app, &context, body, route, Dialect::OpenAi).await
            });
            context.end(&app, work).await
        }
    }
}

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
    mut translated: TranslatedRequest<Teller>,
) -> Result<Response, Failed> {
    let mut spare = member::spare(app, context, &translated);
    let ended = attempt(app, context, path, &mut translated, &mut spare).await;
    match spare {
        None => ended,
        // Boxed because few requests may fall back.
        Some(spare) => Box::pin(fall_back(app, context, path, *spare, ended)).await,
    }
}

/// Sends the request to the next members of its virtual model while they cannot serve it. `ended` is the result of the first.
async fn fall_back(
    app: &App,
    context: &RequestContext,
    path: &'static str,
    spare: TranslatedRequest<Teller>,
    mut ended: Result<Response, Failed>,
) -> Result<Response, Failed> {
    while member::cause_to_fall_back(app, context, &ended).is_some() {
        let mut translated = spare.clone();
        ended = attempt(app, context, path, &mut translated, &mut None).await;
    }
    ended
}

/// Serves the request with the model that it names, or with a member of its virtual model. Takes the request out of `translated`,
/// which is lent because each function that takes it by value adds its size to the future. Drops `spare` if no other member may
/// serve it.
async fn attempt(
    app: &App,
    context: &RequestContext,
    path: &'static str,
    translated: &mut TranslatedRequest<Teller>,
    spare: &mut Spare,
) -> Result<Response, Failed> {
    let understood = understand(app, context, path, translated).await;
    if spare.is_some() && !member::may_fall_back(context) {
        *spare = None;
    }
    let request = understood?;
    let model = Arc::clone(&request.model);
    let fail = |failure: Failure| (Some(model.to_string()), failure);
    let admitted = admission::admit(app, context, &model, request.bytes).await;
    // Separate from the call of `send`: the future keeps a matched value until the end of the match.
    let (call, lease) = match seat(app, context, request, admitted.map_err(fail)?).await? {
        Seated::Now(call, lease) => (call, lease),
        Seated::Streaming(response) => return Ok(response),
    };
    send(app, context, call, lease).await
}

/// The result of taking a seat.
#[expect(
    clippy::large_enum_variant,
    reason = "destructured immediately; a box would cost an allocation per request"
)]
enum Seated {
    Now(Call, Lease),
    /// The wait became too long to withhold the status; the stream has begun and waits for the seat.
    Streaming(Response),
}

/// The fourth stage: takes a seat at a replica of the model, immediately or after waiting in its queue.
async fn seat(
    app: &App,
    context: &RequestContext,
    mut request: Understood,
    admitted: Admission,
) -> Result<Seated, Failed> {
    let (deadlines, sight) = (context.patience(), &context.user.sight);
    let (route, model) = (Arc::clone(&request.route), Arc::clone(&request.model));
    let fail = |failure: Failure| (Some(model.to_string()), failure);
    let was_ready = route.is_ready();
    let now = app.handle.clock().now();
    let adapter = request
        .adapter
        .as_ref()
        .map(|adapter| adapter.name.as_str());
    let figures = (request.responses, admitted.estimate());
    let user = admission::seat_user(context, &route, &request.wish, figures);
    let class = user.class;
    let is_remote = matches!(route.entry.recipe, Recipe::Remote(_));
    let tier = Tier { class, is_remote };
    request.teller.set_tier(class_name(class), is_remote);
    let tier = request.wish.shows_tier.then_some(tier);
    let seat = match (&context.user.batch, deadlines.seat) {
        (Some(seat), _) => Ok(Seat::Now(seat.take(&model).map_err(fail)?)),
        (None, Some(Duration::ZERO)) => {
            match app
                .handle
                .seat_now(&route, &user, request.conversation, adapter)
            {
                Some(lease) => Ok(Seat::Now(lease)),
                None => return Err(fail(admission::not_ready(app, sight, &route).await)),
            }
        }
        (None, _) => {
            if !was_ready {
                app.handle.look_for_program(&route).await;
            }
            let gives_up = deadlines.gives_up(now);
            let conversation = request.conversation;
            app.handle
                .seat(&route, user, conversation, adapter, gives_up)
        }
    };
    let seat = seat.map_err(|busy| fail(busy.into()))?;
    let call = Call {
        app: app.clone(),
        request,
        admitted,
        deadlines,
        sight: sight.clone(),
        key: context.user.key,
        received: context.arrived_at,
        kept: None,
        is_plain: false,
        tier,
    };
    let lease = match seat {
        Seat::Now(lease) => lease,
        Seat::Wait(mut waiting) => {
            record::trace(|trace| trace.queued(&model, now));
            // For a short time an error can still set the status; then the stream begins.
            let every = app.config().server.keep_alive_comment.duration();
            // With another member left, the status must stay open until the wait for this one ends.
            let begins = call.request.scanned.stream && context.attempts.wait_max().is_none();
            let every = begins.then_some(every);
            let until = [every, deadlines.seat].into_iter().flatten().min();
            let until = until.unwrap_or(Duration::MAX);
            match tokio::time::timeout(until, waiting.seat()).await {
                Ok(seat) => seat.map_err(|refusal| {
                    app.refused_after_waiting(&model);
                    fail(Failure::refused(&model, &sight.refusal(refusal)))
                })?,
                Err(_) if deadlines.seat == Some(until) => {
                    return Err(fail(admission::not_ready(app, sight, &route).await));
                }
                Err(_) => {
                    let ignored = call.request.outgoing.ignored.clone();
                    let response = call.stream_while_waiting(waiting, until);
                    return Ok(Seated::Streaming(note(response, &ignored)));
                }
            }
        }
    };
    admission::seated(context, app, &route, &lease, was_ready);
    Ok(Seated::Now(call, lease))
}

/// The body to keep for a retry, or `None` if the request cannot be retried.
fn kept(body: &Bytes, lease: &Lease) -> Option<Bytes> {
    let keeps = body.len() <= KEPT_BYTES_MAX && remote::of_lease(lease).is_none();
    keeps.then(|| body.clone())
}

/// The last stage: sends the request to its engine. Retries once if the engine ends before the first token. This is safe because
/// the client has received nothing yet, and costs nothing because the engine is local. Without a retry, the client receives the
/// cause and a time to try again.
async fn send(
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
    fn the_future_of_a_request_is_small_because_rare_paths_are_boxed() {
        let size = size_of_its_future(|| complete(any(), any(), any(), any(), any()));
        assert!(size <= FUTURE_BYTES_MAX, "{size} bytes");
    }

    #[test]
    fn chats_and_completions_bypass_the_routing_table_with_and_without_the_base_path() {
        let route = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            direct_route(&parts, "/llm")
        };
        assert_eq!(route("POST", "/llm/v1/chat/completions"), Some(CHAT));
        assert_eq!(route("POST", "/v1/chat/completions?a=b"), Some(CHAT));
        assert_eq!(route("POST", "/v1/completions"), Some(COMPLETIONS));
        for (method, path) in [
            ("GET", "/v1/completions"),
            ("OPTIONS", "/v1/completions"),
            ("POST", "/v1/completions/"),
            ("POST", "/llm/llm/v1/completions"),
            ("POST", "/v1/messages"),
        ] {
            assert_eq!(route(method, path), None, "{method} {path}");
        }
    }
}
