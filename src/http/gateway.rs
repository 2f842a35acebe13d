//! The user's routes: find the model, take a seat, pass the request to the engine. It knows nothing
//! of why a model is ready or not; the seat or the refusal comes from the controller.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::aggregate::{Aggregate, Usage};
use super::as_chat::AsChat;
use super::auth::User;
use super::body::Scanned;
use super::error::{ErrorBody, Failure};
use super::ignored::note;
use super::metrics::Metrics;
use super::outgoing::{CHAT, COMPLETIONS, Outgoing, outgoing};
use super::proxy::Incoming;
use super::quiet::quiet;
use super::state::App;
use super::{conversation, newcomer, remote, stream, wait};
use crate::catalog::Entry;
use crate::controller::{Lease, Route, Seat, Waiting};
use crate::pool::Time;

/// An engine's own error is passed on up to this size.
const ENGINE_ERROR_MAX: usize = 1 << 20;
/// An answer that is aggregated for a client without `stream` may be this large.
pub(super) const ANSWER_MAX: usize = 64 << 20;

/// A seat that is being used, and what is counted about it.
pub(super) struct Served {
    pub lease: Lease,
    pub model: String,
    metrics: Metrics,
    clock: crate::controller::Clock,
    asked: Time,
    /// The process ends now.
    pub ending: CancellationToken,
}

impl Served {
    pub fn new(app: &App, model: &str, lease: Lease, asked: Time) -> Served {
        Served {
            lease,
            model: model.to_owned(),
            metrics: app.metrics.clone(),
            clock: app.handle.clock(),
            asked,
            ending: app.ending(),
        }
    }

    pub fn first_token(&self) {
        let took = self.clock.now().since(self.asked);
        self.metrics
            .first_token(&self.model, Duration::from_millis(took.0));
    }

    pub fn tokens(&self, usage: Usage) {
        self.metrics
            .tokens(&self.model, usage.prompt_tokens, usage.completion_tokens);
    }

    pub fn answered(&self, code: u16) {
        self.metrics.request(&self.model, code);
    }
}

/// Chat with a model. A model that is not ready is loaded; the request waits for it.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "inference",
    request_body(content = Object, description = "OpenAI's chat completion request", example = json!({
        "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}], "stream": false
    })),
    responses(
        (status = 200, description = "A chat.completion, or a stream of chat.completion.chunk events; while the model loads, a stream carries comments such as `: waiting position=1 stage=loading`"),
        (status = 400, description = "Not an OpenAI request; names the field", body = ErrorBody),
        (status = 401, description = "An API key is needed", body = ErrorBody),
        (status = 404, description = "No such model; names the closest", body = ErrorBody),
        (status = 413, description = "The body is over the limit", body = ErrorBody),
        (status = 429, description = "The model's queue is full; Retry-After says when to come back", body = ErrorBody),
        (status = 503, description = "The model cannot be had: no room, a failed load, a timeout in the queue", body = ErrorBody),
    )
)]
pub(super) async fn chat_completions(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    complete(app, user, request, CHAT).await
}

/// Complete a text.
#[utoipa::path(
    post, path = "/v1/completions", tag = "inference",
    request_body(content = Object, description = "OpenAI's completion request", example = json!({
        "model": "tiny-chat", "prompt": "A priority is", "max_tokens": 16
    })),
    responses(
        (status = 200, description = "A text_completion, or a stream of them"),
        (status = 400, description = "Not an OpenAI request; names the field", body = ErrorBody),
        (status = 401, description = "An API key is needed", body = ErrorBody),
        (status = 404, description = "No such model; names the closest", body = ErrorBody),
        (status = 429, description = "The model's queue is full", body = ErrorBody),
        (status = 503, description = "The model cannot be had", body = ErrorBody),
    )
)]
pub(super) async fn completions(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    complete(app, user, request, COMPLETIONS).await
}

async fn complete(app: App, user: User, request: Request<Body>, path: &'static str) -> Response {
    match begin(&app, user, request, path).await {
        Ok(response) => response,
        Err(failed) => told(&app, failed),
    }
}

/// The catalogue's name of the model, once it is known, goes with a failure into the metrics.
pub(super) type Failed = (Option<String>, Failure);

pub(super) fn told(app: &App, (model, failure): Failed) -> Response {
    if let Some(model) = model {
        app.metrics.request(&model, failure.status.as_u16());
    }
    failure.into_response()
}

/// The request's body, read, and the model that it names.
pub(super) async fn find(app: &App, body: Body) -> Result<(Scanned, Arc<Route>), Failed> {
    let early = |failure: Failure| (None, failure);
    let limit = app.config.server.body_limit.0.0;
    let body = read_body(body, limit).await.map_err(early)?;
    let scanned = Scanned::read(body).map_err(early)?;
    let route = match app.handle.route(&scanned.model) {
        Some(route) => route,
        None => newcomer::of_user(app, &scanned.model)
            .await
            .map_err(early)?,
    };
    Ok((scanned, route))
}

