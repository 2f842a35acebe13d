//! The history, in pages or as a live stream. A follower receives every record exactly once, in order: stored records come from the
//! store and new ones from the keeper, joined by their ids.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;
use utoipa::openapi::{Object, ObjectBuilder, Type};

use super::event_streams::{HEARTBEAT_EVERY, is_over, while_allowed};
use super::history_filters::{When, asker, is_within};
use api_types::dto::{EventList, EventView};
use api_types::error::{ErrorKind, Failure};
use gateway::auth::Reader;
use gateway::fields::{Fields, Params, Strict};
use gateway::known_model::unknown;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::RecordKind;
use store::{HistoryQuery, StoreError, StoredRecord};

const LIMIT: u32 = 100;
/// Records per read from the store.
const PAGE: u32 = 200;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only records with an id above this one, such as `100`. The default is the newest records.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// The largest number of records on the page. The default is 100. A stream has no limit.
    #[param(minimum = 1, maximum = 1000, example = 100)]
    limit: Option<u32>,
    /// Only records of this model.
    #[param(min_length = 1)]
    model: Option<String>,
    /// Only records of this kind, such as `load`, `ready`, `evict` or `refuse`.
    #[param(schema_with = kinds)]
    kind: Option<&'static str>,
    /// Only records with this reason, such as `preempted`, `keep_hot`, `requests` or `no_room`: the field `cause` of an event.
    #[param(schema_with = causes)]
    reason: Option<&'static str>,
    /// Only records requested by this key: its id, its name, or `anonymous`.
    #[param(min_length = 1, max_length = 100, example = "k3")]
    by: Option<String>,
    /// Only records that members of this group or of the groups below it caused: a name, or a path such as `physics/lab`. Records of
    /// older versions have no group.
    #[param(min_length = 1, max_length = 1000, example = "lab")]
    group: Option<String>,
    /// Only records since this time: a duration before now, such as `2d`, or a timestamp.
    #[param(value_type = Option<String>, min_length = 1, example = "2d")]
    since: Option<When>,
    /// Only records before this time.
    #[param(value_type = Option<String>, min_length = 1, example = "1h")]
    until: Option<When>,
    /// Return a stream of events, as with `Accept: text/event-stream`.
    #[param(example = false)]
    follow: Option<bool>,
}

/// The header with which a broken stream is continued.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "describes a header for the document; `last_event` reads it"
)]
pub(crate) struct LastEvent {
    /// The id of the last record received, such as `117`.
    #[param(
        rename = "Last-Event-ID", value_type = String, required = false,
        pattern = "^[0-9]{0,18}$"
    )]
    last_event_id: Option<i64>,
}

fn kinds() -> Object {
    let names = RecordKind::ALL.map(|kind| kind.name());
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(names))
        .description(Some("Only records of this kind."))
        .build()
}

fn causes() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(pool::causes()))
        .description(Some("Only records of this reason."))
        .build()
}

/// The limit of [`group`]. The document states it, too.
const GROUP_CHARS_MAX: usize = 1_000;

/// Reads a name or a path of groups.
pub(crate) fn group(fields: &mut Fields) -> Result<Option<String>, Failure> {
    let group = fields.text("group")?;
    match group.as_ref().map(|group| group.chars().count()) {
        Some(count) if count > GROUP_CHARS_MAX => {
            let message = format!(
                "group: has {count} characters; allowed: a name or a path of at most {GROUP_CHARS_MAX}"
            );
            Err(Failure::invalid(Some("group".to_owned()), message))
        }
        _ => Ok(group),
    }
}

impl Strict for EventsQuery {
    fn read(fields: &mut Fields) -> Result<EventsQuery, Failure> {
        let after = fields.integer("after", 0..=i64::MAX.unsigned_abs())?;
        let kinds = RecordKind::ALL.map(|kind| (kind.name(), kind.name()));
        let causes: Vec<_> = pool::causes().map(|cause| (cause, cause)).collect();
        Ok(EventsQuery {
            after: after.map(|after| i64::try_from(after).unwrap_or(i64::MAX)),
            limit: fields.integer("limit", 1..=HistoryQuery::LIMIT_MAX)?,
            model: fields.text("model")?,
            kind: fields.choice("kind", &kinds)?,
            reason: fields.choice("reason", &causes)?,
            by: fields.text("by")?,
            group: group(fields)?,
            since: When::read(fields, "since")?,
            until: When::read(fields, "until")?,
            follow: fields.flag("follow")?,
        })
    }
}

