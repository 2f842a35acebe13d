//! The live view of the pool: a complete view first, followed by its changes.

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
use super::live_view::source;
use api_types::dto::{EventView, LiveChange, LiveView};
use api_types::error::Failure;
use gateway::auth::Reader;
use gateway::fields::{Fields, Params, Strict};
use gateway::live::{Joined, event};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::{Span, Time};
use store::StoredRecord;

/// Interval of keep-alives on a silent stream.
const HEARTBEAT: Span = Span::from_secs(10);
const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The data of either event.
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
pub(crate) struct LiveQuery {
    /// Also send decisions, so a page needs only one connection.
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
/// An event stream. The first event is a `view` with the models, the devices, the queue, the evening and the store; events `change`
/// follow with the differences, at most every 100 ms. A client that lags receives another `view`. With `events=true`, each new
/// decision is sent as an event `record`, as in `GET /admin/events`; an event `missed` says that the client lagged and must read
/// the missed records there. The stream ends with the session or the key that opened it. A key that is restricted to some models
/// only sees these models.
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
pub(crate) async fn follow(
    State(app): State<App>,
    reader: Reader,
    Params(query): Params<LiveQuery>,
) -> Response {
    // Subscribes before the view is built, to miss no decision.
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

/// The next input of a stream.
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
    /// Decisions, if requested.
    records: Option<Receiver<Arc<StoredRecord>>>,
    /// Time of the last event.
    sent_at: Time,
}

impl Follower {
    /// The next piece of the stream; `None` at its end.
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
