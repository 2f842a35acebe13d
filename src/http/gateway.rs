//! The user's routes: find the model, take a seat, pass the request to the engine. It knows nothing
//! of why a model is ready or not; the seat or the refusal comes from the controller.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use serde_json::value::RawValue;

use super::admission::{Deadlines, RequestContext};
use super::aggregate::Aggregate;
use super::as_chat::AsChat;
use super::auth::User;
use super::body::Scanned;
use super::dialect::{Dialect, Teller, Telling};
use super::edge::record;
use super::error::Failure;
use super::ignored::note;
use super::in_flight::{InFlightRequest, JSON, engine_error, limited, reach};
use super::outgoing::{CHAT, Outgoing, outgoing, renamed};
use super::proxy::Incoming;
use super::quiet::quiet;
use super::request_fields::Fate;
use super::sight::Sight;
use super::state::App;
use super::unary_routes::check_generates;
use super::{
    admission, conversation, hub_registration, remote, request_fields, sequences, stream,
    validation, wait,
};
use access::limits::Admitted;
use catalog::{Ask, Entry};
use controller::{Lease, Route, Seat, Waiting};
use pool::{Span, Time};

/// An answer that is aggregated for a client without `stream` may be this large.
pub(super) const ANSWER_MAX: usize = 64 << 20;

/// Whatever the dialect, `path` says which of the engine's routes is meant.
pub(super) async fn complete(
    app: App,
    user: User,
    request: Request<Body>,
    path: &'static str,
    dialect: Dialect,
) -> Response {
    let visit = RequestContext::new(&app, user, request.headers());
    let begun = begin(&app, &visit, request, path, dialect);
    visit.end(&app, begun).await
}

/// The catalogue's name of the model, once it is known, goes with a failure into the metrics.
pub(super) type Failed = (Option<String>, Failure);

pub(super) fn told(app: &App, (model, failure): Failed) -> Response {
    if let Some(model) = model {
        app.metrics.request(&model, failure.status.as_u16());
    }
    failure.into_response()
}

/// The request's body, bounded.
pub(super) async fn read(app: &App, body: Body) -> Result<Bytes, Failed> {
    let limit = app.config.server.body_limit.0.0;
    let body = read_body(body, limit).await;
    body.map_err(|failure| (None, failure))
}

/// What routing needs of the body, and the model that it names.
pub(super) async fn find(
    app: &App,
    user: &User,
    body: Bytes,
) -> Result<(Scanned, Arc<Route>), Failed> {
    let scanned = app.reading.run(body.len(), || Scanned::read(body)).await;
    let scanned = scanned.map_err(|failure| (None, failure))?;
    let route = model(app, user, &scanned.model).await?;
    Ok((scanned, route))
}