/// Show the history
///
/// Every decision with its reason (D3), oldest first. With `Accept: text/event-stream` or `follow=true` the response is an event
/// stream: `id` is the record's id, `event` its kind, `data` the record. The stream begins after `after` or `Last-Event-ID`;
/// without them, with the next decision. If the store cannot be read, the stream ends with an event `error`. The stream ends with
/// the session or the key that opened it.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/events", tag = "admin: history", operation_id = "list_events", security(("admin_key" = [])),
    params(EventsQuery, LastEvent),
    responses(
        (status = 200, description = "A page, or the stream", content(
            (EventList<EventView> = "application/json", example = json!({"events": [{
                "id": 118, "at": "2026-01-31T20:15:00.123Z", "kind": "evict", "model": "tiny-code",
                "replica": "r1", "order": "o5", "priority": 0, "took_ms": 3600000, "candidates": [],
                "reason": "preempted by tiny-chat: priority 1 over 0 (P2); 0 in flight", "cause": "preempted", "asked_by": "k1", "group": "physics/lab",
                "placement": [{"device": "gpu0", "bytes": 17179869184_u64}],
                "memory": [{"device": "gpu0", "before_bytes": 17179869184_u64, "after_bytes": 0}]
            }], "next_after": 118})),
            ("text/event-stream", example = json!("id: 118\nevent: evict\ndata: {\"id\":118,…}\n\n")),
        )),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    reader: Reader,
    Params(query): Params<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let model = match query.model {
        Some(name) => Some(model_with_history(&app, name).await?),
        None => None,
    };
    let asked_by = query
        .by
        .as_deref()
        .map(|by| asker(&app, "by", by))
        .transpose()?;
    let now = app.handle.clock().now();
    let filter = HistoryQuery {
        after: query.after,
        limit: query.limit.unwrap_or(LIMIT),
        model,
        kind: query.kind.map(str::to_owned),
        cause: query.reason.map(str::to_owned),
        asked_by,
        group: query.group,
        since: query.since.map(|since| since.moment(now)),
        until: query.until.map(|until| until.moment(now)),
    };
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let follow = query
        .follow
        .unwrap_or_else(|| accept.contains("text/event-stream"));
    let last = last_event(&headers)?;
    if follow {
        // Without a start id, `since` begins with the oldest record that is kept.
        let after = last.or(query.after).or(filter.since.map(|_| 0));
        let follower = Follower::begin(app.clone(), after, filter)
            .await
            .map_err(unreadable)?;
        let events = while_allowed(&app, reader, follower.stream());
        return Ok(Sse::new(events)
            .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
            .into_response());
    }
    let events = app
        .handle
        .store()
        .history(filter)
        .await
        .map_err(unreadable)?;
    let next_after = events.last().map(|record| record.id).or(query.after);
    Ok(Json(EventList { events, next_after }).into_response())
}

/// Resolves a name to the model's own name. Removed models are found by their name in the history. Any other name is an error.
pub(super) async fn model_with_history(app: &App, name: String) -> Result<String, Failure> {
    if let Some(route) = app.handle.route(&name) {
        return Ok(route.entry.name.clone());
    }
    if app.handle.broken_model(&name).is_some() {
        return Ok(name);
    }
    let newest = HistoryQuery {
        limit: 1,
        model: Some(name.clone()),
        ..HistoryQuery::default()
    };
    let newest = app.handle.store().history(newest).await;
    if newest.map_err(unreadable)?.is_empty() {
        Err(unknown(app, &name))
    } else {
        Ok(name)
    }
}

const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(10);

