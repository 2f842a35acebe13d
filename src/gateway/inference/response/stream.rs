//! The body of a streaming response: forwards the engine's events as they arrive and holds the lease until the last byte or until
//! the client disconnects. A stream that is cut ends with an error object.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Frame;

use crate::inference::admission;
use crate::inference::in_flight::{self, InFlightRequest, WHY_WITHIN, why};
use crate::inference::request::failed;
use crate::inference::response::events::{Events, Show};
use crate::inference::response::slow_reader::{Passed, STALLED_MAX, SlowReader};
use crate::state::App;
use crate::upstream::proxy::Incoming;
use api_types::error::Failure;
use dialect::Telling;
use edge::fed::{Fed, Frames, Unsent};
use edge::quiet::quiet;
use edge::record;
use edge::seldom::seldom;
use pool::Span;

/// Longest time an engine may take to end the body after a complete response. If it does so in time, its connection is reused.
pub(crate) const OPEN_MAX: Duration = Duration::from_secs(1);

/// An engine's response that is being forwarded.
pub(crate) struct Forwarding {
    pub app: App,
    /// The bytes received so far.
    pub begun: Bytes,
    /// The rest of the body.
    pub upstream: Incoming,
    pub served: InFlightRequest,
    pub show: Show,
    pub telling: Telling,
}

/// Forwards the engine's response, event by event, until the engine ends it, the pool cuts it, or the client disconnects; then
/// releases the lease. Takes a box, because each surrounding future would move the value and keep twice its size during the stream.
pub(crate) async fn forward(mut stream: Box<Forwarding>, frames: &Frames) {
    let Forwarding {
        app,
        begun,
        upstream,
        served,
        show,
        telling,
    } = &mut *stream;
    let served = &*served;
    let (cut, ending) = (served.lease.cut(), served.ending.clone());
    let (clock, deadline) = (served.clock, served.deadline);
    let mut ended = pin!(seldom(async {
        tokio::select! {
            biased;
            () = cut.cancelled() => End::Cut,
            () = ending.cancelled() => End::Process,
            () = frames.closed() => End::Left,
            () = admission::over(clock, deadline) => End::Late,
        }
    }));
    // A single timer that is re-armed when it fires, not at each event.
    let pause = telling.pause();
    let mut silence = pin!(tokio::time::sleep(show.pause_every));
    let pause_every = Span(show.pause_every.as_millis() as u64);
    let mut heard = clock.now();
    let mut reader = SlowReader::default();
    let mut is_first = true;
    let mut begun = Some(std::mem::take(begun)).filter(|begun| !begun.is_empty());
    let mut events = Events::new(app, served, *show, telling);
    let end = loop {
        let frame = if let Some(begun) = begun.take() {
            Some(Ok(Frame::data(begun)))
        } else {
            tokio::select! {
                biased;
                // Forwards available data first, unless the lease is already known to be cut.
                frame = upstream.frame(), if served.lease.why().is_none() => frame,
                ended = &mut ended => break ended,
                () = silence.as_mut(), if pause.is_some() => {
                    if clock.now() >= heard + pause_every {
                        let pause = Bytes::from_static(pause.unwrap_or_default().as_bytes());
                        if let Err(end) = pass_on(app, frames, pause, served, &mut reader).await {
                            break end;
                        }
                        heard = clock.now();
                    }
                    silence.as_mut().reset(clock.instant(heard + pause_every));
                    continue;
                }
            }
        };
        let taken = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => events.take(&data).await,
                Err(_) => continue,
            },
            None => match events.end().await {
                Ok(rest) => {
                    begun = Some(rest);
                    continue;
                }
                Err(failure) => Err(failure),
            },
            Some(Err(_)) => Err(events.broken().await),
        };
        let taken = match taken {
            Ok(Some(taken)) => taken,
            Ok(None) => continue,
            Err(failure) => break End::Failed(failure),
        };
        if !taken.bytes.is_empty() {
            if std::mem::take(&mut is_first) {
                served.first_token();
            }
            if let Err(end) = pass_on(app, frames, taken.bytes, served, &mut reader).await {
                break end;
            }
        }
        if events.is_done() {
            served.responded(200);
        }
        if taken.announces_exit {
            served.lease.worked(false);
            break End::Failed(in_flight::ended(served).await);
        }
        if pause.is_some() {
            heard = clock.now();
        }
        if events.is_held() {
            served.responded(200);
            return Box::pin(close(stream, frames)).await;
        }
        if events.is_done() {
            // The client has the complete response. Usually the body has ended too, and the timer never starts.
            let rest = async { while let Some(Ok(_)) = upstream.frame().await {} };
            tokio::select! {
                biased;
                _ = tokio::time::timeout(OPEN_MAX, rest) => {}
                _ = &mut ended => {}
            }
            return;
        }
    };
    // A failure after a complete response is not reported to the client.
    if let Some(failure) = end.failure(served).await
        && !events.is_done()
    {
        failed::note(&failure);
        served.responded(failure.status().as_u16());
        last(frames, events.failed(&failure)).await;
    }
}

