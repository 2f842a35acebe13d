//! The pool for pages that stay open: the whole view, and then what changes of it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::event_streams::{HEARTBEAT_EVERY, is_over, while_allowed};
use super::fields::{Fields, Params, Strict};
use super::live_view::source;
use crate::auth::Reader;
use crate::dto::{EventView, LiveChange, LiveView};
use crate::error::Failure;
use crate::live::{Joined, event};
use crate::openapi::AdminErrors;
use crate::state::App;
use pool::{Span, Time};
use store::StoredRecord;

/// How often a stream without news says that it is alive.
const HEARTBEAT: Span = Span::from_secs(10);
const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Either event's data.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the data of events for the document")]
enum LiveEvent {
    View(LiveView),
    Change(LiveChange),
    Record(EventView),
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LiveQuery {
    /// Also send what is decided, so that a page needs one connection.
    #[param(example = false)]
    events: Option<bool>,
}

impl Strict for LiveQuery {
    fn read(fields: &mut Fields) -> Result<LiveQuery, Failure> {
        Ok(LiveQuery {
            events: fields.flag("events")?,
        })
    }
}

/// Follow the pool
///
/// An event stream: first an event `view` with the models, the devices, the queue, the evening and the store, then an event `change` with
/// what is not the same any more, at most every 100 ms. A client that lags is sent a `view` again. With `events=true` each decision
/// from then on is an event `record`, as in `GET /admin/events`; an event `missed` says that the client lagged, and has to read them
/// there. The stream ends with the session or the key that opened it. A key that is for some models sees these models alone.
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/live", tag = "admin: pool", operation_id = "follow_pool", security(("admin_key" = [])),
    params(LiveQuery),
    responses(
        (status = 200, description = "The stream", body = LiveEvent, content_type = "text/event-stream",
            example = json!("event: view\ndata: {\"at\":\"2026-01-31T20:15:00.123Z\",…}\n\n")),
        AdminErrors,
    )
)]
pub async fn follow(
    State(app): State<App>,
    reader: Reader,
    Params(query): Params<LiveQuery>,
) -> Response {
    // Before the view, so that nothing falls between.
    let records = (query.events == Some(true)).then(|| app.handle.follow());
    let Joined {
        first_event,
        changes,
    } = join(&app, &reader);
    let now = app.handle.clock().now();
    let (ends_with, rights) = (reader.clone(), app.clone());
    let follower = Follower {
        app,
        reader,
        first: Some(first_event),
        changes,
        records,
        sent_at: now,
    };
    let pieces = stream::unfold(follower, |mut follower| async move {
        let piece = follower.next().await?;
        Some((Ok::<_, Infallible>(piece), follower))
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (NO_BUFFER, HeaderValue::from_static("no")),
    ];
    let pieces = while_allowed(&rights, ends_with, pieces);
    (headers, Body::from_stream(pieces)).into_response()
}

fn join(app: &App, reader: &Reader) -> Joined {
    let sight = &reader.sight;
    app.live.join(&sight.group(), || source(app, sight))
}

/// What a stream waits for.
enum Heard {
    Change(Result<Bytes, RecvError>),
    Record(Result<Arc<StoredRecord>, RecvError>),
    Nothing,
}

struct Follower {
    app: App,
    reader: Reader,
    first: Option<Bytes>,
    changes: Receiver<Bytes>,
    /// Decisions, for those who want them.
    records: Option<Receiver<Arc<StoredRecord>>>,
    /// When anything was sent.
    sent_at: Time,
}

impl Follower {
    /// The next piece of the stream; nothing at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let heard = self.hear().await;
            let now = self.app.handle.clock().now();
            match heard {
                Heard::Change(Ok(change)) => {
                    self.sent_at = now;
                    return Some(change);
                }
                Heard::Change(Err(RecvError::Lagged(_))) => {
                    let Joined {
                        first_event,
                        changes,
                    } = join(&self.app, &self.reader);
                    self.changes = changes;
                    return Some(first_event);
                }
                Heard::Record(Ok(record)) => {
                    self.sent_at = now;
                    return Some(event("record", &*record));
                }
                Heard::Record(Err(RecvError::Lagged(_))) => {
                    return Some(Bytes::from_static(b"event: missed\ndata: {}\n\n"));
                }
                Heard::Change(Err(RecvError::Closed)) | Heard::Record(Err(RecvError::Closed)) => {
                    return None;
                }
                Heard::Nothing if is_over(&self.app) => return None,
                Heard::Nothing if now.since(self.sent_at) >= HEARTBEAT => {
                    self.sent_at = now;
                    return Some(Bytes::from_static(b":\n\n"));
                }
                Heard::Nothing => {}
            }
        }
    }

    async fn hear(&mut self) -> Heard {
        let Follower {
            changes, records, ..
        } = self;
        let record = async {
            match records {
                Some(records) => records.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            change = changes.recv() => Heard::Change(change),
            record = record => Heard::Record(record),
            () = tokio::time::sleep(HEARTBEAT_EVERY) => Heard::Nothing,
        }
    }
}
