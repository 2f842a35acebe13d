//! A stream that begins before there is a seat: comments keep its connection open until the seat is there, then come the
//! engine's events, or the refusal as an event.

use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;

use crate::edge::{fed, record};
use crate::error::Failure;
use crate::inference::admission;
use crate::inference::answer::stream;
use crate::inference::answer::stream::{event_stream, work};
use crate::inference::answer::wait;
use crate::inference::answered::Call;
use crate::inference::request::failed;
use crate::inference::upstream::in_flight::{limited, overflow_error};
use crate::inference::upstream::remote;
use controller::Waiting;
use pool::Span;

impl Call {
    /// Answers at once and waits for the seat in a task of its own. `waited` is how long the request has waited already.
    pub fn stream_while_waiting(mut self, mut waiting: Waiting, waited: Duration) -> Response {
        let (frames, feed) = fed::frames();
        let kind = self.request.teller.stream_type();
        let body = feed.by(work(async move {
            let every = self.app.config().server.keep_alive_comment.duration();
            let deadlines = self.deadlines;
            let clock = self.app.handle.clock();
            let left = deadlines.seat.map(|most| most.saturating_sub(waited));
            let give_up = left.map(|left| clock.now() + Span(left.as_millis() as u64));
            let seat = loop {
                let comment = wait::comment(
                    &self.app.handle.snapshot(),
                    waiting.ticket,
                    self.request.route.model,
                );
                let comment = self.request.teller.comment(comment);
                if !frames.send(comment.into()).await {
                    return;
                }
                tokio::select! {
                    biased;
                    () = frames.closed() => return,
                    () = admission::over(clock, deadlines.deadline) => break Err(Failure::deadline()),
                    () = admission::over(clock, give_up) => {
                        break Err(admission::not_ready(&self.app, &self.sight, &self.request.route).await);
                    }
                    seat = tokio::time::timeout(every, waiting.seat()) => if let Ok(seat) = seat {
                        break seat.map_err(|refusal| {
                            Failure::refused(&self.request.model, &self.sight.refusal(refusal))
                        });
                    },
                }
            };
            drop(waiting);
            let sent = match seat {
                Ok(lease) => {
                    record::trace(|trace| trace.seated(lease.replica().0));
                    let waited = self.app.handle.clock().now().since(self.received);
                    let comment = wait::seated(lease.replica(), waited);
                    let comment = self.request.teller.comment(comment);
                    if !frames.send(comment.into()).await {
                        return;
                    }
                    let ending = self.app.ending();
                    tokio::select! {
                        biased;
                        () = frames.closed() => return,
                        () = admission::over(clock, deadlines.deadline) => Err(Failure::deadline()),
                        () = ending.cancelled() => Err(Failure::ending(&self.request.model)),
                        sent = self.send(lease) => sent,
                    }
                }
                Err(failure) => Err(failure),
            };
            match sent {
                Ok((served, answer)) if answer.status().is_success() => {
                    let waited = served.clock.now().since(self.received);
                    self.app
                        .metrics
                        .waited(&self.request.model, Duration::from_millis(waited.0));
                    let show = stream::Show {
                        usage: self.request.scanned.include_usage,
                        pause_every: every,
                        exit_messages: self.request.route.entry.recipe.exit_messages(),
                    };
                    let body = (Bytes::new(), answer.into_body());
                    stream::forward(body, served, show, self.telling(), &frames).await;
                }
                Ok((served, answer)) => {
                    served.answered(answer.status().as_u16());
                    served.give_back();
                    let status = answer.status();
                    let body = remote::masked(&served.lease, limited(answer.into_body()).await);
                    let body = overflow_error(status, &body).unwrap_or(body);
                    stream::last(&frames, self.telling().engine_refused(&body)).await;
                }
                Err(failure) => {
                    failed::mark(&failure);
                    self.app
                        .metrics
                        .request(&self.request.model, failure.status.as_u16());
                    stream::last(&frames, self.telling().failed(&failure)).await;
                }
            }
        }));
        event_stream(body, kind)
    }
}
