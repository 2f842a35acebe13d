//! Tests of writes while other programs write.

use support::ray_serve::RayServe;

use super::*;

const FIRST: &str = "model-pool.lab.r1";
const SECOND: &str = "model-pool.lab.r2";
/// Spaces and numbers that no JSON writer would reproduce.
const THEIRS: &str = r#"{"name": "theirs",  "import_path":"a:b", "args": {"x": 1.50}}"#;

fn writer(ray: &RayServe) -> ServeWriter {
    writer_of(ray, Arc::default())
}

/// A writer that shares its process with others, such as for another address of the same Ray.
fn writer_of(ray: &RayServe, shared: Arc<ServeShared>) -> ServeWriter {
    let access = RayAccess {
        address: ray.address(),
        token_file: None,
        timeout: Duration::from_secs(5),
        section: "engine_config",
    };
    ServeWriter::new(&access, "model-pool.lab.r", shared)
}

fn config(name: &str) -> Box<RawValue> {
    let text = format!(
        r#"{{"name":"{name}","import_path":"c:d","runtime_env":{{"env_vars":{{"MODEL_POOL_MODEL":"{name}"}}}}}}"#
    );
    RawValue::from_string(text).expect("JSON")
}

async fn until_gone(writer: &ServeWriter, name: &str) {
    while writer.remove(name).await != Ok(Removal::Gone) {}
}

#[tokio::test]
async fn concurrently_added_applications_both_exist_and_are_removed_one_by_one() {
    let ray = RayServe::start();
    let writer = writer(&ray);
    let (first, second) = tokio::join!(
        writer.add(FIRST, config(FIRST)),
        writer.add(SECOND, config(SECOND))
    );
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(ray.names(), [FIRST, SECOND]);
    writer.remove(FIRST).await.expect("removed");
    assert_eq!(ray.names(), [SECOND]);
    until_gone(&writer, FIRST).await;
}

#[tokio::test]
async fn applications_of_others_are_written_back_unchanged() {
    let ray = RayServe::start();
    ray.deploy("theirs", THEIRS);
    let writer = writer(&ray);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    let writes = ray.writes();
    assert!(writes[0].contains(THEIRS), "{writes:?}");
    assert_eq!(ray.names(), [FIRST, "theirs"]);
    writer.add(FIRST, config(FIRST)).await.expect("is there");
    assert_eq!(ray.writes().len(), 1, "nothing was to be changed");
}

#[tokio::test]
async fn a_change_between_lookup_and_write_is_noticed_and_merged() {
    let ray = RayServe::start();
    ray.deploy("theirs", THEIRS);
    ray.after_looks(1, |all| {
        all.remove("theirs");
        all.insert("late".to_owned(), THEIRS.replace("theirs", "late"));
    });
    writer(&ray).add(FIRST, config(FIRST)).await.expect("added");
    assert_eq!(ray.names(), ["late", FIRST]);
    assert_eq!(ray.writes().len(), 1, "only the second list was written");
}

#[tokio::test]
async fn applications_overwritten_by_another_program_are_written_again() {
    let ray = RayServe::start();
    ray.after_write(|all| {
        all.remove(FIRST);
        all.insert("late".to_owned(), THEIRS.replace("theirs", "late"));
    });
    writer(&ray).add(FIRST, config(FIRST)).await.expect("added");
    assert_eq!(ray.names(), ["late", FIRST]);
    assert_eq!(ray.writes().len(), 2);
}

#[tokio::test]
async fn leftover_applications_of_this_pool_are_removed_and_those_of_other_pools_stay() {
    let ray = RayServe::start();
    let others = [
        "model-pool.lab.r0",
        "model-pool.lab.rx",
        "model-pool.lab2.r0",
    ];
    for name in others {
        ray.deploy(name, config(name).get());
    }
    let writer = writer(&ray);
    writer.own(FIRST, config(FIRST)).await;
    ray.deploy(FIRST, config(FIRST).get());
    writer.remove_left_over().await.expect("removed");
    assert_eq!(
        ray.names(),
        [FIRST, "model-pool.lab.rx", "model-pool.lab2.r0"]
    );
}

