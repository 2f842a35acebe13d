//! The last stage of a chat or completion: sends the request to the engine of its seat and returns the response, streaming or not.

mod aggregation;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};

use crate::auth::sight::Sight;
use crate::inference::adapters;
use crate::inference::admission::{Deadlines, RequestContext};
use crate::inference::in_flight::{InFlightRequest, JSON, ended, engine_error_of, limited, reach};
use crate::inference::request::ignored::note;
use crate::inference::request::outgoing::{in_form, renamed, streamed};
use crate::inference::request::request_fields::Fate;
use crate::inference::response::events::Show;
use crate::inference::response::first_event::{self, Beginning, Refusal};
use crate::inference::response::stream;
use crate::inference::response::stream::{event_stream, work};
use crate::inference::response::tier::Tier;
use crate::inference::response::whole::{self, Whole};
use crate::inference::understood::Understood;
use crate::state::App;
use crate::upstream::proxy::Incoming;
use crate::upstream::stream_support::{Form, StreamRefusal};
use access::limits::Admission;
use api_types::error::Failure;
use controller::Lease;
use dialect::as_chat::AsChat;
use dialect::{Teller, Telling};
use edge::{fed, record};
use pool::{KeyId, Time};

/// A request on its way to its engine and back.
pub struct Call {
    pub app: App,
    pub request: Understood,
    pub admitted: Admission,
    pub deadlines: Deadlines,
    pub sight: Sight,
    pub key: KeyId,
    /// Arrival time of the request.
    pub received: Time,
    /// The body for the engine, kept while the request can still be retried.
    pub kept: Option<Bytes>,
    /// The engine was not requested to stream.
    pub is_plain: bool,
    /// The tier for the response, if the request set one.
    pub tier: Option<Tier>,
}

/// A response that the engine has begun.
pub(crate) type Reached = (InFlightRequest, hyper::Response<Incoming>);

/// An engine's refusal, read completely. Boxed because it is rare, and large within each request's future.
pub struct Refused {
    pub served: InFlightRequest,
    pub head: hyper::http::response::Parts,
    pub body: Bytes,
}

/// Separates refusals without reading them. Takes the response by value to keep borrows of it out of the request's future.
fn accepted(reached: Reached) -> Result<Reached, Box<Reached>> {
    if reached.1.status().is_success() {
        Ok(reached)
    } else {
        Err(Box::new(reached))
    }
}

/// Upper bound for field names read from `ENGINE_IGNORED`.
const IGNORED_MAX: usize = 256;
/// An engine's response header with the fields that had no effect.
const ENGINE_IGNORED: &str = "x-engine-ignored";

