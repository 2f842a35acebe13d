//! One turn of a background response: its run, and the end of the run. A result stays in memory until it is on disk, and the
//! response is in progress as long.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::FutureExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::run::{RunEnd, RunReport, failed, run as run_once};
use super::service::{end, found_bytes, object};
use crate::backoff;
use crate::open_background::{Entry, Pause};
use crate::state::App;
use api_types::error::Failure;
use dialect::responses::{announcement, ended};
use pool::Span;
use store::{BackgroundHead, BackgroundResponse, StoredResponse};

/// Runs of a response that a crash or a restart may cut.
const CUTS_MAX: u32 = 3;

/// The counts of a response's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunCounts {
    runs: u32,
    cuts: u32,
}

impl RunCounts {
    pub(super) fn new(head: &BackgroundHead) -> RunCounts {
        RunCounts {
            runs: head.runs,
            cuts: head.cuts,
        }
    }

    /// The counts after a run of this response. Only a run that an engine's crash has cut counts as cut.
    fn after(found: &BackgroundResponse, report: &RunReport) -> RunCounts {
        let is_cut = matches!(report.end, RunEnd::Crashed { .. });
        RunCounts {
            runs: found.runs + u32::from(report.has_begun),
            cuts: found.cuts + u32::from(is_cut),
        }
    }

    /// The counts on disk while the run is not settled.
    fn on_disk(found: &BackgroundResponse, has_begun: bool) -> RunCounts {
        RunCounts {
            runs: found.runs + u32::from(has_begun),
            cuts: found.cuts + u32::from(has_begun),
        }
    }
}

/// A response that has failed.
#[derive(Clone, Debug)]
pub(super) struct FailedResponse {
    code: &'static str,
    message: String,
    /// The object, if the response had begun.
    response: Option<Value>,
}

pub(super) fn fail(code: &'static str, message: String, response: Option<Value>) -> FailedResponse {
    FailedResponse {
        code,
        message,
        response,
    }
}

/// Runs a response, and takes the end of its run.
pub(super) async fn settle(app: &App, entry: &Entry, ending: &CancellationToken) {
    let head = &entry.head;
    let found = app.handle.store().background(&head.holder, &head.id).await;
    let found = match found {
        Ok(Some(found)) => Arc::new(found),
        // Ended by another process.
        Ok(None) => return app.backgrounds.with(|entries| entries.remove(&head.id)),
        Err(fault) => {
            tracing::warn!(%fault, "a background response cannot be read; trying again");
            return later(app, entry, RunCounts::new(head), None);
        }
    };
    if found.cuts >= CUTS_MAX {
        let message =
            format!("the server ended during each of {CUTS_MAX} runs; send the request again");
        let end = fail("server_error", message, None);
        return end_until_stored(app, entry, &found, &end, ending).await;
    }
    announce(app, entry, &found).await;
    let work = AssertUnwindSafe(run_once(app, entry, &found)).catch_unwind();
    let report = tokio::select! {
        biased;
        () = ending.cancelled() => return,
        report = work => report,
    };
    let report = report.unwrap_or_else(|_| {
        let message = "internal error; see the server log".to_owned();
        failed("server_error", message, None).into()
    });
    let counts = RunCounts::after(&found, &report);
    let RunReport { end, has_begun } = report;
    let end = match end {
        RunEnd::Gone => return app.backgrounds.with(|entries| entries.remove(&head.id)),
        RunEnd::Complete { result, last_event } => {
            return store_result(app, entry, &result, last_event, ending).await;
        }
        RunEnd::Failed {
            code,
            message,
            response,
        } => fail(code, message, response),
        RunEnd::Crashed { message, response } if counts.cuts >= CUTS_MAX => {
            let message = format!("the engine failed {CUTS_MAX} times: {message}");
            fail("server_error", message, response)
        }
        RunEnd::Later { .. } | RunEnd::Crashed { .. } => {
            if counts != RunCounts::on_disk(&found, has_begun) {
                let RunCounts { runs, cuts } = counts;
                let set = app.handle.store().set_background_runs(&head.id, runs, cuts);
                if let Err(fault) = set.await {
                    tracing::warn!(%fault, "a run of a background response cannot be counted");
                }
            }
            let retry_after = match end {
                RunEnd::Later { retry_after } => retry_after,
                _ => None,
            };
            return later(app, entry, counts, retry_after);
        }
    };
    end_until_stored(app, entry, &found, &end, ending).await;
}

/// Adds the events that announce a response, unless it has events or has run in another process.
async fn announce(app: &App, entry: &Entry, found: &Arc<BackgroundResponse>) {
    let Some(log) = entry.events.as_ref().filter(|_| found.runs == 0) else {
        return;
    };
    let (bytes, found) = (found_bytes(found), Arc::clone(found));
    let announced = app
        .reading
        .run(bytes, move || Ok(announcement(&object(&found))));
    if let Ok(announcement) = announced.await {
        log.announce(announcement);
    }
}

/// Lets a response wait for another run.
pub(super) fn later(app: &App, entry: &Entry, counts: RunCounts, retry_after: Option<Span>) {
    let has_begun = counts.runs > entry.head.runs;
    let tries = if has_begun { 1 } else { entry.tries + 1 };
    let wait = backoff::wait(tries, &entry.head.id, retry_after);
    let pause = Pause {
        until: app.handle.clock().now() + wait,
        runs: counts.runs,
        cuts: counts.cuts,
        tries,
    };
    app.backgrounds
        .with(|entries| entries.pause(&entry.head.id, pause));
}

