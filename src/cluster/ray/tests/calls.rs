//! Calls: the requests sent, and the error for each kind of failure.

use super::double::Double;
use super::*;

const DUPLICATE: &str = "Traceback (most recent call last):
  File \"/opt/ray/dashboard/modules/job/job_head.py\", line 134, in _raise_error
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
  File \"/opt/ray/dashboard/modules/job/job_manager.py\", line 553, in submit_job
ValueError: Job with submission_id model-pool.lab.50 already exists. Please use a different submission_id.
.
";
const WRONG_LABEL: &str =
    "RuntimeError: Request failed with status code 400: Traceback (most recent call last):
ValueError: Invalid label key name `a b`. Name must be 63 chars or less.
.
";
const UNKNOWN_KEY: &str = "TypeError: JobSubmitRequest.__init__() got an unexpected keyword argument 'entrypoint_label_selector'\n";

/// The real lists, and this response to every change.
fn real(status: u16, text: &'static str) -> impl Fn(&str) -> (u16, String) + Send + Sync {
    move |call| match call {
        "GET /api/jobs/" => (200, fixture("jobs-2.60.json").to_string()),
        call if call.starts_with("GET /api/v0/nodes") => {
            (200, fixture("nodes-2.60.json").to_string())
        }
        "GET /api/cluster_status" => (200, fixture("autoscaler-v1-idle.json").to_string()),
        _ => (status, text.to_owned()),
    }
}

pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test]
async fn a_request_has_the_shape_the_token_and_an_id_assigned_by_the_pool() {
    let (folder, double) = (folder(), Double::start(real(200, "{}")).await);
    let mut ray = double.ray(folder.path());
    ray.section.shapes[1].labels = [("pool".to_owned(), "big".to_owned())].into();
    ray.section.ray.resources = [("accel_a".to_owned(), 0.5)].into();
    ray.section.ray.env = [("HF_HOME".to_owned(), "/scratch".to_owned())].into();
    let lease = ray.request("a2", Some(50), &[]).await.expect("requested");
    assert_eq!(lease, id("model-pool.lab.50"));
    let sent = double.sent();
    assert!(
        sent.iter()
            .all(|request| request.authorization.as_deref() == Some("Bearer secret-of-ray"))
    );
    let body = &sent
        .iter()
        .find(|request| request.call == "POST /api/jobs/")
        .expect("submitted")
        .body;
    let has = |key: &str, value: Value| assert_eq!(body[key], value, "{key}");
    has("submission_id", "model-pool.lab.50".into());
    has("entrypoint_num_gpus", 2.into());
    has("entrypoint_num_cpus", 1.into());
    has("entrypoint_resources", serde_json::json!({"accel_a": 0.5}));
    has(
        "entrypoint_label_selector",
        serde_json::json!({"pool": "big"}),
    );
    has(
        "runtime_env",
        serde_json::json!({"env_vars": {"HF_HOME": "/scratch", "RAY_JOB_STOP_WAIT_TIME_S": "130"}}),
    );
    assert_eq!(body["metadata"]["shape"], "a2");
    assert!(!body.to_string().contains("secret"), "{body}");
    // A person's request has another id, and no labels are sent if there are none.
    let lease = ray.request("a1", None, &[]).await.expect("requested");
    assert!(lease.as_str().starts_with("model-pool.lab.p1"), "{lease}");
    let sent = double.sent();
    let body = &sent
        .iter()
        .find(|request| request.call == "POST /api/jobs/")
        .expect("submitted")
        .body;
    assert!(body.get("entrypoint_label_selector").is_none(), "{body}");
}

#[tokio::test]
async fn a_duplicate_submission_returns_the_existing_lease() {
    let (folder, double) = (folder(), Double::start(real(500, DUPLICATE)).await);
    let ray = double.ray(folder.path());
    let lease = ray.request("a1", Some(50), &[]).await;
    assert_eq!(lease, Ok(id("model-pool.lab.50")));
    let mine = ray.request("a1", None, &[]).await.expect_err("refused");
    assert!(!mine.is_unknown(), "{mine}");
}

const SECOND: &str = "!in(7f044f46d0c0fb171b64af1a7b02155c6ada2d65e034136f543e6951)";

