//! The user's routes: find the model, take a seat, pass the request to the engine. It knows nothing
//! of why a model is ready or not; the seat or the refusal comes from the controller.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde_json::json;
use serde_json::value::RawValue;

use crate::auth::User;
use crate::auth::sight::Sight;
use crate::dialect::{
    Dialect, ReasoningRequest, Teller, Telling, TranslatedRequest, refuse_unknown,
};
use crate::edge::record;
use crate::error::Failure;
use crate::inference::admission;
use crate::inference::admission::{Deadlines, RequestContext};
use crate::inference::answer::aggregate::{ANSWER_MAX, Aggregate};
use crate::inference::answer::as_chat::AsChat;
use crate::inference::answer::first_event::{self, Beginning, Refusal};
use crate::inference::answer::stream;
use crate::inference::answer::stream::{event_stream, spawn};
use crate::inference::answer::wait;
use crate::inference::request::body::Scanned;
use crate::inference::request::conversation;
use crate::inference::request::engine_routes::check_generates;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::request::outgoing::{CHAT, Outgoing, Wishes, outgoing, renamed};
use crate::inference::request::receiving::{find, read};
use crate::inference::request::request_fields;
use crate::inference::request::request_fields::Fate;
use crate::inference::request::sequences;
use crate::inference::request::validation;
use crate::inference::upstream::in_flight::{
    InFlightRequest, JSON, engine_error, limited, reach, told_as_overflow, why,
};
use crate::inference::upstream::proxy::Incoming;
use crate::inference::upstream::remote;
use crate::state::App;
use crate::stored::{Desk, Wanted};
use access::limits::Admitted;
use catalog::{Ask, Entry, ReasoningWish, UnknownFields};
use controller::{Keep, Lease, Route, Seat, Waiting};
use pool::{Span, Time};

