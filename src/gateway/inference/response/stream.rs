//! The body of a streaming response: forwards the engine's events as they arrive and holds the lease until the last byte or until
//! the client disconnects. A stream that is cut ends with an error object.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Frame;

use crate::inference::admission;
use crate::inference::in_flight::{self, InFlightRequest, WHY_WITHIN, why};
use crate::inference::response::kept::{Progress, announces_end, keep};
use crate::inference::response::slow_reader::{Passed, STALLED_MAX, SlowReader};
use crate::reading::AT_ONCE_BYTES;
use crate::state::App;
use crate::upstream::proxy::Incoming;
use crate::upstream::remote;
use api_types::error::Failure;
use dialect::as_stream;
use dialect::assembler::ANSWER_MAX;
use dialect::events::{BodyForm, Unended, event_end_from, is_whole};
use dialect::{Teller, Telling};
use edge::fed::{Fed, Frames, Unsent};
use edge::quiet::quiet;
use edge::record;
use edge::seldom::seldom;
use pool::Span;

/// Longest time an engine may take to end the body after a complete response. If it does so in time, its connection is reused.
pub const OPEN_MAX: Duration = Duration::from_secs(1);

/// Options for the stream that the client receives.
#[derive(Clone, Copy)]
pub struct Show {
    /// Sends the usage as the last chunk.
    pub usage: bool,
    /// Interval of keep-alives while the engine sends nothing, in dialects that have them.
    pub pause_every: Duration,
    /// Substrings of an engine's error that announce its exit. The client gets the cause instead.
    pub exit_messages: &'static [&'static str],
    /// The number of requested choices.
    pub choices: usize,
}