/// The machines of the real list, with these jobs.
fn with_jobs(jobs: Value) -> impl Fn(&str) -> (u16, String) + Send + Sync {
    let rest = real(200, "{}");
    move |call| match call {
        "GET /api/jobs/" => (200, jobs.to_string()),
        call => rest(call),
    }
}

/// The nodes that a request avoids.
async fn left_out(
    double: &Double,
    ray: &Ray,
    shape: &str,
    demand: Option<u64>,
    exclude: &[String],
) -> Value {
    ray.request(shape, demand, exclude)
        .await
        .expect("requested");
    let sent = double.sent();
    let body = sent
        .iter()
        .find(|request| request.call == "POST /api/jobs/");
    body.expect("submitted").body["entrypoint_label_selector"]["ray.io/node-id"].clone()
}

#[tokio::test]
async fn the_pool_avoids_a_machine_that_never_joined_if_another_exists() {
    let double = Double::start(with_jobs(serde_json::json!([]))).await;
    let folder = folder();
    let ray = double.ray(folder.path());
    let exclude = ["127.0.0.2".to_owned()];
    assert_eq!(
        left_out(&double, &ray, "a1", Some(50), &exclude).await,
        SECOND
    );
    // No machine has 8 GPUs, so the pool avoids none; a person's exclusion stands.
    assert_eq!(
        left_out(&double, &ray, "a8", Some(51), &exclude).await,
        Value::Null
    );
    assert_eq!(left_out(&double, &ray, "a8", None, &exclude).await, SECOND);
}

#[tokio::test]
async fn a_machine_on_which_a_job_failed_within_the_hour_is_avoided() {
    let node = "7f044f46d0c0fb171b64af1a7b02155c6ada2d65e034136f543e6951";
    let minutes_ago = |minutes: u128| now().as_millis() - minutes * 60_000;
    let job = |minutes| {
        let ended = u64::try_from(minutes_ago(minutes)).expect("fits");
        serde_json::json!([{"submission_id": "model-pool.lab.1", "status": "FAILED", "driver_node_id": node, "end_time": ended}])
    };
    let folder = folder();
    for (minutes, expected) in [(10, Value::from(SECOND)), (61, Value::Null)] {
        let double = Double::start(with_jobs(job(minutes))).await;
        let ray = double.ray(folder.path());
        assert_eq!(left_out(&double, &ray, "a1", Some(50), &[]).await, expected);
    }
}