async fn begin(
    app: &App,
    user: User,
    request: Request<Body>,
    path: &'static str,
) -> Result<Response, Failed> {
    let clock = app.handle.clock();
    let asked = clock.now();
    let (scanned, route) = find(app, request.into_body()).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    // What the model cannot be asked is refused before anything is loaded for it.
    let adapter = route.entry.adapter(&scanned.model);
    let served_name = adapter.or(route.entry.recipe.served_model_name());
    let served_name = served_name.unwrap_or(&model);
    let outgoing = outgoing_of(&scanned, path, served_name, &route.entry).map_err(fail)?;
    let served_name = served_name.to_owned();
    let several = route.has_several();
    let conversation = several.then(|| conversation::of(&scanned.body)).flatten();
    let seat = app
        .handle
        .seat(&route, user.key, conversation)
        .map_err(|busy| fail(busy.into()))?;
    let call = Call {
        app: app.clone(),
        scanned,
        model: model.clone(),
        path,
        asked,
        entry: Arc::clone(&route.entry),
        served_name,
        outgoing,
    };
    let lease = match seat {
        Seat::Now(lease) => lease,
        Seat::Wait(mut waiting) => {
            if call.scanned.stream {
                // For a while an error can still be told by its status; then the stream begins.
                let every = app.config.server.keep_alive_comment.duration();
                match tokio::time::timeout(every, waiting.seat()).await {
                    Ok(seat) => seat.map_err(|refusal| fail(Failure::refused(&model, &refusal)))?,
                    Err(_) => {
                        let ignored = call.outgoing.ignored.clone();
                        let response = call.stream_while_waiting(waiting, route.model);
                        return Ok(note(response, &ignored));
                    }
                }
            } else {
                waiting
                    .seat()
                    .await
                    .map_err(|refusal| fail(Failure::refused(&model, &refusal)))?
            }
        }
    };
    app.metrics
        .waited(&model, Duration::from_millis(clock.now().since(asked).0));
    let (served, answer) = call.send(lease).await.map_err(fail)?;
    if !answer.status().is_success() {
        served.answered(answer.status().as_u16());
        return Ok(engine_error(answer, &served).await);
    }
    if call.scanned.stream {
        let (frames, body) = stream::fed();
        let wants_usage = call.scanned.include_usage;
        let as_chat = call.as_chat();
        spawn(async move {
            stream::forward(answer.into_body(), served, wants_usage, as_chat, &frames).await;
        });
        return Ok(note(event_stream(body), &call.outgoing.ignored));
    }
    let answer = call.aggregate(served, answer.into_body()).await;
    let answer = answer.map_err(fail)?;
    Ok(note(answer, &call.outgoing.ignored))
}

/// One request on its way.
struct Call {
    app: App,
    scanned: Scanned,
    model: String,
    path: &'static str,
    asked: Time,
    entry: Arc<Entry>,
    /// The name that `outgoing` has.
    served_name: String,
    outgoing: Outgoing,
}

fn outgoing_of(
    scanned: &Scanned,
    path: &'static str,
    served_name: &str,
    entry: &Entry,
) -> Result<Outgoing, Failure> {
    let room = entry.room_for_answers();
    let ignores = |field: &str| entry.recipe.ignores(field);
    outgoing(
        &scanned.body,
        path,
        served_name,
        &entry.generation,
        room,
        ignores,
    )
}

impl Call {
    fn as_chat(&self) -> Option<AsChat> {
        self.outgoing.answers_chat.then(AsChat::default)
    }

    /// Sends the request to the lease's engine.
    async fn send(&self, lease: Lease) -> Result<(Served, hyper::Response<Incoming>), Failure> {
        let own = lease.served_name().unwrap_or(&self.model);
        let name = self.entry.adapter(&self.scanned.model).unwrap_or(own);
        // An engine that was adopted may know it by another one.
        let body = match name == self.served_name {
            true => self.outgoing.body.clone(),
            false => outgoing_of(&self.scanned, self.path, name, &self.entry)?.body,
        };
        let served = Served::new(&self.app, &self.model, lease, self.asked);
        reach(&self.app, served, self.outgoing.path, body).await
    }

