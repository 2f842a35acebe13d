//! What is left over goes, and a Ray is forgotten only when it is empty.

use std::path::Path;
use std::sync::Arc;

use serde_json::value::RawValue;
use support::ray_serve::RayServe;

use super::*;
use crate::{Ledger, RayAccess, Removal, ServeShared};

const FIRST: &str = "model-pool.lab.r1";
const PREFIX: &str = "model-pool.lab.r";

fn shared(folder: &Path) -> Arc<ServeShared> {
    let ledger = Ledger::open(folder.join("ray-serve.json"));
    Arc::new(ServeShared::new(ledger))
}

fn writer(ray: &RayServe, shared: &Arc<ServeShared>) -> ServeWriter {
    let access = RayAccess {
        address: ray.address(),
        token_file: None,
        timeout: Duration::from_secs(5),
        section: "engine_config",
    };
    ServeWriter::new(&access, PREFIX, Arc::clone(shared))
}

fn config(name: &str) -> Box<RawValue> {
    let text = format!(
        r#"{{"name":"{name}","import_path":"c:d","runtime_env":{{"env_vars":{{"MODEL_POOL_MODEL":"{name}"}}}}}}"#
    );
    RawValue::from_string(text).expect("JSON")
}

/// The addresses that the next process would look at.
fn remembered(folder: &Path) -> Vec<String> {
    let all = Ledger::open(folder.join("ray-serve.json")).all();
    all.into_iter().map(|it| it.address).collect()
}

/// Sweeps until nothing is due any more.
async fn clean(writer: &ServeWriter) {
    while !writer.cleaning().is_clean() {
        writer.sweep_if_due().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_removal_that_was_given_up_is_reported_and_carried_out_when_ray_answers_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let ray = RayServe::start();
    let shared = shared(folder.path());
    let writer = writer(&ray, &shared);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    ray.set_down(true);
    assert!(writer.remove(FIRST).await.is_err());
    assert!(writer.left_over().is_empty(), "its replica still waits");
    writer.leave(FIRST);
    writer.sweep_if_due().await;
    assert_eq!(writer.left_over(), BTreeSet::from([FIRST.to_owned()]));
    assert_eq!(remembered(folder.path()), [ray.address()]);
    ray.set_down(false);
    assert_eq!(ray.names(), [FIRST], "it holds its GPUs");
    clean(&writer).await;
    assert!(ray.names().is_empty());
    assert!(writer.left_over().is_empty());
    assert!(remembered(folder.path()).is_empty());
}

#[tokio::test]
async fn a_ray_is_remembered_before_it_is_written_to_and_until_its_last_application_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let ray = RayServe::start();
    let shared = shared(folder.path());
    let writer = writer(&ray, &shared);
    ray.cut_off_next_write();
    assert!(writer.add(FIRST, config(FIRST)).await.is_err());
    assert_eq!(remembered(folder.path()), [ray.address()]);
    assert_eq!(writer.remove(FIRST).await, Ok(Removal::InDoubt));
    assert_eq!(
        remembered(folder.path()),
        [ray.address()],
        "it may still come up"
    );

    let other = RayServe::start();
    let writer = super::tests::writer(&other, &shared);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    assert_eq!(remembered(folder.path()).len(), 2);
}

#[tokio::test]
async fn an_address_is_forgotten_once_it_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let ray = RayServe::start();
    let shared = shared(folder.path());
    let writer = writer(&ray, &shared);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    assert_eq!(remembered(folder.path()), [ray.address()]);
    while writer.remove(FIRST).await != Ok(Removal::Gone) {}
    assert!(remembered(folder.path()).is_empty());
}

#[tokio::test]
async fn nothing_is_deployed_that_a_restart_would_not_find() {
    let folder = tempfile::tempdir().expect("a folder");
    let ray = RayServe::start();
    let shared = shared(&folder.path().join("none"));
    let writer = writer(&ray, &shared);
    let error = writer.add(FIRST, config(FIRST)).await.expect_err("no disk");
    assert!(matches!(error, RayError::Record { .. }), "{error}");
    assert!(error.to_string().contains("state.dir"), "{error}");
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn what_a_killed_process_wrote_at_last_is_removed_though_it_comes_up_after_the_start() {
    let ray = RayServe::start();
    let shared = Arc::new(ServeShared::with_doubt(Duration::from_millis(500)));
    let writer = writer(&ray, &shared);
    writer.expect_late_writes(true);
    assert!(writer.sweep().await.expect("known").is_empty());
    ray.deploy(FIRST, config(FIRST).get());
    ray.deploy("theirs", config("theirs").get());
    clean(&writer).await;
    assert_eq!(ray.names(), ["theirs"]);
}

#[tokio::test]
async fn a_ray_that_was_unknown_at_the_start_is_cleaned_when_it_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let ray = RayServe::start();
    ray.deploy(FIRST, config(FIRST).get());
    ray.set_down(true);
    let writer = writer(&ray, &shared(folder.path()));
    writer.expect_late_writes(false);
    ray.set_down(false);
    while !ray.names().is_empty() {
        writer.sweep_if_due().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn applications_of_a_former_name_of_the_pool_are_reported_and_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let ray = RayServe::start();
    ray.deploy(FIRST, config(FIRST).get());
    let writer = writer(&ray, &shared(folder.path())).of_former_name();
    writer.expect_late_writes(false);
    let left = writer.sweep().await.expect("known");
    assert_eq!(left, BTreeSet::from([FIRST.to_owned()]));
    assert_eq!(writer.left_over(), left);
    assert_eq!(ray.names(), [FIRST]);
}