/// Sends the last event once the response is on disk. In parallel, reads the rest of the engine's body to reuse its connection and
/// to free the seat.
async fn close(stream: Box<Forwarding>, frames: &Frames) {
    let Forwarding {
        mut upstream,
        served,
        mut telling,
        ..
    } = *stream;
    let (clock, deadline, ending) = (served.clock, served.deadline, served.ending.clone());
    let rest = async move {
        let read = async { while let Some(Ok(_)) = upstream.frame().await {} };
        let _ = tokio::time::timeout(WHY_WITHIN, read).await;
        drop(served);
    };
    let closed = async {
        let event = telling.closed().await;
        tokio::select! {
            biased;
            _ = frames.send(event.into()) => {}
            () = ending.cancelled() => {}
            () = admission::over(clock, deadline) => {}
        }
    };
    tokio::join!(rest, closed);
}

/// Queues the end of a stream without waiting, because a client that does not read must not keep its seat.
pub(crate) async fn last(frames: &Frames, event: String) {
    frames.send_beyond(event.into());
}

/// Forwards a piece. While no other request waits, a client that does not read holds back the engine; the silence is then not
/// attributed to the engine.
async fn pass_on(
    app: &App,
    frames: &Frames,
    ready: Bytes,
    served: &InFlightRequest,
    reader: &mut SlowReader,
) -> Result<(), End> {
    let passed = match frames.try_send(ready) {
        Ok(()) => Passed::On,
        Err(Unsent::Left) => Passed::Left,
        // Boxed because most clients keep up.
        Err(Unsent::Full(ready)) => Box::pin(reader.send(app, frames, ready, served)).await,
    };
    match passed {
        Passed::On => Ok(()),
        Passed::Left => Err(End::Left),
        Passed::Stalled => Err(End::Failed(Failure::stalled_reader(STALLED_MAX))),
    }
}

/// A reason to end a stream before its engine has completed it.
enum End {
    Cut,
    Process,
    Left,
    /// The client's deadline has passed.
    Late,
    Failed(Failure),
}

impl End {
    /// The error for the client. `None` if it has disconnected.
    async fn failure(self, served: &InFlightRequest) -> Option<Failure> {
        match self {
            End::Cut => Some(why(served).await),
            End::Process => Some(Failure::ending(&served.model)),
            End::Late => Some(Failure::deadline()),
            End::Failed(failure) => Some(failure),
            End::Left => None,
        }
    }
}

/// `kind` is the `content-type`.
pub(crate) fn event_stream(fed: Fed, kind: &'static str) -> Response {
    let mut response = Response::default();
    *response.body_mut() = fed.into_body(response.extensions_mut());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Keeps proxies from buffering the comments.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Wraps the work of a stream with the record and the span of its request, for any task that polls it.
pub(crate) fn work(
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    // Boxed first, because each surrounding future would move the value and keep twice its size.
    record::carried(Box::pin(task))
}

/// Spawns the task of a stream. It ends with the engine, the lease or the client, whichever is first.
#[expect(
    clippy::disallowed_methods,
    reason = "ends with the body it feeds; a shutdown drains leases first"
)]
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    // Boxed first, because each surrounding future would move the value and keep twice its size.
    tokio::spawn(quiet(record::carried(Box::pin(task))));
}
