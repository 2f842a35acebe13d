//! The ends of batches: results on disk, counts in the store, expiry, cancellation, and the files with the results.

use std::collections::BTreeMap;

use super::job::Job;
use super::result_files::{ResultsPlace, store_files};
use super::runner::Runner;
use super::{owner, progress};
use crate::inference::understood::real_name;
use crate::open_batches::{BatchRecord, LearnedSpeed, OpenBatch, Outcome, Status};
use crate::state::App;
use api_types::dto::RequestCounts;
use batch::{RequestLine, ResultError, ResultKind, ResultLine};
use pool::{Span, Time};

/// Requests that get an error in one turn when a batch expires. Each is read from disk.
const EXPIRED_PER_TURN: usize = 2_000;
/// The error of requests that have not run by the end of the window.
const EXPIRED: ResultError<'_> = ResultError {
    code: "batch_expired",
    message: "the request did not run within the completion window of its batch",
};
/// The error of requests that have not run when their batch was cancelled.
const CANCELLED: ResultError<'_> = ResultError {
    code: "batch_cancelled",
    message: "the batch was cancelled before the request ran",
};
/// Speeds that are stored with a batch.
const SPEEDS_KEPT: usize = 64;

/// Writes results to disk and counts to the store, at most once a second, and ends the batches that are due.
pub(super) async fn sync_and_end(runner: &mut Runner, records: &[BatchRecord]) {
    let now = runner.app.handle.clock().wall();
    for record in records {
        if !runner.jobs.contains_key(&record.id) {
            continue;
        }
        if let Some(ended) = end_due(runner, record, now) {
            change(&runner.app, &record.id, ended).await;
        }
    }
    progress::show(&runner.app, &runner.jobs);
    runner.show_bucket_failures();
    sync(runner).await;
    let open: Vec<BatchRecord> = runner.app.batches.with_open(|open| {
        let open = open.values();
        open.map(|batch| batch.record.clone()).collect()
    });
    for record in open {
        conclude(runner, record, now).await;
    }
    runner.forget(now).await;
}

/// The status that a batch gets now: it expires, or its holder has lost its rights.
fn end_due(runner: &Runner, record: &BatchRecord, now: Time) -> Option<BatchState> {
    if record.state.status != Status::InProgress {
        return None;
    }
    let (person, endpoint) = (record.state.person.as_ref(), &record.state.endpoint);
    if let Err(why) = owner::user_of(&record.holder, person, endpoint, &runner.app) {
        return Some(BatchState::Cancelled { why });
    }
    // A batch whose results are all there ends as completed, even if its bucket takes them later.
    let has_left = runner.jobs.get(&record.id).is_none_or(|job| job.left() > 0);
    (has_left && now.0 >= record.state.deadline).then_some(BatchState::Expired)
}

/// An end of a batch before all its requests have run.
#[derive(Clone)]
enum BatchState {
    Expired,
    Cancelled { why: String },
}

async fn change(app: &App, id: &str, ended: BatchState) {
    let now = app.handle.clock().wall();
    let changed = app.batches.change(id, |record| match &ended {
        // The holder may have cancelled it in the same turn.
        _ if record.state.status != Status::InProgress => {}
        BatchState::Expired => record.state.becomes(Status::Finalizing, now),
        BatchState::Cancelled { why } => {
            let code = if record.state.person.is_some() {
                "rights_lost"
            } else {
                "key_revoked"
            };
            record.state.error = Some((code.to_owned(), why.clone()));
            record.state.becomes(Status::Cancelling, now);
        }
    });
    if let Err(fault) = changed.await {
        tracing::warn!(batch = id, %fault, "the state of a batch cannot be stored");
    }
}

/// Ends a batch with an error, once its bucket has the results so far.
pub(super) async fn fail(runner: &mut Runner, record: &BatchRecord, code: &str, message: String) {
    let place = runner.place_results(record);
    let bucket = match &place {
        ResultsPlace::Disk => None,
        ResultsPlace::Bucket(bucket) => Some(bucket.as_str()),
        ResultsPlace::Pending => return,
    };
    let app = runner.app.clone();
    tracing::warn!(batch = record.id, message, "a batch has failed");
    let now = app.handle.clock().wall();
    let files = store_files(&app, record, bucket, now).await;
    let files = files.unwrap_or_default();
    let changed = app.batches.change(&record.id, |record| {
        record.state.error = Some((code.to_owned(), message.clone()));
        (record.state.output_file, record.state.error_file) = files.clone();
        record.state.becomes(Status::Failed, now);
    });
    match changed.await {
        Ok(_) => {
            app.batches.with_open(|open| open.remove(&record.id));
            runner.remove_local_copies(record, &place).await;
        }
        Err(fault) => {
            tracing::warn!(batch = record.id, %fault, "the state of a batch cannot be stored");
        }
    }
}

