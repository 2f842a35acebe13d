//! The output of engines: the last lines of a model's replicas, or a live stream.

use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SelectAll, unfold};
use futures_util::{Stream, StreamExt};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use utoipa::IntoParams;

use super::event_streams::{HEARTBEAT_EVERY, is_over, while_allowed};
use api_types::dto::{LogLineView, LogList};
use api_types::error::Failure;
use controller::Snapshot;
use gateway::auth::Reader;
use gateway::fields::{Fields, OrderFields, Params, Strict};
use gateway::known_model::known;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::{ModelId, ReplicaId};

const TAIL: u32 = 100;
const TAIL_MAX: u32 = 10_000;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogsQuery {
    /// The model's name or an alias.
    #[param(min_length = 1, example = "tiny-chat")]
    model: String,
    /// Only this replica, such as `r3`. The default is all running replicas, or otherwise the last one.
    #[param(value_type = Option<String>, pattern = "^r[0-9]{1,18}$")]
    replica: Option<ReplicaId>,
    /// The number of last lines. The default is 100. The pool keeps the last 1000 lines of each engine.
    #[param(minimum = 0, maximum = 10_000, example = 100)]
    tail: Option<u32>,
    /// Return a stream of lines. It continues with the next replica when the model is loaded again.
    #[param(example = false)]
    follow: Option<bool>,
}

impl Strict for LogsQuery {
    fn read(fields: &mut Fields) -> Result<LogsQuery, Failure> {
        Ok(LogsQuery {
            model: fields.needed_text("model", "?model=tiny-chat")?,
            replica: fields.replica("replica")?,
            tail: fields.integer("tail", 0..=TAIL_MAX)?,
            follow: fields.flag("follow")?,
        })
    }
}

/// Show an engine's output
///
/// The last lines of the model's replicas, oldest first. With `follow=true` the response is an event stream; the `data` of each
/// event is a line. The stream ends with the session or the key that opened it.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/logs", tag = "admin: history", operation_id = "show_logs", security(("admin_key" = [])),
    params(LogsQuery),
    responses(
        (status = 200, description = "The lines, or the stream", content(
            (LogList = "application/json", example = json!({"model": "tiny-chat", "lines": [{
                "replica": "r3", "at": "2026-01-31T20:15:00.123Z", "stream": "stderr", "line": "weights loaded"
            }]})),
            ("text/event-stream", example = json!("data: {\"replica\":\"r3\",…}\n\n")),
        )),
        AdminErrors,
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    reader: Reader,
    Params(query): Params<LogsQuery>,
) -> Result<Response, Failure> {
    let route = known(&app, &query.model)?;
    let snapshot = app.handle.snapshot();
    let replicas = replicas(&snapshot, route.model, query.replica);
    if let (Some(replica), []) = (query.replica, replicas.as_slice()) {
        let message = format!(
            "{}: no output of {replica} is kept; omit `replica` to see the newest lines of the model",
            route.entry.name
        );
        return Err(Failure::not_found(message));
    }
    let tail = query.tail.unwrap_or(TAIL) as usize;
    if query.follow != Some(true) {
        let (lines, _) = opened(&snapshot, route.model, &replicas, tail);
        return Ok(Json(LogList {
            model: route.entry.name.clone(),
            lines,
        })
        .into_response());
    }
    let (before, live) = opened(&snapshot, route.model, &replicas, tail);
    let newest = snapshot
        .logs
        .get(&route.model)
        .and_then(|logs| logs.last())
        .map(|(replica, _)| *replica);
    let only = query.replica.is_some();
    let follower = Follower {
        app: app.clone(),
        model: route.model,
        only,
        newest,
        before: before.into_iter(),
        live,
    };
    let lines = while_allowed(&app, reader, follower.stream());
    Ok(Sse::new(lines).keep_alive(KeepAlive::new()).into_response())
}

