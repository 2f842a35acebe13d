//! Tests of removing left-over applications, and of forgetting a Ray only when it is empty.

use std::sync::Arc;

use serde_json::value::RawValue;
use support::ray_serve::RayServe;

use super::*;
use crate::ledger::memory::Memory;
use crate::{RayAccess, Removal, ServeShared, SparedReason};

const FIRST: &str = "model-pool.lab.r1";
const SECOND: &str = "model-pool.lab.r2";
const PREFIX: &str = "model-pool.lab.r";

fn shared(store: &Arc<Memory>) -> Arc<ServeShared> {
    Arc::new(ServeShared::new(store.ledger()))
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

/// The addresses that the next process would check.
fn remembered(store: &Memory) -> Vec<String> {
    store.rows().into_iter().map(|ray| ray.address).collect()
}

/// Sweeps until nothing is due.
async fn clean(writer: &ServeWriter) {
    while !writer.cleaning().is_clean() {
        writer.sweep_if_due().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_abandoned_removal_is_reported_and_carried_out_when_ray_responds_again() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    let shared = shared(&store);
    let writer = writer(&ray, &shared);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    ray.set_down(true);
    assert!(writer.remove(FIRST).await.is_err());
    assert!(writer.left_over().is_empty(), "its replica still waits");
    writer.leave(FIRST);
    writer.sweep_if_due().await;
    assert_eq!(writer.left_over(), BTreeSet::from([FIRST.to_owned()]));
    assert_eq!(remembered(&store), [ray.address()]);
    ray.set_down(false);
    assert_eq!(ray.names(), [FIRST], "it holds its GPUs");
    clean(&writer).await;
    assert!(ray.names().is_empty());
    assert!(writer.left_over().is_empty());
    assert!(remembered(&store).is_empty());
}

#[tokio::test]
async fn a_ray_address_is_stored_before_the_first_write_and_until_its_last_application_is_gone() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    let shared = shared(&store);
    let writer = writer(&ray, &shared);
    ray.cut_off_next_write();
    assert!(writer.add(FIRST, config(FIRST)).await.is_err());
    assert_eq!(remembered(&store), [ray.address()]);
    assert_eq!(writer.remove(FIRST).await, Ok(Removal::InDoubt));
    assert_eq!(remembered(&store), [ray.address()], "it may still come up");

    let other = RayServe::start();
    let writer = super::tests::writer(&other, &shared);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    assert_eq!(remembered(&store).len(), 2);
}

#[tokio::test]
async fn an_address_is_forgotten_once_it_is_empty() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    let shared = shared(&store);
    let writer = writer(&ray, &shared);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    assert_eq!(remembered(&store), [ray.address()]);
    while writer.remove(FIRST).await != Ok(Removal::Gone) {}
    assert!(remembered(&store).is_empty());
}

#[tokio::test]
async fn an_application_is_not_deployed_if_its_ray_address_cannot_be_stored() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    store.set_full(true);
    let shared = shared(&store);
    let writer = writer(&ray, &shared);
    let error = writer.add(FIRST, config(FIRST)).await.expect_err("no disk");
    assert!(matches!(error, RayError::Record { .. }), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn a_late_write_of_a_killed_process_is_removed_after_the_restart() {
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
async fn a_ray_that_was_down_at_the_start_is_cleaned_when_it_responds() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    ray.deploy(FIRST, config(FIRST).get());
    ray.set_down(true);
    let writer = writer(&ray, &shared(&store));
    writer.expect_late_writes(false);
    ray.set_down(false);
    while !ray.names().is_empty() {
        writer.sweep_if_due().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn applications_under_a_former_pool_name_are_reported_and_kept() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    ray.deploy(FIRST, config(FIRST).get());
    let writer = writer(&ray, &shared(&store)).of_former_name();
    writer.expect_late_writes(false);
    let left = writer.sweep().await.expect("known");
    assert_eq!(left, BTreeSet::from([FIRST.to_owned()]));
    assert_eq!(writer.left_over(), left);
    assert_eq!(ray.names(), [FIRST]);
}

#[tokio::test]
async fn applications_of_an_unresponsive_ray_are_kept_until_it_responds() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    ray.deploy(FIRST, config(FIRST).get());
    let shared = shared(&store);
    let writer = writer(&ray, &shared);
    shared.expect_response(writer.address());
    writer.add(SECOND, config(SECOND)).await.expect("added");
    assert_eq!(ray.names(), [FIRST, SECOND]);
    while writer.remove(SECOND).await != Ok(Removal::Gone) {}
    assert_eq!(ray.names(), [FIRST]);
    assert_eq!(remembered(&store), [ray.address()]);

    shared.record_response(writer.address());
    writer.expect_late_writes(false);
    while !ray.names().is_empty() {
        writer.sweep_if_due().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_application_still_streaming_for_an_earlier_process_is_kept_until_released() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    ray.deploy(FIRST, config(FIRST).get());
    let shared = shared(&store);
    let writer = writer(&ray, &shared);
    shared.spare(FIRST, SparedReason::Streams);
    assert!(writer.sweep().await.expect("known").is_empty());
    writer.add(SECOND, config(SECOND)).await.expect("added");
    assert_eq!(ray.names(), [FIRST, SECOND]);
    shared.release(FIRST);
    writer.leave(FIRST);
    clean(&writer).await;
    assert_eq!(ray.names(), [SECOND]);
}

#[tokio::test]
async fn an_application_that_appears_late_is_removed_within_seconds() {
    let ray = RayServe::start();
    let writer = writer(&ray, &Arc::default());
    ray.cut_off_next_write();
    assert!(writer.add(FIRST, config(FIRST)).await.is_err());
    writer.leave(FIRST);
    for _ in 0..3 {
        writer.sweep().await.expect("known");
    }
    ray.carry_out_late();
    assert_eq!(ray.names(), [FIRST]);
    let removed = async {
        while !ray.names().is_empty() {
            writer.sweep_if_due().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let within = Duration::from_secs(6);
    assert!(tokio::time::timeout(within, removed).await.is_ok());
}

#[tokio::test]
async fn a_process_that_is_no_longer_the_leader_cannot_write() {
    let store: Arc<Memory> = Arc::default();
    let ray = RayServe::start();
    let writer = writer(&ray, &shared(&store));
    writer.add(FIRST, config(FIRST)).await.expect("added");
    // An application of the leading process.
    ray.deploy(SECOND, config(SECOND).get());
    store.depose();
    let error = writer.sweep().await.expect_err("deposed");
    assert!(matches!(error, RayError::Deposed { .. }), "{error}");
    assert!(writer.remove(FIRST).await.is_err());
    assert_eq!(ray.names(), [FIRST, SECOND]);
}

#[tokio::test]
async fn a_writer_does_not_remove_applications_of_another_writer() {
    let ray = RayServe::start();
    let shared: Arc<ServeShared> = Arc::default();
    let (here, there) = (writer(&ray, &shared), writer(&ray, &shared));
    there.add(FIRST, config(FIRST)).await.expect("added");
    here.leave(FIRST);
    assert_eq!(here.sweep().await, Ok(BTreeSet::new()));
    assert!(shared.is_alive(FIRST));
    here.remove_left_over().await.expect("nothing is left over");
    assert_eq!(ray.names(), [FIRST]);
}