/// Stores the result of a run, shows its last event, and removes the entry.
async fn store_result(
    app: &App,
    entry: &Entry,
    result: &StoredResponse,
    last_event: Bytes,
    ending: &CancellationToken,
) {
    let id = &entry.head.id;
    let stored = until_stored(ending, waits_of(id), move || async move {
        let ended = app.responses.end_background(result).await;
        ended.inspect_err(|fault| {
            tracing::warn!(%fault, id, "the result of a background response is in memory, because it cannot be stored; trying again");
        })
    });
    let Some(has_ended_it) = stored.await else {
        return;
    };
    let log = entry.events.as_ref().filter(|_| has_ended_it);
    if let (Some(log), Some(number)) = (log, result.last_event) {
        log.finish(number, last_event);
    }
    app.backgrounds.with(|entries| entries.remove(id));
}

/// Ends a response that has failed, and removes the entry.
async fn end_until_stored(
    app: &App,
    entry: &Entry,
    found: &Arc<BackgroundResponse>,
    failed: &FailedResponse,
    ending: &CancellationToken,
) {
    let id = &entry.head.id;
    let stored = until_stored(ending, waits_of(id), move || {
        end_with(app, entry, found, failed)
    });
    if stored.await.is_some() {
        app.backgrounds.with(|entries| entries.remove(id));
    }
}

/// Tries to end a response with status `failed`.
///
/// # Errors
/// The end cannot be stored.
pub(super) async fn end_with(
    app: &App,
    entry: &Entry,
    found: &Arc<BackgroundResponse>,
    failed: &FailedResponse,
) -> Result<Option<Value>, Failure> {
    let failed = failed.clone();
    let change = move |queued: Value| {
        let error = Some((failed.code, failed.message.as_str()));
        ended(failed.response.unwrap_or(queued), "failed", error)
    };
    end(app, Some(entry), Arc::clone(found), change).await
}

/// The wait after each number of tries.
fn waits_of(id: &str) -> impl Fn(u32) -> Duration {
    move |tries| Duration::from_millis(backoff::wait(tries, id, None).0)
}

/// Repeats a write until it succeeds. Returns `None` if the process ends before.
async fn until_stored<T, E, F: Future<Output = Result<T, E>>>(
    ending: &CancellationToken,
    wait: impl Fn(u32) -> Duration,
    write: impl Fn() -> F,
) -> Option<T> {
    let mut tries = 0;
    loop {
        if let Ok(stored) = write().await {
            return Some(stored);
        }
        tries += 1;
        tokio::select! {
            biased;
            () = ending.cancelled() => return None,
            () = tokio::time::sleep(wait(tries)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use pool::Time;

    fn found(runs: u32, cuts: u32) -> BackgroundResponse {
        BackgroundResponse {
            id: "resp_1".to_owned(),
            holder: "key:1".to_owned(),
            person: None,
            created: Time(1),
            runs,
            cuts,
            is_streamed: false,
            request: "{}".to_owned(),
            response: "{}".to_owned(),
        }
    }

    fn crash() -> RunEnd {
        RunEnd::Crashed {
            message: "no".to_owned(),
            response: None,
        }
    }

    #[test]
    fn only_a_run_that_was_cut_by_a_crash_or_a_restart_counts_as_cut() {
        let found = found(4, 1);
        let counts = |end, has_begun| RunCounts::after(&found, &RunReport { end, has_begun });
        let later = || RunEnd::Later { retry_after: None };
        for (end, has_begun, runs, cuts) in [
            (later(), false, 4, 1),
            // Its engine was stopped by the pool.
            (later(), true, 5, 1),
            // The engine ended before its first event.
            (crash(), false, 4, 2),
            (crash(), true, 5, 2),
        ] {
            let label = format!("{end:?} {has_begun}");
            assert_eq!(counts(end, has_begun), RunCounts { runs, cuts }, "{label}");
        }
        // If the process ends during the run, the run counts as cut.
        let cut = RunCounts { runs: 5, cuts: 2 };
        assert_eq!(RunCounts::on_disk(&found, true), cut);
    }

    #[tokio::test]
    async fn a_result_is_written_as_soon_as_the_disk_takes_it_and_given_up_only_with_the_process() {
        let (tries, ending) = (Cell::new(0), CancellationToken::new());
        let at_the_20th = || {
            tries.set(tries.get() + 1);
            let tries = tries.get();
            async move { if tries < 20 { Err(()) } else { Ok(tries) } }
        };
        let no_wait = |_: u32| Duration::ZERO;
        let stored = until_stored(&ending, no_wait, at_the_20th);
        assert_eq!(stored.await, Some(20));
        let never = until_stored(&ending, no_wait, || {
            ending.cancel();
            async { Err::<(), ()>(()) }
        });
        assert_eq!(never.await, None);
        // A last try is made while the process ends.
        let once = until_stored(&ending, no_wait, || async { Ok::<_, ()>(1) });
        assert_eq!(once.await, Some(1));
    }
}