/// The last event id that a reconnecting client has received.
fn last_event(headers: &HeaderMap) -> Result<Option<i64>, Failure> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let id = value.to_str().ok().map(str::trim);
    // Browsers send an empty id before the first event.
    if id == Some("") {
        return Ok(None);
    }
    let read = id
        .and_then(|id| id.parse::<i64>().ok())
        .filter(|id| *id >= 0);
    let unread = || {
        let message = "Last-Event-ID: is not a record id, which is a whole number from 0";
        Failure::invalid(Some("Last-Event-ID".to_owned()), message)
    };
    read.map(Some).ok_or_else(unread)
}

/// The details of the database error are only logged.
pub(super) fn unreadable(fault: StoreError) -> Failure {
    tracing::error!(%fault, "the history could not be read");
    let message = "the history cannot be read now; see the server log";
    Failure::new(ErrorKind::Unavailable, "history_unreadable", message)
}

/// A client that follows the history.
struct Follower {
    app: App,
    filter: HistoryQuery,
    live: Receiver<Arc<StoredRecord>>,
    /// Records read from the store and not returned yet.
    backlog: VecDeque<StoredRecord>,
    /// The store may hold records after `last` that `live` will not deliver.
    behind: bool,
    last: i64,
    ended: bool,
}

impl Follower {
    /// Subscribes before reading from the store, to miss no record.
    async fn begin(
        app: App,
        after: Option<i64>,
        filter: HistoryQuery,
    ) -> Result<Follower, StoreError> {
        let live = app.handle.follow();
        let last = match after {
            Some(after) => after,
            None => app.handle.store().last_id().await?,
        };
        let behind = after.is_some();
        Ok(Follower {
            app,
            filter,
            live,
            backlog: VecDeque::new(),
            behind,
            last,
            ended: false,
        })
    }

    fn stream(self) -> impl Stream<Item = Result<Event, axum::Error>> + Send {
        stream::unfold(self, |mut follower| async move {
            if follower.ended {
                return None;
            }
            let event = match follower.next().await {
                Ok(record) => event_of(&record?),
                Err(fault) => {
                    follower.ended = true;
                    Event::default()
                        .event("error")
                        .json_data(&unreadable(fault).body)
                }
            };
            Some((event, follower))
        })
    }

    /// The next record, or `None` if there will be no more.
    async fn next(&mut self) -> Result<Option<StoredRecord>, StoreError> {
        loop {
            if let Some(record) = self.backlog.pop_front() {
                self.last = record.id;
                return Ok(Some(record));
            }
            if self.behind {
                let page = HistoryQuery {
                    after: Some(self.last),
                    limit: PAGE,
                    ..self.filter.clone()
                };
                self.backlog = self.app.handle.store().history(page).await?.into();
                self.behind = !self.backlog.is_empty();
                continue;
            }
            match tokio::time::timeout(HEARTBEAT_EVERY, self.live.recv()).await {
                Ok(Ok(record)) if record.id > self.last => {
                    self.last = record.id;
                    if self.matches(&record) {
                        return Ok(Some(record.as_ref().clone()));
                    }
                }
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Lagged(_))) => self.behind = true,
                Ok(Err(RecvError::Closed)) => return Ok(None),
                Err(_) if is_over(&self.app) => return Ok(None),
                Err(_) => {}
            }
        }
    }

    fn matches(&self, record: &StoredRecord) -> bool {
        let filter = &self.filter;
        let is = |wanted: &Option<String>, has: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| has == Some(wanted))
        };
        is(&filter.model, record.model.as_ref())
            && is(&filter.kind, Some(&record.kind))
            && is(&filter.cause, record.cause.as_ref())
            && is(&filter.asked_by, record.asked_by.as_ref())
            && is_of_group(filter.group.as_deref(), record)
            && filter.since.is_none_or(|since| record.at >= since)
            && filter.until.is_none_or(|until| record.at < until)
    }
}

fn is_of_group(wanted: Option<&str>, record: &StoredRecord) -> bool {
    wanted.is_none_or(|wanted| {
        let path = record.group.as_deref();
        path.is_some_and(|path| is_within(path, wanted))
    })
}

fn event_of(record: &StoredRecord) -> Result<Event, axum::Error> {
    Event::default()
        .id(record.id.to_string())
        .event(&record.kind)
        .json_data(record)
}

#[cfg(test)]
mod tests;
