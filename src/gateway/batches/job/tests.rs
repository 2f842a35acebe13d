//! Tests of `job.rs`: which request runs next after ends of every kind.

use super::*;
use batch::{ResultError, Upload, UploadLimits};

const LIMITS: UploadLimits = UploadLimits {
    bytes_max: 1 << 20,
    line_bytes_max: 1 << 10,
    lines_max: 100,
    models_max: 10,
};
const ERROR: ResultLine<'_> = ResultLine {
    custom_id: "c",
    response: None,
    error: Some(ResultError {
        code: "e",
        message: "m",
    }),
};

/// A folder with a file of requests for these models.
fn uploaded(models: &[&str]) -> (tempfile::TempDir, Vec<ModelCount>) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut upload = Upload::create(dir.path(), "input", LIMITS).expect("created");
    for (nth, model) in models.iter().enumerate() {
        let line = format!(
            "{{\"custom_id\":\"{nth}\",\"url\":\"/v1/completions\",\"body\":{{\"model\":\"{model}\"}}}}\n"
        );
        upload.write(line.as_bytes()).expect("written");
    }
    let summary = upload.finish().expect("accepted");
    (dir, summary.models)
}

fn opened(dir: &Path, models: &[ModelCount]) -> Job {
    Job::open(dir, "batch_1", "input", 7, models).expect("opened")
}

fn next(job: &mut Job, model: usize) -> Option<u64> {
    job.next(model).expect("read")
}

#[test]
fn each_model_gets_its_requests_in_order_and_a_lost_one_runs_again() {
    let (dir, models) = uploaded(&["a", "b", "a", "b"]);
    let mut job = opened(dir.path(), &models);
    assert_eq!((next(&mut job, 0), next(&mut job, 1)), (Some(0), Some(1)));
    job.runs_again(0, 0);
    assert_eq!(next(&mut job, 0), Some(0));
    assert_eq!(next(&mut job, 0), Some(2));
    assert_eq!(next(&mut job, 0), None);
    job.put_back(0, 2);
    assert_eq!(next(&mut job, 0), Some(2));
    assert_eq!((job.in_flight, job.left()), (3, 4));
}

#[test]
fn requests_that_ran_when_their_engine_ended_run_alone_and_the_cause_gets_an_error() {
    let (dir, models) = uploaded(&["a", "a", "a"]);
    let mut job = opened(dir.path(), &models);
    let running: Vec<u64> = (0..2).filter_map(|_| next(&mut job, 0)).collect();
    assert_eq!(running, [0, 1]);
    assert!(job.crashed(0, 0) && job.crashed(0, 1));
    assert_eq!(next(&mut job, 0), Some(0));
    assert_eq!(next(&mut job, 0), None, "it runs alone");
    assert!(!job.crashed(0, 0), "twice");
    job.finishes(0, 0, ResultKind::Error, &ERROR)
        .expect("written");
    assert_eq!(next(&mut job, 0), Some(1));
    job.finishes(0, 1, ResultKind::Error, &ERROR)
        .expect("written");
    assert_eq!((next(&mut job, 0), job.left()), (Some(2), 1));
}

#[test]
fn a_job_that_is_opened_again_continues_after_the_results_on_disk() {
    let (dir, models) = uploaded(&["a", "b", "a"]);
    let mut job = opened(dir.path(), &models);
    assert_eq!(next(&mut job, 0), Some(0));
    job.finishes(0, 0, ResultKind::Error, &ERROR)
        .expect("written");
    job.sync();
    assert_eq!(next(&mut job, 0), Some(2));
    drop(job);
    let mut job = opened(dir.path(), &models);
    assert_eq!(job.left(), 2);
    assert_eq!((next(&mut job, 0), next(&mut job, 0)), (Some(2), None));
    assert_eq!(next(&mut job, 1), Some(1));
}

#[test]
fn a_job_whose_disk_has_failed_starts_nothing() {
    let (dir, models) = uploaded(&["a"]);
    let mut job = opened(dir.path(), &models);
    job.is_broken = true;
    assert_eq!(next(&mut job, 0), None);
}

#[test]
fn a_suspect_that_loses_its_seat_stays_a_suspect() {
    let (dir, models) = uploaded(&["a", "a", "a"]);
    let mut job = opened(dir.path(), &models);
    let running: Vec<u64> = (0..2).filter_map(|_| next(&mut job, 0)).collect();
    assert!(running.iter().all(|request| job.crashed(0, *request)));
    assert!(job.has_suspects("a") && !job.is_idle());
    assert_eq!(next(&mut job, 0), Some(0));
    job.runs_again(0, 0);
    assert_eq!(next(&mut job, 0), Some(1), "the suspects take turns");
    assert_eq!(next(&mut job, 0), None, "alone");
}

#[test]
fn a_full_disk_pauses_the_batch_and_several_failures_have_its_files_opened_again() {
    let (dir, models) = uploaded(&["a", "a"]);
    let mut job = opened(dir.path(), &models);
    job.synced(Time(1), false);
    assert_eq!((next(&mut job, 0), job.is_broken), (None, false));
    job.synced(Time(2), true);
    assert_eq!(next(&mut job, 0), Some(0));
    (0..FAILED_SYNCS_MAX).for_each(|_| job.synced(Time(3), false));
    assert!(job.is_broken);
}