/// Whatever the dialect, `path` says which of the engine's routes is meant.
pub(crate) async fn complete(
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

async fn begin(
    app: &App,
    visit: &RequestContext,
    request: Request<Body>,
    path: &'static str,
    dialect: Dialect,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let mut reading = visit.reading(app);
    if dialect == Dialect::Responses && app.responses.is_on() {
        reading.desk = Some(desk(app, visit, &body).await.map_err(|it| (None, it))?);
    }
    let earlier = reading.desk.as_ref().map_or(0, |it| it.earlier().bytes);
    let (bytes, share) = (body.len() + earlier, record::share());
    let reads = dialect.reads(&body);
    let said = move || dialect.read(body, &reading);
    let said = match reads {
        // Nothing is read yet.
        false => said(),
        true => app.reading.run(bytes, said).await,
    };
    let mut said = said.map_err(|failure| (None, failure))?;
    said.body = share.of(said.body);
    answer(app, visit, path, said).await
}

/// Where the response is stored, with what the request refers to.
async fn desk(app: &App, visit: &RequestContext, body: &Bytes) -> Result<Desk, Failure> {
    let (bytes, whole) = (body.len(), body.clone());
    let wanted = app
        .reading
        .run(bytes, move || Ok(Wanted::of(&whole)))
        .await?;
    let most = app.config().server.body_limit.0.0;
    let holder = &visit.user.bucket.id;
    Desk::open(&app.responses, holder, wanted, most, &app.edge).await
}

/// Answers a request that is in OpenAI's form already. Its body has its share of the memory for bodies.
pub(crate) async fn answer(
    app: &App,
    visit: &RequestContext,
    path: &'static str,
    said: TranslatedRequest<Teller>,
) -> Result<Response, Failed> {
    let (asked, patience, sight) = (visit.asked, visit.patience(), &visit.user.sight);
    let share = record::share();
    let (scanned, route) = find(app, &visit.user, said.body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    // What the model cannot be asked is refused before anything is loaded for it.
    check_generates(&route, path).map_err(fail)?;
    let hints = said.hints;
    if route.entry.unknown_fields == UnknownFields::Refuse {
        refuse_unknown(&hints.unknown).map_err(fail)?;
    }
    let mut scanned = validation::checked(app, scanned, path, &route.entry, visit)
        .await
        .map_err(fail)?;
    let adapter = route.entry.adapter(&scanned.model);
    let served_name = adapter.or(route.entry.recipe.served_model_name());
    let served_name = served_name.unwrap_or(&model);
    let served_name = served_name.to_owned();
    let several = route.has_several();
    let most = app.config().server.sequences_max;
    let (body, name, entry) = (
        std::mem::take(&mut scanned.body),
        served_name.clone(),
        Arc::clone(&route.entry),
    );
    let asked_name = scanned.model.clone();
    let bytes = body.len();
    let written = move || {
        sequences::check(&body, path, most)?;
        let conversation = several.then(|| conversation::of(&body)).flatten();
        let outgoing = outgoing_of(&body, path, &name, &asked_name, &entry, hints.reasoning)?;
        Ok((outgoing, conversation))
    };
    let (mut outgoing, conversation) = app.reading.run(bytes, written).await.map_err(fail)?;
    for field in &mut outgoing.ignored {
        if let Some((_, own)) = hints.names.iter().find(|(name, _)| name == field) {
            *field = (*own).to_owned();
        }
    }
    outgoing.ignored.extend(said.ignored);
    outgoing.ignored.extend(hints.unknown);
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
        keep: said.keep,
    };
    let lease = match seat {
        Seat::Now(lease) => lease,
        Seat::Wait(mut waiting) => {
            // For a while an error can still be told by its status; then the stream begins.
            let every = app.config().server.keep_alive_comment.duration();
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
    let (head, mut upstream) = answer.into_parts();
    call.note_ignored(&head.headers);
    if call.scanned.stream {
        let within = app.config().server.keep_alive_comment.duration();
        let begun = first_event::wait(&mut upstream, &served, within).await;
        let begun = match begun.map_err(fail)? {
            Beginning::Stream(begun) => begun,
            Beginning::Refused(refusal) => {
                served.answered(refusal.status.as_u16());
                served.give_back();
                return Ok(refusal.into_response());
            }
        };
        let (frames, body) = stream::fed();
        let show = stream::Show {
            usage: call.scanned.include_usage,
            pause_every: within,
        };
        let telling = call.telling();
        spawn(async move {
            stream::forward((begun, upstream), served, show, telling, &frames).await;
        });
        let response = event_stream(body, call.teller.stream_type());
        return Ok(note(response, &call.outgoing.ignored));
    }
    let answer = call.aggregate(served, upstream).await;
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
    keep: Option<Keep>,
}

fn outgoing_of(
    body: &Bytes,
    path: &'static str,
    served_name: &str,
    asked_name: &str,
    entry: &Entry,
    reasoning: ReasoningRequest,
) -> Result<Outgoing, Failure> {
    let room = entry.room_for_answers();
    let ask = match path {
        CHAT => Ask::Chat,
        _ => Ask::Completion,
    };
    let fate = |name: &str, value: &RawValue| request_fields::fate(entry, ask, name, value);
    let wishes = Wishes {
        reasoning,
        fields_of: &|wish: &ReasoningWish| entry.recipe.reasoning(wish),
        continuous_usage: entry.recipe.has_continuous_usage(),
    };
    let generation = entry.generation_of(asked_name);
    outgoing(body, path, served_name, generation, room, fate, wishes)
}

/// Names the fields of a request that had no effect with the engine's model.
const ENGINE_IGNORED: &str = "x-engine-ignored";

impl Call {
    fn as_chat(&self) -> Option<AsChat> {
        self.outgoing.answers_chat.then(AsChat::default)
    }

    fn telling(&self) -> Telling {
        Telling::new(self.as_chat(), self.teller.clone())
    }

    /// Notes what the engine says it did nothing with, by the client's names.
    fn note_ignored(&mut self, headers: &HeaderMap) {
        let names = headers.get(ENGINE_IGNORED).and_then(|it| it.to_str().ok());
        for name in names.into_iter().flat_map(|names| names.split(", ")) {
            let own = self.outgoing.reasoning.name_of_sent(name).unwrap_or(name);
            if !self.outgoing.ignored.iter().any(|known| known == own) {
                self.outgoing.ignored.push(own.to_owned());
            }
        }
    }

    /// Sends the request to the lease's engine.
    async fn send(
        &mut self,
        mut lease: Lease,
    ) -> Result<(InFlightRequest, hyper::Response<Incoming>), Failure> {
        lease.keep(self.keep);
        self.teller.seated();
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
        let kind = self.teller.stream_type();
        spawn(async move {
            let every = self.app.config().server.keep_alive_comment.duration();
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
                let comment = self.teller.comment(comment);
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
                    let comment = self.teller.comment(comment);
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
                    let show = stream::Show {
                        usage: self.scanned.include_usage,
                        pause_every: every,
                    };
                    let body = (Bytes::new(), answer.into_body());
                    stream::forward(body, served, show, self.telling(), &frames).await;
                }
                Ok((served, answer)) => {
                    served.answered(answer.status().as_u16());
                    served.give_back();
                    let status = answer.status();
                    let body = remote::masked(&served.lease, limited(answer.into_body()).await);
                    let body = told_as_overflow(status, &body).unwrap_or(body);
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
        event_stream(body, kind)
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
                () = &mut cut => return Err(why(&served).await),
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
                        self.teller.begun();
                        served.first_token();
                    }
                }
                Some(Err(_)) => {
                    served.lease.worked(false);
                    return Err(why(&served).await);
                }
                None => break,
            }
        }
        if let Some(error) = whole.error.take() {
            // What is the request's fault the engine may see only once it has begun.
            let refusal = Refusal::of(error);
            served.answered(refusal.status.as_u16());
            return Ok(refusal.into_response());
        }
        if !whole.done {
            served.lease.worked(false);
            return Err(why(&served).await);
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