#[tokio::test]
async fn each_kind_of_failure_is_reported_with_advice_and_known_or_unknown_outcome() {
    let folder = folder();
    for (status, text, is_unknown, parts) in [
        (
            401,
            "Unauthorized: Missing authentication token",
            false,
            ["it wants a token", "cluster.ray.token_file"],
        ),
        (
            403,
            "Forbidden: Invalid authentication token",
            false,
            ["does not accept the token of /", "ray get-auth-token"],
        ),
        (
            404,
            "404: Not Found",
            false,
            ["nothing found at /api/jobs/", "Ray's dashboard"],
        ),
        (301, "", false, ["redirects", "itself"]),
        (
            400,
            UNKNOWN_KEY,
            false,
            ["no label selectors", "upgrade Ray"],
        ),
        (
            500,
            WRONG_LABEL,
            false,
            ["Invalid label key name `a b`", "refuses"],
        ),
        (
            500,
            "No available agent to submit job, please try again later.",
            true,
            ["No available agent", "may have been submitted"],
        ),
        (503, "", true, ["503", "try again later"]),
        (200, "<html>", true, ["not JSON", "/api/jobs/"]),
    ] {
        let double = Double::start(real(status, text)).await;
        let error = double.ray(folder.path()).request("a1", Some(50), &[]).await;
        let error = error.expect_err(text);
        assert_eq!(error.is_unknown(), is_unknown, "{status} {error}");
        let shown = error.to_string();
        assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
    let away = {
        let double = Double::start(|_| (200, String::new())).await;
        double.ray(folder.path())
    };
    let error = away.status().await.expect_err("away");
    assert!(
        error.is_unknown()
            && error
                .to_string()
                .contains("unknown: Ray at http://127.0.0.1"),
        "{error}"
    );
    let mut without = section();
    without.ray.address = Some("http://127.0.0.1:1".to_owned());
    let error = Ray::new(&without).status().await.expect_err("no token");
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

#[tokio::test]
async fn a_wrong_shape_is_refused_before_ray_is_called() {
    let (folder, double) = (folder(), Double::start(real(200, "{}")).await);
    let error = double.ray(folder.path()).request("small", None, &[]).await;
    assert!(
        error
            .expect_err("unknown")
            .to_string()
            .contains("a1, a2, a8")
    );
    assert!(double.sent().is_empty());
}

#[tokio::test]
async fn status_includes_the_reasons_of_pending_leases_if_ray_reports_them() {
    let (folder, double) = (folder(), Double::start(real(200, "{}")).await);
    let leases = double.ray(folder.path()).status().await.expect("listed");
    let reason = |leases: &[NodeLease]| {
        let waits = leases
            .iter()
            .find(|lease| lease.id == id("model-pool.lab.18"))
            .expect("it waits");
        assert_eq!((waits.node.as_str(), waits.demand), ("ray-18", Some(18)));
        match &waits.state {
            LeaseState::Pending { reason } => reason.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert!(reason(&leases).contains("2 free GPUs yet: 1 node is that large"));
    let double = Double::start(|call| match call {
        "GET /api/jobs/" => (200, fixture("jobs-2.60.json").to_string()),
        _ => (500, "trouble".to_owned()),
    })
    .await;
    let leases = double.ray(folder.path()).status().await.expect("listed");
    assert_eq!(reason(&leases), "Ray has not found a node for it yet");
}

#[tokio::test]
async fn a_release_stops_a_running_job_and_ends_a_pending_or_urgent_one() {
    let (folder, double) = (
        folder(),
        Double::start(real(200, "{\"stopped\": true}")).await,
    );
    let ray = double.ray(folder.path());
    let released = async |lease: &str, how| {
        ray.release(&id(lease), how).await.expect("released");
        let sent = double.sent();
        let changes = sent
            .iter()
            .filter(|request| !request.call.starts_with("GET"));
        changes
            .map(|request| {
                format!(
                    "{} {}",
                    request.call,
                    request.body["submission_id"].as_str().unwrap_or("-")
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        released("model-pool.lab.16", Release::Drain).await,
        ["POST /api/jobs/model-pool.lab.16/stop -"]
    );
    for (lease, how) in [("16", Release::Now), ("18", Release::Drain)] {
        let lease = format!("model-pool.lab.{lease}");
        assert_eq!(
            released(&lease, how).await,
            [
                format!("POST /api/jobs/{lease}/stop -"),
                format!("POST /api/jobs/ {lease}.cancel")
            ]
        );
    }
    assert!(
        released("model-pool.lab.31", Release::Now).await.is_empty(),
        "it has ended"
    );
    let unknown = ray.release(&id("model-pool.lab2.40"), Release::Now).await;
    assert!(
        matches!(unknown, Err(ClusterError::WrongId { .. })),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn records_of_jobs_that_ended_an_hour_ago_are_deleted() {
    let hour = 3600 * 1000;
    let now = u64::try_from(now().as_millis()).expect("fits");
    let jobs = serde_json::json!([
        {"submission_id": "model-pool.lab.1", "status": "STOPPED", "end_time": now - 2 * hour},
        {"submission_id": "model-pool.lab.1.cancel", "status": "SUCCEEDED", "end_time": now - 2 * hour},
        {"submission_id": "model-pool.lab.2", "status": "FAILED", "end_time": now - hour / 2},
        {"submission_id": "model-pool.lab.3", "status": "RUNNING", "end_time": null},
        {"submission_id": "other", "status": "STOPPED", "end_time": now - 2 * hour},
    ]);
    let (folder, double) = (
        folder(),
        Double::start(move |call| match call {
            "GET /api/jobs/" => (200, jobs.to_string()),
            _ => (200, "{}".to_owned()),
        })
        .await,
    );
    let requested = double.ray(folder.path()).request("a1", Some(50), &[]).await;
    requested.expect("requested");
    assert_eq!(
        double.changes(),
        [
            "DELETE /api/jobs/model-pool.lab.1",
            "DELETE /api/jobs/model-pool.lab.1.cancel",
            "POST /api/jobs/"
        ]
    );
}