impl Call {
    /// Sends the request to the lease's engine and forwards its response, streaming or not.
    pub async fn respond(
        &mut self,
        context: &RequestContext,
        lease: Lease,
    ) -> Result<Response, Failure> {
        // A labelled block, because a `match` would keep its value in the future while an arm awaits.
        let (served, reply) = 'reached: {
            let refused = match self.send(lease).await? {
                Ok(reached) => break 'reached reached,
                Err(refused) => refused,
            };
            return Box::pin(self.refused(*refused)).await;
        };
        let (head, mut upstream) = reply.into_parts();
        self.note_ignored(&head.headers);
        upstream.reuse(head.headers);
        if self.request.scanned.stream {
            let within = self.app.config().server.keep_alive_comment.duration();
            let begun = first_event::wait(&mut upstream, &served, within).await;
            let begun = match begun? {
                Beginning::Stream(begun) => begun,
                Beginning::Refused(refusal) if self.ends(&refusal) => {
                    return Err(self.ended(&served).await);
                }
                Beginning::Refused(refusal) => {
                    served.responded(refusal.status.as_u16());
                    served.give_back();
                    return Ok(refusal.into_response());
                }
            };
            let (frames, feed) = fed::frames();
            let stream = self.forwarding(begun, upstream, served);
            let body = feed.by(work(async move { stream::forward(stream, &frames).await }));
            let response = event_stream(body, self.request.teller.stream_type());
            return Ok(note(response, &self.request.outgoing.ignored));
        }
        let reply = if self.is_plain {
            let reply = match whole::pass(served, upstream).await? {
                Whole::Held(reply) => reply,
                Whole::Passing(reply) => {
                    self.kept = None;
                    reply
                }
            };
            whole::with_head(reply, context.headers())
        } else {
            self.aggregate(served, upstream).await?
        };
        Ok(note(reply, &self.request.outgoing.ignored))
    }

    async fn refused(&mut self, refused: Refused) -> Result<Response, Failure> {
        let Refused { served, head, body } = refused;
        if head.status.is_server_error() && self.is_exit_message(&String::from_utf8_lossy(&body)) {
            return Err(self.ended(&served).await);
        }
        served.responded(head.status.as_u16());
        Ok(engine_error_of((head, body), &served))
    }

    /// The error after the engine announced that it exits. If it still runs, the request is not retried, because the second seat
    /// might be on the same engine.
    async fn ended(&mut self, served: &InFlightRequest) -> Failure {
        let failure = ended(served).await;
        if served.lease.why().is_none() {
            self.kept = None;
        }
        failure
    }

    /// Returns true if this error says that the engine is about to exit.
    fn ends(&self, refusal: &Refusal) -> bool {
        refusal.status.is_server_error() && self.is_exit_message(&refusal.error.to_string())
    }

    fn is_exit_message(&self, error: &str) -> bool {
        self.request.route.entry.recipe.is_exit_message(error)
    }

    fn as_chat(&self) -> Option<AsChat> {
        self.request.outgoing.serves_chat.then(AsChat::default)
    }

    /// The engine's response on its way to the client: the bytes received so far, and the rest.
    pub(crate) fn forwarding(
        &self,
        begun: Bytes,
        upstream: Incoming,
        served: InFlightRequest,
    ) -> Box<stream::Forwarding> {
        let show = Show {
            usage: self.request.scanned.include_usage,
            pause_every: self.app.config().server.keep_alive_comment.duration(),
            exit_messages: self.request.route.entry.recipe.exit_messages(),
            choices: self.request.choices,
            tier: self.tier,
        };
        Box::new(stream::Forwarding {
            app: self.app.clone(),
            begun,
            upstream,
            served,
            show,
            telling: self.telling(),
        })
    }

    pub(crate) fn telling(&self) -> Telling {
        Telling::new(self.as_chat(), self.request.teller.clone())
    }

    /// Adds the fields that the engine reports as ignored, under the client's names for them.
    fn note_ignored(&mut self, headers: &HeaderMap) {
        let names = headers
            .get(ENGINE_IGNORED)
            .and_then(|value| value.to_str().ok());
        let names = names.into_iter().flat_map(|names| names.split(", "));
        for name in names.take(IGNORED_MAX) {
            let own = self
                .request
                .outgoing
                .reasoning
                .name_of_sent(name)
                .unwrap_or(name);
            if !self
                .request
                .outgoing
                .ignored
                .iter()
                .any(|known| known == own)
            {
                self.request.outgoing.ignored.push(own.to_owned());
            }
        }
    }

    /// Sends the request to the lease's engine in a form that the engine accepts.
    pub async fn send(
        &mut self,
        mut lease: Lease,
    ) -> Result<Result<Reached, Box<Refused>>, Failure> {
        lease.keep(self.request.keep);
        self.request.teller.seated();
        if let Some(found) = &self.request.adapter {
            let entry = &self.request.route.entry;
            // Boxed because it is rare, and large within each request's future.
            Box::pin(adapters::enter(&self.app, entry, found, &mut lease)).await?;
        }
        let own = lease.served_name().unwrap_or(&self.request.model);
        let name = self
            .request
            .route
            .entry
            .adapter(&self.request.scanned.model)
            .unwrap_or(own);
        // Moved out so that the memory is released once the engine has the body.
        let mut body = std::mem::take(&mut self.request.body);
        // An adopted engine may serve the model under another name.
        if *name != *self.request.served_name {
            let (name, share) = (name.to_owned(), record::share());
            let named = move || renamed(&body, &name, |_, _| Ok(Fate::Goes));
            body = share.charge(self.app.reading.run(self.request.bytes, named).await?);
        }
        let replica = lease.replica();
        let wants_stream = self.request.scanned.stream;
        let mut form = self.app.upstream.support.form(replica, wants_stream);
        let is_chosen = self.request.route.entry.plain_requests == Some(true);
        let mut is_counted = false;
        if self.request.outgoing.is_plain {
            if form != Form::Plain && !is_chosen {
                // Without a stream, the tokens received by a client that disconnects are unknown. Progress is unknown too unless
                // the engine exports its own counter.
                is_counted = !self.admitted.is_limited_by_tokens() && lease.expect_whole();
            }
            if is_counted || is_chosen {
                form = Form::Plain;
            }
            if form != Form::Plain {
                body = record::share().charge(streamed(&body));
            }
        } else if form != Form::Streamed {
            // Boxed for the same reason as below.
            body = Box::pin(self.rewritten(body, form)).await?;
        }
        self.note_form(form, &lease, is_counted);
        let admitted = self.admitted.clone();
        let deadline = self.deadlines.deadline;
        let served = InFlightRequest::new(
            &self.app,
            &self.request.model,
            lease,
            self.received,
            (admitted, self.sight.clone(), self.key),
            deadline,
        );
        let path = self.request.outgoing.path;
        let again = body.clone();
        let reached = reach(&self.app, served, path, (&JSON, body)).await?;
        let refused = match accepted(reached) {
            Ok(reached) => return Ok(Ok(reached)),
            Err(refused) => refused,
        };
        // Boxed for the same reason as its argument.
        Box::pin(self.send_again(refused, again, form)).await
    }

    /// Reads an engine's refusal. If the engine refuses the form of the request, sends it again in an accepted form and remembers
    /// the form for the replica.
    async fn send_again(
        &mut self,
        refused: Box<Reached>,
        body: Bytes,
        form: Form,
    ) -> Result<Result<Reached, Box<Refused>>, Failure> {
        let replica = refused.0.lease.replica();
        let wants_stream = self.request.scanned.stream;
        let (mut refused, mut form) = (refused, form);
        let mut refusals = Vec::new();
        loop {
            let (served, response) = *refused;
            let (head, refusal) = response.into_parts();
            let refusal = limited(refusal).await;
            let read = StreamRefusal::read(head.status, &refusal).filter(|_| form != Form::Plain);
            let next = read.and_then(|read| read.next(wants_stream));
            let (Some(read), Some(next)) = (read, next.filter(|next| *next != form)) else {
                return Ok(Err(Box::new(Refused {
                    served,
                    head,
                    body: refusal,
                })));
            };
            refusals.push(read);
            tracing::info!(
                model = &*self.request.model,
                %replica,
                "engine refused to stream; sending the request in another form"
            );
            let written = self.rewritten(body.clone(), next).await?;
            self.note_form(next, &served.lease, false);
            let path = self.request.outgoing.path;
            let reached = reach(&self.app, served, path, (&JSON, written)).await?;
            form = next;
            refused = match accepted(reached) {
                Ok(reached) => {
                    // Engine errors may quote client text, so a refusal is only trusted after another form was accepted.
                    for refusal in refusals {
                        self.app.upstream.support.note(replica, refusal);
                    }
                    return Ok(Ok(reached));
                }
                Err(refused) => refused,
            };
        }
    }

    /// Rewrites the body in another form.
    async fn rewritten(&self, body: Bytes, form: Form) -> Result<Bytes, Failure> {
        let (bytes, share) = (body.len(), record::share());
        let written = move || in_form(&body, form);
        Ok(share.charge(self.app.reading.run(bytes, written).await?))
    }

    /// `is_counted`: the engine's own counter shows whether it computes.
    fn note_form(&mut self, form: Form, lease: &Lease, is_counted: bool) {
        let is_plain = form == Form::Plain;
        if is_plain && !is_counted && !lease.expect_whole() {
            // Without a counter, only the engine's health is watched.
            lease.hold();
        }
        // Responses for other APIs, and chats that the pool renders as text, need translation.
        self.is_plain = is_plain
            && matches!(self.request.teller, Teller::Plain)
            && !self.request.outgoing.serves_chat;
    }

    /// Records that the response has begun. The request cannot be retried afterwards.
    fn begun(&mut self, served: &InFlightRequest) {
        self.kept = None;
        self.request.teller.begun();
        served.first_token();
    }
}
