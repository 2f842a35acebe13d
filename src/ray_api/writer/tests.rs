//! Writes while others write.

use support::ray_serve::RayServe;

use super::*;

const FIRST: &str = "model-pool.lab.r1";
const SECOND: &str = "model-pool.lab.r2";
/// Spaces and numbers as no writer of JSON would make them anew.
const THEIRS: &str = r#"{"name": "theirs",  "import_path":"a:b", "args": {"x": 1.50}}"#;

fn writer(ray: &RayServe) -> ServeWriter {
    let access = RayAccess {
        address: ray.address(),
        token_file: None,
        timeout: Duration::from_secs(5),
        section: "engine_config",
    };
    ServeWriter::new(&access, "model-pool.lab.r")
}

fn config(name: &str) -> Box<RawValue> {
    let text = format!(
        r#"{{"name":"{name}","import_path":"c:d","runtime_env":{{"env_vars":{{"MODEL_POOL_MODEL":"{name}"}}}}}}"#
    );
    RawValue::from_string(text).expect("JSON")
}

#[tokio::test]
async fn two_replicas_that_start_at_once_are_both_there_and_leave_one_by_one() {
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
    while !writer.is_gone(FIRST).await.expect("known") {}
}

#[tokio::test]
async fn what_others_have_deployed_is_written_back_as_it_was() {
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
async fn a_change_between_the_look_and_the_write_is_noticed_and_merged() {
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
async fn what_another_program_has_overwritten_is_written_again() {
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
async fn left_over_applications_of_this_pool_go_and_those_of_another_stay() {
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
async fn a_refused_application_does_not_stand_in_the_way_of_others() {
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
async fn a_dashboard_that_does_not_answer_leaves_everything_unknown() {
    let ray = RayServe::start();
    let writer = writer(&ray);
    writer.add(FIRST, config(FIRST)).await.expect("added");
    ray.set_down(true);
    let error = writer.is_gone(FIRST).await.expect_err("unknown");
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
async fn a_token_that_is_missing_or_wrong_is_said() {
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
    let writer = ServeWriter::new(&access, "model-pool.lab.r");
    let error = writer.look().await.expect_err("refused");
    assert!(matches!(error, RayError::Denied { .. }), "{error}");
    assert!(!error.to_string().contains("another"), "{error}");
    std::fs::write(&folder, "the-token\n").expect("written");
    assert!(writer.look().await.is_ok());
    let _ = std::fs::remove_file(folder);
}