/// The replicas whose output is shown: the requested replica, all running ones, or otherwise the last that ran.
fn replicas(snapshot: &Snapshot, model: ModelId, only: Option<ReplicaId>) -> Vec<ReplicaId> {
    let kept = snapshot
        .logs
        .get(&model)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut ids = kept.iter().map(|(replica, _)| *replica);
    if let Some(only) = only {
        return ids.filter(|replica| *replica == only).collect();
    }
    let running: Vec<ReplicaId> = ids
        .clone()
        .filter(|replica| snapshot.processes.contains_key(replica))
        .collect();
    if running.is_empty() {
        ids.next_back().into_iter().collect()
    } else {
        running
    }
}

/// A line, or the number of missed lines.
type Lines = Pin<Box<dyn Stream<Item = Result<LogLineView, u64>> + Send>>;

/// The newest lines of the replicas by time, and a stream of all further lines.
fn opened(
    snapshot: &Snapshot,
    model: ModelId,
    replicas: &[ReplicaId],
    tail: usize,
) -> (Vec<LogLineView>, SelectAll<Lines>) {
    let mut before = Vec::new();
    let mut live = SelectAll::new();
    for (replica, log) in snapshot
        .logs
        .get(&model)
        .map(Vec::as_slice)
        .unwrap_or_default()
    {
        if !replicas.contains(replica) {
            continue;
        }
        let (lines, receiver) = log.follow(tail);
        let name: Arc<str> = replica.to_string().into();
        let shown = lines.iter().map(|line| {
            let text = LogLineView::new(&name, line.at, line.stream, &line.text);
            (line.at, text)
        });
        before.extend(shown);
        let following = BroadcastStream::new(receiver).map(move |line| match line {
            Ok(line) => Ok(LogLineView::new(&name, line.at, line.stream, &line.text)),
            Err(BroadcastStreamRecvError::Lagged(missed)) => Err(missed),
        });
        live.push(Box::pin(following) as Lines);
    }
    before.sort_by_key(|(at, _)| *at);
    let surplus = before.len().saturating_sub(tail);
    (
        before
            .into_iter()
            .skip(surplus)
            .map(|(_, line)| line)
            .collect(),
        live,
    )
}

/// A client that follows a model's output.
struct Follower {
    app: App,
    model: ModelId,
    /// Follow only the requested replica, without later ones.
    only: bool,
    newest: Option<ReplicaId>,
    before: std::vec::IntoIter<LogLineView>,
    live: SelectAll<Lines>,
}

impl Follower {
    fn stream(self) -> impl Stream<Item = Result<Event, axum::Error>> + Send {
        unfold(self, |mut follower| async move {
            let event = match follower.next().await? {
                Ok(line) => Event::default().json_data(&line),
                Err(missed) => Ok(Event::default().comment(format!("{missed} lines were missed"))),
            };
            Some((event, follower))
        })
    }

    async fn next(&mut self) -> Option<Result<LogLineView, u64>> {
        loop {
            if let Some(line) = self.before.next() {
                return Some(Ok(line));
            }
            tokio::select! {
                line = self.live.next(), if !self.live.is_empty() => {
                    if line.is_some() {
                        return line;
                    }
                }
                () = tokio::time::sleep(HEARTBEAT_EVERY) => {
                    if is_over(&self.app) {
                        return None;
                    }
                    self.look_for_newer();
                }
            }
        }
    }

    /// Adds replicas that were started since, with all of their output.
    fn look_for_newer(&mut self) {
        if self.only {
            return;
        }
        let snapshot = self.app.handle.snapshot();
        let logs = snapshot
            .logs
            .get(&self.model)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let newer: Vec<ReplicaId> = logs
            .iter()
            .map(|(replica, _)| *replica)
            .filter(|replica| Some(*replica) > self.newest)
            .collect();
        if newer.is_empty() {
            return;
        }
        let (before, live) = opened(&snapshot, self.model, &newer, usize::MAX);
        self.before = before.into_iter();
        self.live.extend(live);
        self.newest = newer.into_iter().max();
    }
}
