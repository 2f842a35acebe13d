//! The body of a streamed answer: an engine's events as they come, with the lease held until the last
//! byte or until the client goes. A stream that is cut ends with an error object that says why.

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::admission;
use super::aggregate::{data_of, next_event, usage_of};
use super::dialect::Telling;
use super::error::Failure;
use super::remote;
use super::served::Served;

/// Frames that may wait for a slow reader before the engine is held back.
const FRAMES_MAX: usize = 16;
/// How long a broken stream waits to hear from the controller what happened to its engine.
const WHY_WITHIN: std::time::Duration = std::time::Duration::from_millis(500);

pub(super) type Frames = mpsc::Sender<Result<Bytes, std::convert::Infallible>>;

/// A body that is fed by a task. Dropping the body ends the task at its next frame.
pub(super) fn fed() -> (Frames, Body) {
    let (frames, received) = mpsc::channel(FRAMES_MAX);
    (
        frames,
        Body::from_stream(ReceiverStream::new(received).map(|frame| frame)),
    )
}

/// Sends the engine's answer on, event by event. Ends when the engine ends, the pool cuts, or the
/// client goes; the lease goes with `served`.
pub(super) async fn forward(
    mut upstream: Incoming,
    served: Served,
    wants_usage: bool,
    mut telling: Telling,
    frames: &Frames,
) {
    let cut = served.lease.cut();
    let mut buffer = Vec::new();
    let mut first = true;
    let mut done = false;
    let failure = loop {
        let frame = tokio::select! {
            biased;
            () = cut.cancelled() => break Some(why(&served).await),
            () = served.ending.cancelled() => break Some(Failure::ending(&served.model)),
            () = frames.closed() => return,
            () = admission::over(served.clock, served.deadline) => break Some(Failure::deadline()),
            frame = upstream.frame() => frame,
        };
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                buffer.extend_from_slice(&data);
                let mut ready = Vec::new();
                while let Some(event) = next_event(&mut buffer) {
                    if keep(&event, wants_usage, &served, &mut done) {
                        let event = telling.event(event);
                        ready.extend(remote::renamed(&served.lease, &served.model, event));
                    }
                }
                if ready.is_empty() {
                    continue;
                }
                if std::mem::take(&mut first) {
                    served.first_token();
                }
                if !pass_on(frames, ready.into(), &served).await {
                    return;
                }
            }
            None | Some(Err(_)) if done => break None,
            // An end without `[DONE]` is no end, however politely the connection was closed.
            None | Some(Err(_)) => {
                served.lease.worked(false);
                break Some(why(&served).await);
            }
        }
    };
    match failure {
        None => served.answered(200),
        Some(failure) => {
            served.answered(failure.status.as_u16());
            let _ = frames.send(Ok(telling.failed(&failure).into())).await;
        }
    }
}

/// Whether the client is still there. One that does not read holds the engine back, whose silence
/// is not its own then.
async fn pass_on(frames: &Frames, ready: Bytes, served: &Served) -> bool {
    match frames.try_send(Ok(ready)) {
        Ok(()) => true,
        Err(TrySendError::Closed(_)) => false,
        Err(TrySendError::Full(ready)) => {
            served.lease.hold();
            let cut = served.lease.cut();
            // A client that never reads on must not keep a cut stream for ever.
            let sent = tokio::select! {
                biased;
                sent = frames.send(ready) => sent.is_ok(),
                () = cut.cancelled() => true,
            };
            served.lease.resume();
            sent
        }
    }
}

/// Whether the client gets this event. The usage is always asked of the engine, and shown to those
/// who asked for it.
fn keep(event: &[u8], wants_usage: bool, served: &Served, done: &mut bool) -> bool {
    let Some(data) = data_of(event) else {
        return true;
    };
    served.lease.token();
    if data == b"[DONE]" {
        *done = true;
        return true;
    }
    // Cheap enough to look for, and rare enough to parse.
    if !data.windows(7).any(|window| window == b"\"usage\"") {
        return true;
    }
    let Ok(chunk) = serde_json::from_slice::<serde_json::Value>(data) else {
        return true;
    };
    let Some(usage) = usage_of(&chunk) else {
        return true;
    };
    served.tokens(usage);
    let only_usage = chunk
        .get("choices")
        .and_then(|choices| choices.as_array())
        .is_some_and(Vec::is_empty);
    wants_usage || !only_usage
}

/// Why the answer broke off: the controller knows, at the latest a moment later.
pub(super) async fn why(served: &Served) -> Failure {
    let cut = served.lease.cut();
    let _ = tokio::time::timeout(WHY_WITHIN, cut.cancelled()).await;
    match served.lease.why() {
        Some(why) => Failure::cut(&served.model, why),
        // It lives; it only does not speak properly.
        None => Failure::engine(&served.model, "it broke the connection off"),
    }
}