/// The model of this name, if it is for this user; brought in if it may be.
pub(super) async fn model(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failed> {
    let early = |failure: Failure| (None, failure);
    let route = match app.handle.route(name) {
        Some(route) => route,
        None => hub_registration::of_user(app, user, name)
            .await
            .map_err(early)?,
    };
    admission::allowed(app, user, name, &route.entry).map_err(early)?;
    Ok(route)
}

async fn begin(
    app: &App,
    visit: &RequestContext,
    request: Request<Body>,
    path: &'static str,
    dialect: Dialect,
) -> Result<Response, Failed> {
    let (asked, patience, sight) = (visit.asked, visit.patience(), &visit.user.sight);
    let body = read(app, request.into_body()).await?;
    let (bytes, share) = (body.len(), record::share());
    let said = move || dialect.read(body, asked.0 / 1000);
    let said = match dialect {
        // Nothing is read yet.
        Dialect::OpenAi => said(),
        Dialect::Anthropic | Dialect::Responses => app.reading.run(bytes, said).await,
    };
    let said = said.map_err(|failure| (None, failure))?;
    let (scanned, route) = find(app, &visit.user, share.of(said.body)).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    // What the model cannot be asked is refused before anything is loaded for it.
    check_generates(&route, path).map_err(fail)?;
    let mut scanned = validation::checked(app, scanned, path, &route.entry, visit)
        .await
        .map_err(fail)?;
    let adapter = route.entry.adapter(&scanned.model);
    let served_name = adapter.or(route.entry.recipe.served_model_name());
    let served_name = served_name.unwrap_or(&model);
    let served_name = served_name.to_owned();
    let several = route.has_several();
    let most = app.config.server.sequences_max;
    let (body, name, entry) = (
        std::mem::take(&mut scanned.body),
        served_name.clone(),
        Arc::clone(&route.entry),
    );
    let bytes = body.len();
    let written = move || {
        sequences::check(&body, path, most)?;
        let conversation = several.then(|| conversation::of(&body)).flatten();
        Ok((outgoing_of(&body, path, &name, &entry)?, conversation))
    };
    let (mut outgoing, conversation) = app.reading.run(bytes, written).await.map_err(fail)?;
    outgoing.ignored.extend(said.ignored);
    // It has the memory that the client's body had, which is gone.
    outgoing.body = share.of(outgoing.body);
    let admitted = admission::admit(app, visit, &model, bytes);
    let admitted = admitted.await.map_err(fail)?;
    let was_ready = route.is_ready();
    let seat = match patience.seat {
        Some(Duration::ZERO) => match app.handle.seat_now(&route, conversation) {
            Some(lease) => Ok(Seat::Now(lease)),
            None => return Err(fail(admission::not_ready(app, sight, &route).await)),
        },
        _ => app.handle.seat(&route, visit.user.key, conversation),
    };
    let seat = seat.map_err(|busy| fail(busy.into()))?;
    let mut call = Call {
        app: app.clone(),
        scanned,
        model: model.clone(),
        asked,
        bytes,
        admitted,
        patience,
        sight: sight.clone(),
        route: Arc::clone(&route),
        entry: Arc::clone(&route.entry),
        served_name,
        outgoing,
        teller: said.teller,
    };
    let lease = match seat {
        Seat::Now(lease) => lease,
        Seat::Wait(mut waiting) => {
            // For a while an error can still be told by its status; then the stream begins.
            let every = app.config.server.keep_alive_comment.duration();
            let every = call.scanned.stream.then_some(every);
            let until = [every, patience.seat].into_iter().flatten().min();
            let until = until.unwrap_or(Duration::MAX);
            match tokio::time::timeout(until, waiting.seat()).await {
                Ok(seat) => {
                    seat.map_err(|refusal| fail(Failure::refused(&model, &sight.refusal(refusal))))?
                }
                Err(_) if patience.seat == Some(until) => {
                    return Err(fail(admission::not_ready(app, sight, &route).await));
                }
                Err(_) => {
                    let ignored = call.outgoing.ignored.clone();
                    let response = call.stream_while_waiting(waiting, until);
                    return Ok(note(response, &ignored));
                }
            }
        }
    };
    admission::seated(visit, app, &route, &lease, was_ready);
    let (served, answer) = call.send(lease).await.map_err(fail)?;
    if !answer.status().is_success() {
        served.answered(answer.status().as_u16());
        return Ok(engine_error(answer, &served).await);
    }
    if call.scanned.stream {
        let (frames, body) = stream::fed();
        let wants_usage = call.scanned.include_usage;
        let telling = call.telling();
        spawn(async move {
            stream::forward(answer.into_body(), served, wants_usage, telling, &frames).await;
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
    asked: Time,
    /// The length of the client's body.
    bytes: usize,
    admitted: Arc<Admitted>,
    patience: Deadlines,
    sight: Sight,
    route: Arc<Route>,
    entry: Arc<Entry>,
    /// The name that `outgoing` has.
    served_name: String,
    outgoing: Outgoing,
    teller: Teller,
}

fn outgoing_of(
    body: &Bytes,
    path: &'static str,
    served_name: &str,
    entry: &Entry,
) -> Result<Outgoing, Failure> {
    let room = entry.room_for_answers();
    let ask = match path {
        CHAT => Ask::Chat,
        _ => Ask::Completion,
    };
    let fate = |name: &str, value: &RawValue| request_fields::fate(entry, ask, name, value);
    outgoing(body, path, served_name, &entry.generation, room, fate)
}

impl Call {
    fn as_chat(&self) -> Option<AsChat> {
        self.outgoing.answers_chat.then(AsChat::default)
    }

    fn telling(&self) -> Telling {
        Telling::new(self.as_chat(), self.teller.clone())
    }

    /// Sends the request to the lease's engine.
    async fn send(
        &mut self,
        lease: Lease,
    ) -> Result<(InFlightRequest, hyper::Response<Incoming>), Failure> {
        let own = lease.served_name().unwrap_or(&self.model);
        let name = self.entry.adapter(&self.scanned.model).unwrap_or(own);
        // Once the engine has it, its memory is free for others.
        let mut body = std::mem::take(&mut self.outgoing.body);
        // An engine that was adopted may know it by another one.
        if name != self.served_name {
            let (name, share) = (name.to_owned(), record::share());
            let named = move || renamed(&body, &name, |_, _| Ok(Fate::Goes));
            body = share.of(self.app.reading.run(self.bytes, named).await?);
        }
        let admitted = Arc::clone(&self.admitted);
        let deadline = self.patience.deadline;
        let served = InFlightRequest::new(
            &self.app,
            &self.model,
            lease,
            self.asked,
            (admitted, self.sight.clone()),
            deadline,
        );
        reach(&self.app, served, self.outgoing.path, (&JSON, body)).await
    }

    /// The stream begins before there is a seat: comments until there is one, then the engine's
    /// events, or the refusal as an event.
    fn stream_while_waiting(mut self, mut waiting: Waiting, waited: Duration) -> Response {
        let (frames, body) = stream::fed();
        spawn(async move {
            let every = self.app.config.server.keep_alive_comment.duration();
            let patience = self.patience;
            let clock = self.app.handle.clock();
            let left = patience.seat.map(|most| most.saturating_sub(waited));
            let give_up = left.map(|left| clock.now() + Span(left.as_millis() as u64));
            let seat = loop {
                let comment = wait::comment(
                    &self.app.handle.snapshot(),
                    waiting.ticket,
                    self.route.model,
                );
                if frames.send(Ok(comment.into())).await.is_err() {
                    return;
                }
                tokio::select! {
                    biased;
                    () = frames.closed() => return,
                    () = admission::over(clock, patience.deadline) => break Err(Failure::deadline()),
                    () = admission::over(clock, give_up) => {
                        break Err(admission::not_ready(&self.app, &self.sight, &self.route).await);
                    }
                    seat = tokio::time::timeout(every, waiting.seat()) => if let Ok(seat) = seat {
                        break seat.map_err(|refusal| {
                            Failure::refused(&self.model, &self.sight.refusal(refusal))
                        });
                    },
                }
            };
            drop(waiting);
            let sent = match seat {
                Ok(lease) => {
                    let waited = self.app.handle.clock().now().since(self.asked);
                    let comment = wait::seated(lease.replica(), waited);
                    if frames.send(Ok(comment.into())).await.is_err() {
                        return;
                    }
                    let ending = self.app.ending();
                    tokio::select! {
                        biased;
                        () = frames.closed() => return,
                        () = admission::over(clock, patience.deadline) => Err(Failure::deadline()),
                        () = ending.cancelled() => Err(Failure::ending(&self.model)),
                        sent = self.send(lease) => sent,
                    }
                }
                Err(failure) => Err(failure),
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
                        self.telling(),
                        &frames,
                    )
                    .await;
                }
                Ok((served, answer)) => {
                    served.answered(answer.status().as_u16());
                    served.give_back();
                    let body = remote::masked(&served.lease, limited(answer.into_body()).await);
                    stream::last(&frames, self.telling().engine_refused(&body)).await;
                }
                Err(failure) => {
                    self.app
                        .metrics
                        .request(&self.model, failure.status.as_u16());
                    stream::last(&frames, self.telling().failed(&failure)).await;
                }
            }
        });
        event_stream(body)
    }

    /// The whole answer for a client that did not ask for a stream.
    async fn aggregate(
        &self,
        served: InFlightRequest,
        mut upstream: Incoming,
    ) -> Result<Response, Failure> {
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
                    let pushed = whole.push(&data);
                    if pushed.map_err(|long| Failure::engine(&self.model, long))? {
                        served.token();
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
            // What is the request's fault the engine may see only once it has begun.
            let status = match error["type"] == "invalid_request_error" {
                true => StatusCode::BAD_REQUEST,
                false => StatusCode::BAD_GATEWAY,
            };
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
        let answer = self.teller.clone().whole(answer)?;
        served.answered(200);
        Ok(Json(answer).into_response())
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
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(quiet(record::carried(task)));
}