#[tokio::test]
async fn a_refused_application_does_not_block_others() {
    let ray = RayServe::start();
    let writer = writer(&ray);
    let broken = RawValue::from_string(format!(r#"{{"name":"{FIRST}"}}"#)).expect("JSON");
    let error = writer.add(FIRST, broken).await.expect_err("refused");
    assert!(matches!(error, RayError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("Field required"), "{error}");
    writer.add(SECOND, config(SECOND)).await.expect("added");
    assert_eq!(ray.names(), [SECOND]);
}

#[tokio::test]
async fn a_dashboard_that_does_not_respond_leaves_everything_unknown() {
    let ray = RayServe::start();
    let writer = writer(&ray);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    ray.set_down(true);
    let error = writer.look().await.expect_err("unknown");
    assert!(error.is_unknown(), "{error}");
    assert!(
        writer
            .remove(FIRST)
            .await
            .expect_err("unknown")
            .is_unknown()
    );
    ray.set_down(false);
    assert_eq!(ray.names(), [FIRST]);
    writer.remove(FIRST).await.expect("removed");
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn a_missing_or_wrong_token_is_reported() {
    let ray = RayServe::start();
    ray.require("the-token");
    let folder = std::env::temp_dir().join(format!("ray-token-{}", std::process::id()));
    std::fs::write(&folder, "another\n").expect("written");
    let access = RayAccess {
        address: ray.address(),
        token_file: Some(folder.clone()),
        timeout: Duration::from_secs(5),
        section: "engine_config",
    };
    let writer = ServeWriter::new(&access, "model-pool.lab.r", Arc::default());
    let error = writer.look().await.expect_err("refused");
    assert!(matches!(error, RayError::Denied { .. }), "{error}");
    assert!(!error.to_string().contains("another"), "{error}");
    std::fs::write(&folder, "the-token\n").expect("written");
    assert!(writer.look().await.is_ok());
    let _ = std::fs::remove_file(folder);
}

#[tokio::test]
async fn an_application_of_an_interrupted_write_is_removed_when_it_appears_late() {
    let ray = RayServe::start();
    let writer = writer(&ray);
    ray.cut_off_next_write();
    let error = writer.add(FIRST, config(FIRST)).await.expect_err("cut off");
    assert!(error.is_unknown(), "{error}");
    assert!(ray.names().is_empty());
    let removed = writer.remove(FIRST).await;
    assert_eq!(removed, Ok(Removal::InDoubt), "it may still come up");
    ray.carry_out_late();
    assert_eq!(ray.names(), [FIRST]);
    let mut removed = writer.remove(FIRST).await;
    assert!(ray.names().is_empty(), "removed again");
    while removed == Ok(Removal::Leaving) {
        removed = writer.remove(FIRST).await;
    }
    assert_eq!(removed, Ok(Removal::InDoubt));
}

#[tokio::test]
async fn an_interrupted_removal_can_restore_a_removed_application() {
    let ray = RayServe::start();
    let writer = writer(&ray);
    for name in [FIRST, SECOND] {
        writer.add(name, config(name)).await.expect("added");
    }
    ray.cut_off_next_write();
    assert!(writer.remove(SECOND).await.is_err());
    let mut removed = writer.remove(FIRST).await;
    assert!(ray.names().is_empty());
    while removed == Ok(Removal::Leaving) {
        removed = writer.remove(FIRST).await;
    }
    assert_eq!(removed, Ok(Removal::InDoubt), "the list had it");
    until_gone(&writer, SECOND).await;
    ray.carry_out_late();
    assert_eq!(ray.names(), [FIRST]);
    writer.remove(FIRST).await.expect("removed again");
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn after_the_uncertainty_expires_an_application_never_written_is_gone() {
    let ray = RayServe::start();
    let shared = ServeShared::with_doubt(Duration::from_millis(200));
    let writer = writer_of(&ray, Arc::new(shared));
    ray.cut_off_next_write();
    assert!(writer.add(FIRST, config(FIRST)).await.is_err());
    until_gone(&writer, FIRST).await;
    assert!(ray.names().is_empty());
    ray.set_down(true);
    assert!(writer.add(SECOND, config(SECOND)).await.is_err());
    assert_eq!(writer.remove(SECOND).await, Ok(Removal::Gone));
}

#[tokio::test]
async fn two_addresses_of_one_ray_do_not_remove_each_others_applications() {
    let ray = RayServe::start();
    let shared: Arc<ServeShared> = Arc::default();
    let (one, other) = (
        writer_of(&ray, Arc::clone(&shared)),
        writer_of(&ray, shared),
    );
    one.add(FIRST, config(FIRST)).await.expect("added");
    other.add(SECOND, config(SECOND)).await.expect("added");
    assert_eq!(ray.names(), [FIRST, SECOND]);
    one.remove_left_over().await.expect("nothing is left over");
    assert_eq!(ray.names(), [FIRST, SECOND]);
    until_gone(&other, SECOND).await;
    assert_eq!(ray.names(), [FIRST]);
    until_gone(&one, FIRST).await;
    assert!(ray.names().is_empty());
}

#[tokio::test]
async fn concurrent_writes_to_one_ray_keep_both_changes() {
    let ray = RayServe::start();
    let shared: Arc<ServeShared> = Arc::default();
    let (one, other) = (
        writer_of(&ray, Arc::clone(&shared)),
        writer_of(&ray, shared),
    );
    let added = tokio::join!(
        one.add(FIRST, config(FIRST)),
        other.add(SECOND, config(SECOND))
    );
    assert_eq!(added, (Ok(()), Ok(())));
    assert_eq!(ray.names(), [FIRST, SECOND]);
}

#[tokio::test]
async fn names_of_gone_applications_are_not_kept_while_another_ray_is_silent() {
    let ray = RayServe::start();
    let shared: Arc<ServeShared> = Arc::default();
    let writer = writer_of(&ray, Arc::clone(&shared));
    let silent = "http://silent:8265";
    shared.expect_response(silent);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    writer.remove(FIRST).await.expect("removed");
    let kept = || shared.kept_at(Some(silent)).all_but;
    assert_eq!(kept(), Some(BTreeSet::from([FIRST.to_owned()])));
    until_gone(&writer, FIRST).await;
    assert_eq!(kept(), Some(BTreeSet::new()));

    writer.add(SECOND, config(SECOND)).await.expect("added");
    ray.set_down(true);
    assert!(writer.remove(SECOND).await.is_err());
    writer.leave(SECOND);
    ray.set_down(false);
    while !writer.sweep().await.expect("a response").is_empty() {}
    assert_eq!(kept(), Some(BTreeSet::new()));
}
