//! Streams that begin before their request has a seat. Comments report the position in the queue and the progress of the load (Q2)
//! and keep the connection open; no SDK treats them as data. The engine's events follow, or the refusal as an event.

use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;

use crate::inference::admission;
use crate::inference::call::{Call, Refused};
use crate::inference::in_flight::overflow_error;
use crate::inference::request::failed;
use crate::inference::response::stream::{self, Forwarding, event_stream, work};
use crate::upstream::remote;
use api_types::error::Failure;
use controller::{QueueEntry, Snapshot};
use edge::fed::{self, Frames};
use edge::record;
use pool::{ModelId, ReplicaId, ReplicaState, Span, Ticket};

impl Call {
    /// Responds immediately and waits for the seat in a separate task. `waited` is the time the request has waited already.
    pub(crate) fn stream_while_waiting(self, waiting: QueueEntry, waited: Duration) -> Response {
        let (frames, feed) = fed::frames();
        let kind = self.request.teller.stream_type();
        let body = feed.by(work(async move {
            // Boxed to release the state of the wait before the response is forwarded.
            let seated = Box::pin(self.seated(waiting, waited, &frames)).await;
            if let Some(stream) = seated {
                stream::forward(stream, &frames).await;
            }
        }));
        event_stream(body, kind)
    }

    /// The engine's response once the request has a seat. `None` if the client received an error or disconnected.
    async fn seated(
        mut self,
        mut waiting: QueueEntry,
        waited: Duration,
        frames: &Frames,
    ) -> Option<Box<Forwarding>> {
        let every = self.app.config().server.keep_alive_comment.duration();
        let deadlines = self.deadlines;
        let clock = self.app.handle.clock();
        let left = deadlines.seat.map(|most| most.saturating_sub(waited));
        let give_up = left.map(|left| clock.now() + Span(left.as_millis() as u64));
        let seat = loop {
            let comment = comment(
                &self.app.handle.snapshot(),
                waiting.ticket,
                self.request.route.model,
            );
            let comment = self.request.teller.comment(comment);
            if !frames.send(comment.into()).await {
                return None;
            }
            tokio::select! {
                biased;
                () = frames.closed() => return None,
                () = admission::over(clock, deadlines.deadline) => break Err(Failure::deadline()),
                () = admission::over(clock, give_up) => {
                    break Err(admission::not_ready(&self.app, &self.sight, &self.request.route).await);
                }
                seat = tokio::time::timeout(every, waiting.seat()) => if let Ok(seat) = seat {
                    break seat.map_err(|refusal| {
                        self.app.refused_after_waiting(&self.request.model);
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
                let comment = seat_comment(lease.replica(), waited);
                let comment = self.request.teller.comment(comment);
                if !frames.send(comment.into()).await {
                    return None;
                }
                let ending = self.app.ending();
                tokio::select! {
                    biased;
                    () = frames.closed() => return None,
                    () = admission::over(clock, deadlines.deadline) => Err(Failure::deadline()),
                    () = ending.cancelled() => Err(Failure::ending(&self.request.model)),
                    sent = self.send(lease) => sent,
                }
            }
            Err(failure) => Err(failure),
        };
        match sent {
            Ok(Ok((served, response))) => {
                let waited = served.clock.now().since(self.received);
                self.app
                    .metrics
                    .waited(&self.request.model, Duration::from_millis(waited.0));
                return Some(self.forwarding(Bytes::new(), response.into_body(), served));
            }
            Ok(Err(refused)) => {
                let Refused { served, head, body } = *refused;
                served.responded(head.status.as_u16());
                served.give_back();
                let body = remote::masked(&served.lease, body);
                let body = overflow_error(head.status, &body).unwrap_or(body);
                stream::last(frames, self.telling().engine_refused(&body)).await;
            }
            Err(failure) => {
                failed::mark(&failure);
                self.app
                    .metrics
                    .request(&self.request.model, failure.status().as_u16());
                stream::last(frames, self.telling().failed(&failure)).await;
            }
        }
        None
    }
}

/// Returns `: waiting position=1 stage=loading percent=40 expected_seconds=3`, with `expected_seconds_min` and
/// `expected_seconds_max` if later requests or unmeasured loads may change the wait by more than a fifth.
fn comment(snapshot: &Snapshot, ticket: Ticket, model: ModelId) -> String {
    let waiting = snapshot
        .pool
        .waiting
        .iter()
        .find(|waiter| waiter.ticket == ticket);
    let position = waiting.map_or(0, |waiter| waiter.position);
    let expected = waiting.map_or(0, |waiter| waiter.expected.secs_up());
    let (stage, percent) = stage(snapshot, model);
    let percent = percent
        .map(|percent| format!(" percent={percent}"))
        .unwrap_or_default();
    let range = waiting
        .and_then(|waiter| waiter.range)
        .map(|range| {
            let (least, most) = (range.least.0 / 1_000, range.most.secs_up());
            format!(" expected_seconds_min={least} expected_seconds_max={most}")
        })
        .unwrap_or_default();
    format!(
        ": waiting position={position} stage={stage}{percent} expected_seconds={expected}{range}\n\n"
    )
}

/// Returns `: seated replica=r3 waited_ms=12000`.
fn seat_comment(replica: ReplicaId, waited: Span) -> String {
    format!(": seated replica={replica} waited_ms={}\n\n", waited.0)
}

/// The stage of the model's load in one word, with its percentage if the engine reports one.
fn stage(snapshot: &Snapshot, model: ModelId) -> (String, Option<u8>) {
    let view = snapshot
        .pool
        .models
        .iter()
        .find(|candidate| candidate.model == model);
    let Some(view) = view else {
        return ("queued".to_owned(), None);
    };
    if let Some(fetch) = snapshot.fetches.get(&model) {
        return ("fetching".to_owned(), fetch.progress.percent());
    }
    for replica in &view.replicas {
        match replica.state {
            ReplicaState::Planned => return ("making-room".to_owned(), None),
            ReplicaState::Launching => {
                let process = snapshot.processes.get(&replica.replica);
                let stage = process.and_then(|process| process.stage.as_ref());
                return (
                    stage.map_or("starting".to_owned(), |progress| progress.stage.to_string()),
                    stage.and_then(|progress| progress.percent),
                );
            }
            ReplicaState::Ready => return ("busy".to_owned(), None),
            _ => {}
        }
    }
    ("queued".to_owned(), None)
}