/// An engine's response that is being forwarded.
pub struct Forwarding {
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
pub async fn forward(mut stream: Box<Forwarding>, frames: &Frames) {
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
    let announces = telling.pause().is_some();
    let mut silence = pin!(tokio::time::sleep(show.pause_every));
    let pause_every = Span(show.pause_every.as_millis() as u64);
    let mut heard = clock.now();
    // Other APIs repeat the text at the end, which requires keeping it.
    let keeps = telling.changes();
    let changes = keeps || remote::of_lease(&served.lease).is_some();
    let mut length = 0;
    let mut unended = Unended::default();
    let mut first = true;
    let mut reader = SlowReader::default();
    let mut progress = Progress::new(show.choices);
    let mut form = None;
    let mut json = Vec::new();
    let mut has_ended = false;
    let mut begun = Some(std::mem::take(begun)).filter(|begun| !begun.is_empty());
    let failure = 'answer: loop {
        let frame = if let Some(begun) = begun.take() {
            Some(Ok(Frame::data(begun)))
        } else {
            tokio::select! {
                biased;
                // Forwards available data first, unless the lease is already known to be cut.
                frame = upstream.frame(), if served.lease.why().is_none() => frame,
                ended = &mut ended => match ended {
                    End::Cut => break Some(why(served).await),
                    End::Process => break Some(Failure::ending(&served.model)),
                    End::Late => break Some(Failure::deadline()),
                    End::Left => return,
                },
                () = silence.as_mut(), if announces => {
                    if clock.now() >= heard + pause_every {
                        let pause = telling.pause().unwrap_or_default();
                        let pause = Bytes::from_static(pause.as_bytes());
                        match pass_on(app, frames, pause, served, &mut reader).await {
                            Passed::On => {}
                            Passed::Left => return,
                            Passed::Stalled => break Some(Failure::stalled_reader(STALLED_MAX)),
                        }
                        heard = clock.now();
                    }
                    silence.as_mut().reset(clock.instant(heard + pause_every));
                    continue;
                }
            }
        };
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                length += data.len();
                if form.is_none() {
                    form = BodyForm::read(&data);
                }
                let is_json = form == Some(BodyForm::Json);
                if (keeps || is_json) && length > ANSWER_MAX {
                    let why =
                        format!("more than {ANSWER_MAX} bytes without an end; set max_tokens");
                    break Some(Failure::engine(&served.model, why));
                }
                if is_json {
                    served.token();
                    json.extend_from_slice(&data);
                    continue;
                }
                let in_buffer = !unended.is_empty();
                let (bytes, mut from) = if in_buffer {
                    unended.with(&data)
                } else {
                    (&data[..], 0)
                };
                let mut used = 0;
                let mut is_ending = false;
                // Allocates only if events are rewritten.
                let mut written = changes.then(Vec::new);
                while let Some(length) = event_end_from(&bytes[used..], std::mem::take(&mut from)) {
                    let event = &bytes[used..used + length];
                    is_ending = announces_end(event, show.exit_messages);
                    if is_ending {
                        break;
                    }
                    let kept = keep(event, show.usage, served, &mut progress);
                    match (&mut written, kept) {
                        (None, true) => {}
                        (None, false) => written = Some(bytes[..used].to_vec()),
                        (Some(_), false) => {}
                        (Some(written), true) if changes => {
                            let event = if event.len() <= AT_ONCE_BYTES {
                                telling.event(event.to_vec())
                            } else {
                                match Box::pin(translated(app, telling, event.to_vec())).await {
                                    Ok(event) => event,
                                    Err(failure) => break 'answer Some(failure),
                                }
                            };
                            let event = remote::renamed(&served.lease, &served.model, event);
                            written.extend(event);
                        }
                        (Some(written), true) => written.extend_from_slice(event),
                    }
                    used += length;
                    // Ignores bytes after a complete response.
                    if progress.done {
                        break;
                    }
                }
                let ready = match written {
                    Some(written) => written.into(),
                    None if in_buffer => Bytes::copy_from_slice(&bytes[..used]),
                    None => data.slice(..used),
                };
                let bounded = if in_buffer {
                    unended.used(used)
                } else {
                    unended.with(&data[used..]);
                    unended.used(0)
                };
                if let Err(long) = bounded {
                    served.lease.worked(false);
                    break Some(Failure::engine(&served.model, long));
                }
                if !ready.is_empty() {
                    if std::mem::take(&mut first) {
                        served.first_token();
                    }
                    match pass_on(app, frames, ready, served, &mut reader).await {
                        Passed::On => {}
                        Passed::Left => return,
                        Passed::Stalled => break Some(Failure::stalled_reader(STALLED_MAX)),
                    }
                }
                if progress.done {
                    served.responded(200);
                }
                if is_ending {
                    served.lease.worked(false);
                    break Some(in_flight::ended(served).await);
                }
                if announces {
                    heard = clock.now();
                }
                if telling.is_held() {
                    served.responded(200);
                    return Box::pin(close(stream, frames)).await;
                }
                if progress.done {
                    // The client has the complete response. Usually the body has ended too, and the timer never starts.
                    let rest = async { while let Some(Ok(_)) = upstream.frame().await {} };
                    tokio::select! {
                        biased;
                        _ = tokio::time::timeout(OPEN_MAX, rest) => {}
                        _ = &mut ended => {}
                    }
                    break None;
                }
            }
            None if form == Some(BodyForm::Json) => {
                form = Some(BodyForm::Events);
                length = 0;
                match Box::pin(written_as_events(
                    app,
                    &served.model,
                    std::mem::take(&mut json),
                ))
                .await
                {
                    Ok(events) => begun = Some(events),
                    Err(failure) => {
                        served.lease.worked(false);
                        break Some(failure);
                    }
                }
            }
            // A body may lack the last line end.
            None if !unended.is_empty() && !has_ended && is_whole(unended.bytes()) => {
                has_ended = true;
                let end: &[u8] = if unended.bytes().ends_with(b"\n") {
                    b"\n"
                } else {
                    b"\n\n"
                };
                begun = Some(Bytes::from_static(end));
            }
            // All choices are finished, and only `[DONE]` is missing.
            None if unended.is_empty() && progress.is_finished() => {
                begun = Some(Bytes::from_static(b"data: [DONE]\n\n"));
            }
            None | Some(Err(_)) => {
                served.lease.worked(false);
                break Some(why(served).await);
            }
        }
    };
    // A failure after a complete response is not reported to the client.
    if let Some(failure) = failure
        && !progress.done
    {
        served.responded(failure.status.as_u16());
        last(frames, telling.failed(&failure)).await;
    }
}

/// Translates a long event on another thread to keep this one free for other requests.
async fn translated(app: &App, telling: &mut Telling, event: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let mut own = std::mem::replace(telling, Telling::new(None, Teller::Plain));
    let bytes = event.len();
    let work = move || {
        let event = own.event(event);
        Ok((own, event))
    };
    let (own, event) = app.reading.apart(bytes, work).await?;
    *telling = own;
    Ok(event)
}

/// Converts a complete response from an engine that cannot stream into events.
async fn written_as_events(app: &App, model: &Arc<str>, json: Vec<u8>) -> Result<Bytes, Failure> {
    let (bytes, model) = (json.len(), Arc::clone(model));
    let choices_max = usize::try_from(app.config().server.sequences_max).unwrap_or(usize::MAX);
    let work = move || {
        as_stream::events(&json, choices_max)
            .map(Bytes::from)
            .map_err(|damaged| Failure::engine(&model, damaged))
    };
    app.reading.run(bytes, work).await
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
pub async fn last(frames: &Frames, event: String) {
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
) -> Passed {
    match frames.try_send(ready) {
        Ok(()) => Passed::On,
        Err(Unsent::Left) => Passed::Left,
        // Boxed because most clients keep up.
        Err(Unsent::Full(ready)) => Box::pin(reader.send(app, frames, ready, served)).await,
    }
}

/// A reason to end a stream before its engine does.
enum End {
    Cut,
    Process,
    Left,
    /// The client's deadline has passed.
    Late,
}

/// `kind` is the `content-type`.
pub fn event_stream(fed: Fed, kind: &'static str) -> Response {
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
pub fn work(
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
