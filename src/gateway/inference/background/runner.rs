//! The task that runs background responses. Only one process at a time runs the responses of a folder.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::holder;
use super::run::{RunEnd, run as run_once};
use super::service::end;
use crate::open_background::{Entries, Entry};
use crate::runner_lock;
use crate::state::App;
use dialect::responses::ended;
use edge::record::Record;
use pool::{Span, Time};
use store::BackgroundResponse;

/// The time between two checks of rights and deadlines.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The wait before a response runs again.
const LATER: Span = Span(5_000);
/// Runs of a response whose engine began to respond.
const RUNS_MAX: u32 = 3;

/// Runs background responses until `ending` fires. The next process runs those again that have not ended.
pub async fn run(app: App, ending: CancellationToken) {
    // Held until the task ends.
    let _locked = tokio::select! {
        locked = runner_lock::take(&app, "background.lock", "background responses", CHECK_EVERY) => locked,
        () = ending.cancelled() => return,
    };
    tokio::select! {
        () = load(&app) => {}
        () = ending.cancelled() => return,
    }
    let mut runs: JoinSet<(Entry, RunEnd, Option<BackgroundResponse>)> = JoinSet::new();
    let mut checks = tokio::time::interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while let Some(entry) = begin(&app) {
            runs.spawn(attempt(app.clone(), entry));
        }
        tokio::select! {
            biased;
            () = ending.cancelled() => break,
            Some(ended) = runs.join_next(), if !runs.is_empty() => match ended {
                Ok((entry, end, found)) => finish(&app, &entry, end, found).await,
                Err(error) => tracing::error!(%error, "the task of a background response ended"),
            },
            () = app.backgrounds.changed.notified() => {}
            _ = checks.tick() => check(&app).await,
        }
    }
    runs.shutdown().await;
}

/// Adds the responses that an earlier process has accepted.
async fn load(app: &App) {
    let heads = loop {
        match app.handle.store().background_heads().await {
            Ok(heads) => break heads,
            Err(fault) => {
                tracing::warn!(%fault, "the background responses cannot be read; trying again");
                tokio::time::sleep(CHECK_EVERY).await;
            }
        }
    };
    for head in heads {
        app.backgrounds.add(head);
    }
}

fn begin(app: &App) -> Option<Entry> {
    let now = app.handle.clock().now();
    let record = |id: &str| {
        let id = HeaderValue::from_str(id);
        let id = id.unwrap_or_else(|_| HeaderValue::from_static("background"));
        Arc::new(Record::new(id, None, now, None))
    };
    app.backgrounds.with(|entries| entries.begin(now, record))
}

async fn attempt(app: App, entry: Entry) -> (Entry, RunEnd, Option<BackgroundResponse>) {
    let head = &entry.head;
    let found = app.handle.store().background(&head.holder, &head.id).await;
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return (entry, RunEnd::Settled, None),
        Err(fault) => {
            tracing::warn!(%fault, "a background response cannot be read; trying again");
            return (entry, RunEnd::Later, None);
        }
    };
    if found.runs >= RUNS_MAX {
        let message =
            format!("the server ended during each of {RUNS_MAX} runs; send the request again");
        let end = failed(message);
        return (entry, end, Some(found));
    }
    if let Some(events) = entry.events.as_ref().filter(|_| found.runs == 0) {
        // After a restart, these events are missing.
        events.announce(&serde_json::from_str(&found.response).unwrap_or_default());
    }
    let work = AssertUnwindSafe(run_once(&app, &entry, &found));
    let end = work.catch_unwind().await;
    let end = end.unwrap_or_else(|_| failed("internal error; see the server log".to_owned()));
    (entry, end, Some(found))
}

fn failed(message: String) -> RunEnd {
    RunEnd::Failed {
        code: "server_error",
        message,
        response: None,
    }
}

/// Takes the end of a run.
async fn finish(app: &App, entry: &Entry, end: RunEnd, found: Option<BackgroundResponse>) {
    let head = &entry.head;
    app.backgrounds.with(|entries| entries.release(entry));
    let again = |has_begun: bool| {
        let until = app.handle.clock().now() + LATER;
        let pause = |entries: &mut Entries| {
            entries.pause(&head.id, until, has_begun);
        };
        app.backgrounds.with(pause);
    };
    let Some(found) = found else {
        return match end {
            RunEnd::Settled => app.backgrounds.with(|entries| entries.remove(&head.id)),
            _ => again(false),
        };
    };
    match end {
        // Without a result, a cancellation could not be stored while the result came.
        RunEnd::Settled => match app.responses.find(&head.holder, &head.id).await {
            Ok(Some(_)) => app.backgrounds.with(|entries| entries.remove(&head.id)),
            _ => {
                entry.settlement.withdraw();
                again(true);
            }
        },
        RunEnd::Later => again(false),
        RunEnd::Failed {
            code,
            message,
            response,
        } => {
            if !fail(app, entry, &found, (code, &message), response).await {
                again(false);
            }
        }
        RunEnd::Crashed {
            message,
            response,
            has_begun,
        } => {
            if !has_begun
                && let Err(fault) = app.handle.store().count_background_run(&head.id).await
            {
                tracing::warn!(%fault, "a run of a background response cannot be counted");
            }
            if found.runs + 1 < RUNS_MAX {
                return again(true);
            }
            let message = format!("the engine failed {RUNS_MAX} times: {message}");
            if !fail(app, entry, &found, ("server_error", &message), response).await {
                again(false);
            }
        }
    }
}

/// Ends a response with status `failed`. Returns false if that cannot be stored.
async fn fail(
    app: &App,
    entry: &Entry,
    found: &BackgroundResponse,
    (code, message): (&str, &str),
    response: Option<serde_json::Value>,
) -> bool {
    let response =
        response.unwrap_or_else(|| serde_json::from_str(&found.response).unwrap_or_default());
    let response = ended(response, "failed", Some((code, message)));
    match end(app, Some(entry), found, response).await {
        Ok(_) => true,
        Err(fault) => {
            tracing::warn!(%fault, "the end of a background response cannot be stored; trying again");
            false
        }
    }
}

/// Ends responses whose holder has lost its rights, and responses that have waited too long.
async fn check(app: &App) {
    let now: Time = app.handle.clock().now();
    let wait = app.config().state.responses.background_wait;
    let entries: Vec<Entry> = app.backgrounds.with(|entries| {
        let all = entries.by_id.values();
        let is_due =
            |entry: &&Entry| entry.record.is_some() || now.since(entry.head.created) > wait.0;
        all.filter(is_due).cloned().collect()
    });
    for entry in entries {
        let head = &entry.head;
        let is_late = entry.record.is_none();
        let problem = if is_late {
            Some(format!(
                "the model could not serve the request within {wait} (state.responses.background_wait); send it again"
            ))
        } else {
            holder::user_of(&head.holder, app).err()
        };
        let Some(message) = problem else {
            continue;
        };
        match app.handle.store().background(&head.holder, &head.id).await {
            Ok(Some(found)) => {
                fail(app, &entry, &found, ("server_error", &message), None).await;
            }
            Ok(None) => {}
            Err(fault) => {
                tracing::warn!(%fault, "a background response cannot be read; trying again");
            }
        }
    }
}
