//! The task that runs background responses. Only one process at a time runs the responses of a folder.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::settle::{RunCounts, end_with, fail, later, settle};
use super::{holder, stored_ends};
use crate::open_background::{Entry, load_events};
use crate::runner_lock;
use crate::state::App;
use edge::record::Record;
use pool::Time;

/// The time between two checks of rights, deadlines and rows.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Responses that a check ends, to leave time for others.
const ENDED_AT_ONCE: usize = 32;
/// The time for results to be written when the process ends.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

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
    let mut runs: JoinSet<Entry> = JoinSet::new();
    let mut checks = tokio::time::interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = pin!(stored_ends::watch(&app, CHECK_EVERY));
    loop {
        while let Some(entry) = begin(&app) {
            runs.spawn(turn(app.clone(), entry, ending.clone()));
        }
        tokio::select! {
            biased;
            () = ending.cancelled() => break,
            Some(ended) = runs.join_next(), if !runs.is_empty() => match ended {
                Ok(entry) => app.backgrounds.with(|entries| entries.release(&entry)),
                Err(error) => tracing::error!(%error, "the task of a background response ended"),
            },
            () = app.backgrounds.changed.notified() => {}
            _ = checks.tick() => check(&app).await,
            never = &mut watch => match never {},
        }
    }
    // Runs end immediately. Results that are being written are not lost.
    let ends = async { while runs.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(ENDS_WITHIN, ends).await;
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
    let streamed = heads.iter().filter(|head| head.is_streamed);
    let ids: BTreeSet<String> = streamed.map(|head| head.id.clone()).collect();
    let dir = app.backgrounds.dir.clone();
    let kept = tokio::task::spawn_blocking(move || load_events(&dir, &ids)).await;
    let mut kept = kept.unwrap_or_default();
    for head in heads {
        let events = kept.remove(&head.id).unwrap_or_default();
        app.backgrounds.add(head, events);
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

/// Runs a response once, until it ends or is stopped. Returns the entry, whose units are then released.
async fn turn(app: App, entry: Entry, ending: CancellationToken) -> Entry {
    let work = AssertUnwindSafe(settle(&app, &entry, &ending));
    let ended = tokio::select! {
        biased;
        () = entry.stop.cancelled() => Ok(()),
        ended = work.catch_unwind() => ended,
    };
    if ended.is_err() {
        tracing::error!(
            id = entry.head.id,
            "the turn of a background response panicked; trying again"
        );
        later(&app, &entry, RunCounts::new(&entry.head), None);
    }
    entry
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
    let problem = |entry: &Entry| match entry.record {
        None => Some(format!(
            "the model could not serve the request within {wait} (state.responses.background_wait); send it again"
        )),
        Some(_) => holder::user_of(&entry.head.holder, entry.head.person.as_deref(), app).err(),
    };
    let ends = entries
        .iter()
        .filter_map(|entry| Some((entry, problem(entry)?)));
    for (entry, message) in ends.take(ENDED_AT_ONCE) {
        let head = &entry.head;
        match app.handle.store().background(&head.holder, &head.id).await {
            Ok(Some(found)) => {
                // Tried again at the next check.
                let failed = fail("server_error", message, None);
                let _ = end_with(app, entry, &Arc::new(found), &failed).await;
            }
            Ok(None) => app
                .backgrounds
                .with(|entries| entries.remove_waiting(&head.id)),
            Err(fault) => {
                tracing::warn!(%fault, "a background response cannot be read; trying again");
            }
        }
    }
}