/// Has new results written to disk, all batches at the same time, then counts them in the store.
async fn sync(runner: &mut Runner) {
    // The wall clock may be set back.
    let now = runner.app.handle.clock().now();
    let due = runner
        .jobs
        .values()
        .filter(|job| job.is_unsynced && now.since(job.synced_at) >= Span(1_000));
    let syncs: Vec<_> = due
        .map(|job| {
            let (id, results) = (job.id.clone(), job.shared_results());
            let written = tokio::task::spawn_blocking(move || {
                let mut results = results
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                let synced = results.sync();
                synced.map(|()| (results.completed(), results.failed()))
            });
            (id, written)
        })
        .collect();
    for (id, written) in syncs {
        let synced = written.await;
        let Some(job) = runner.jobs.get_mut(&id) else {
            continue;
        };
        let (completed, failed) = match synced {
            Ok(Ok(counts)) => counts,
            Ok(Err(error)) => {
                job.synced(now, false);
                tracing::warn!(batch = id, %error, "the results of a batch cannot be written; trying again");
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "the results of a batch could not be written");
                continue;
            }
        };
        job.synced(now, true);
        let counted = runner.app.batches.change(&id, |record| {
            let counts = &mut record.state.counts;
            *counts = RequestCounts {
                completed,
                failed,
                ..*counts
            };
        });
        if let Err(fault) = counted.await {
            tracing::warn!(batch = id, %fault, "the counts of a batch cannot be stored");
        }
    }
}

/// Ends a batch whose requests all have results, or that has been cancelled or has expired.
async fn conclude(runner: &mut Runner, record: BatchRecord, now: Time) {
    let Some(job) = runner.jobs.get_mut(&record.id) else {
        return;
    };
    if job.in_flight > 0 {
        return;
    }
    if job.is_broken {
        // Opened again in the next turn.
        runner.jobs.remove(&record.id);
        return;
    }
    let is_skipping = matches!(record.state.status, Status::Cancelling | Status::Finalizing);
    if is_skipping && record.state.run.is_none() {
        let run = job.results().done();
        let noted = runner
            .app
            .batches
            .change(&record.id, |record| record.state.run = Some(run));
        if let Err(fault) = noted.await {
            tracing::warn!(batch = record.id, %fault, "the state of a batch cannot be stored");
        }
        return;
    }
    let status = match record.state.status {
        Status::Cancelling if end_some(job, Outcome::Cancelled, &runner.app) => return,
        Status::Cancelling => Status::Cancelled,
        Status::Finalizing if end_some(job, Outcome::Expired, &runner.app) => return,
        Status::Finalizing => Status::Expired,
        Status::InProgress if job.left() == 0 => Status::Completed,
        _ => return,
    };
    if job.is_unsynced {
        // Written within a second.
        return;
    }
    let place = runner.place_results(&record);
    let bucket = match &place {
        ResultsPlace::Disk => None,
        ResultsPlace::Bucket(bucket) => Some(bucket.as_str()),
        ResultsPlace::Pending => return,
    };
    let files = match store_files(&runner.app, &record, bucket, now).await {
        Ok(files) => files,
        Err(fault) => {
            tracing::warn!(batch = record.id, %fault, "the results of a batch cannot be stored; trying again");
            return;
        }
    };
    let (completed, failed) = {
        let results = runner.jobs[&record.id].results();
        (results.completed(), results.failed())
    };
    let speeds = learned(&runner.app, &record);
    let before = record.state.status;
    let changed = runner.app.batches.change(&record.id, |record| {
        // The holder may have cancelled it in the same turn; the next turn ends it then.
        if record.state.status != before {
            return;
        }
        (record.state.output_file, record.state.error_file) = files.clone();
        record.state.counts.completed = completed;
        record.state.counts.failed = failed;
        record.state.speeds.clone_from(&speeds);
        if status == Status::Completed {
            record.state.becomes(Status::Finalizing, now);
        }
        record.state.becomes(status, now);
    });
    match changed.await {
        Ok(_) => {
            let has_ended = runner.app.batches.with_open(|open| {
                let is_open = |batch: &OpenBatch| batch.record.state.status.is_open();
                let has_ended = !open.get(&record.id).is_some_and(is_open);
                if has_ended {
                    open.remove(&record.id);
                }
                has_ended
            });
            if !has_ended {
                return;
            }
            runner.jobs.remove(&record.id);
            runner.remove_local_copies(&record, &place).await;
            tracing::info!(
                batch = record.id,
                ?status,
                completed,
                failed,
                "a batch has ended"
            );
        }
        Err(fault) => {
            tracing::warn!(batch = record.id, %fault, "the end of a batch cannot be stored; trying again");
        }
    }
}

/// The present speeds of the batch's models.
fn learned(app: &App, record: &BatchRecord) -> BTreeMap<String, LearnedSpeed> {
    let known = app.batches.speeds();
    let models = record.state.models.iter();
    let speeds = models.filter_map(|model| {
        let name = real_name(app, &model.name).unwrap_or(&model.name);
        Some((name.to_owned(), known.get(name)?.clone()))
    });
    speeds.take(SPEEDS_KEPT).collect()
}

/// Gives some of the requests without a result an error. Returns true if there may be more.
fn end_some(job: &mut Job, outcome: Outcome, app: &App) -> bool {
    let error = if outcome == Outcome::Expired {
        EXPIRED
    } else {
        CANCELLED
    };
    let now = app.handle.clock().now();
    for _ in 0..EXPIRED_PER_TURN {
        let next = job.results().next_undone(0);
        let Some(request) = next else {
            return false;
        };
        let text = job.requests.read(request).unwrap_or_default();
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let custom_id = RequestLine::parse(text).map(|line| line.custom_id.into_owned());
        let line = ResultLine {
            custom_id: &custom_id.unwrap_or_default(),
            response: None,
            error: Some(error),
        };
        match job.write(request, ResultKind::Error, &line) {
            Ok(bytes) => app.batches.counts.add(outcome, bytes, now),
            Err(error) => {
                tracing::warn!(batch = job.id, %error, "a result of a batch cannot be written");
                return true;
            }
        }
    }
    true
}