    /// The stream begins before there is a seat: comments until there is one, then the engine's
    /// events, or the refusal as an event.
    fn stream_while_waiting(self, mut waiting: Waiting, model: crate::pool::ModelId) -> Response {
        let (frames, body) = stream::fed();
        spawn(async move {
            let every = self.app.config.server.keep_alive_comment.duration();
            let seat = loop {
                let comment = wait::comment(&self.app.handle.snapshot(), waiting.ticket, model);
                if frames.send(Ok(comment.into())).await.is_err() {
                    return;
                }
                tokio::select! {
                    biased;
                    () = frames.closed() => return,
                    seat = tokio::time::timeout(every, waiting.seat()) => if let Ok(seat) = seat { break seat },
                }
            };
            let sent = match seat {
                Ok(lease) => self.send(lease).await,
                Err(refusal) => Err(Failure::refused(&self.model, &refusal)),
            };
            match sent {
                Ok((served, answer)) if answer.status().is_success() => {
                    let waited = served.clock.now().since(self.asked);
                    self.app
                        .metrics
                        .waited(&self.model, Duration::from_millis(waited.0));
                    stream::forward(
                        answer.into_body(),
                        served,
                        self.scanned.include_usage,
                        self.as_chat(),
                        &frames,
                    )
                    .await;
                }
                Ok((served, answer)) => {
                    served.answered(answer.status().as_u16());
                    let body = remote::masked(&served.lease, limited(answer.into_body()).await);
                    let event = format!(
                        "data: {}\n\n",
                        String::from_utf8_lossy(&body).replace(['\n', '\r'], " ")
                    );
                    let _ = frames.send(Ok(event.into())).await;
                }
                Err(failure) => {
                    self.app
                        .metrics
                        .request(&self.model, failure.status.as_u16());
                    let _ = frames.send(Ok(failure.sse().into())).await;
                }
            }
        });
        event_stream(body)
    }

    /// The whole answer for a client that did not ask for a stream.
    async fn aggregate(&self, served: Served, mut upstream: Incoming) -> Result<Response, Failure> {
        let cut = served.lease.cut();
        let mut cut = std::pin::pin!(cut.cancelled());
        let mut ending = std::pin::pin!(served.ending.cancelled());
        let mut whole = Aggregate::of(self.as_chat());
        let mut size = 0;
        loop {
            let frame = tokio::select! {
                biased;
                frame = upstream.frame(), if served.lease.why().is_none() => frame,
                () = &mut cut => return Err(stream::why(&served).await),
                () = &mut ending => return Err(Failure::ending(&self.model)),
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    size += data.len();
                    if size > ANSWER_MAX {
                        return Err(Failure::engine(
                            &self.model,
                            format!("more than {ANSWER_MAX} bytes; ask with stream"),
                        ));
                    }
                    let before = whole.has_begun();
                    if whole.push(&data) {
                        served.lease.token();
                    }
                    if !before && whole.has_begun() {
                        served.first_token();
                    }
                }
                Some(Err(_)) => {
                    served.lease.worked(false);
                    return Err(stream::why(&served).await);
                }
                None => break,
            }
        }
        if let Some(error) = whole.error.take() {
            let status = StatusCode::BAD_GATEWAY;
            served.answered(status.as_u16());
            return Ok((status, Json(json!({ "error": error }))).into_response());
        }
        if !whole.done {
            served.lease.worked(false);
            return Err(stream::why(&served).await);
        }
        if let Some(usage) = whole.usage() {
            served.tokens(usage);
        }
        let mut answer = whole
            .finish()
            .ok_or_else(|| Failure::engine(&self.model, "an empty stream"))?;
        if remote::of(&served.lease).is_some() {
            answer["model"] = json!(self.model);
        }
        served.answered(200);
        Ok(Json(answer).into_response())
    }
}

/// The head of the engine's answer; or why there is none.
pub(super) async fn reach(
    app: &App,
    served: Served,
    path: &str,
    body: Bytes,
) -> Result<(Served, hyper::Response<Incoming>), Failure> {
    let cut = served.lease.cut();
    let sent = app.upstream.send(&served.lease, Method::POST, path, body);
    tokio::select! {
        biased;
        sent = sent => match sent {
            Ok(answer) => {
                let status = answer.status();
                if let Some(failure) = remote::misplaced(&served.lease, &served.model, status) {
                    served.lease.worked(false);
                    return Err(failure);
                }
                served.lease.worked(!answer.status().is_server_error());
                Ok((served, answer))
            }
            Err(error) => {
                served.lease.worked(false);
                tracing::warn!(model = served.model, %error, "the engine did not answer");
                match remote::unreached(&served.lease, &served.model, &error) {
                    Some(failure) => Err(failure),
                    None => Err(stream::why(&served).await),
                }
            }
        },
        () = cut.cancelled() => Err(stream::why(&served).await),
    }
}

async fn read_body(body: Body, limit: u64) -> Result<Bytes, Failure> {
    let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, limit_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(limit)),
        Err(error) => Err(Failure::invalid(
            None,
            format!("the body did not arrive whole: {error}"),
        )),
    }
}

async fn limited(body: Incoming) -> Bytes {
    match Limited::new(body, ENGINE_ERROR_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => format!(
            "{{\"error\":{{\"message\":\"the engine's error could not be read: {error}\"}}}}"
        )
        .into(),
    }
}

/// What the engine itself refuses goes to the client as it is.
pub(super) async fn engine_error(answer: hyper::Response<Incoming>, served: &Served) -> Response {
    let (head, body) = answer.into_parts();
    let body = remote::masked(&served.lease, limited(body).await);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = head.status;
    for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
        if let Some(value) = head.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer would hold the comments back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A stream's task ends with its engine, its lease or its client, whichever is first.
#[expect(
    clippy::disallowed_methods,
    reason = "ends with the body it feeds; a shutdown drains leases first"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(quiet(task));
}
