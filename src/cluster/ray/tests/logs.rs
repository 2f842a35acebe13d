//! Information from the logs of jobs: the reason that a node never joined, and a job's start.

use super::calls::folder;
use super::double::Double;
use super::*;

#[tokio::test]
async fn the_log_of_a_node_that_never_joins_is_read() {
    let (folder, double) = (
        folder(),
        Double::start(|call| match call {
            "GET /api/jobs/model-pool.lab.16/logs" => {
                (200, "{\"logs\": \"Running entrypoint for job model-pool.lab.16: x\\nno route to host\\n\"}".to_owned())
            }
            "GET /api/jobs/model-pool.lab.16" => (200, "{\"entrypoint\": \"x\"}".to_owned()),
            _ => (404, String::new()),
        })
        .await,
    );
    let ray = double.ray(folder.path());
    let line = ray.log_end(&id("model-pool.lab.16")).await;
    assert_eq!(line.as_deref(), Some("no route to host"));
    assert_eq!(ray.log_end(&id("model-pool.lab.17")).await, None);
}

#[tokio::test]
async fn n7_a_jobs_time_limit_counts_from_its_start_not_from_its_submission() {
    let log = "Running entrypoint for job model-pool.lab.16: echo \"model-pool: the job starts at $(date +%s)\"\nmodel-pool: the job starts at 1795640000\nready\n";
    let logs = serde_json::json!({ "logs": log }).to_string();
    let mut jobs = fixture("jobs-2.60.json");
    for job in jobs.as_array_mut().expect("a list") {
        job["metadata"]["time_limit_seconds"] = "28800".into();
    }
    let double = Double::start(move |call| match call {
        "GET /api/jobs/" => (200, jobs.to_string()),
        "GET /api/jobs/model-pool.lab.16/logs" => (200, logs.clone()),
        _ => (500, "trouble".to_owned()),
    })
    .await;
    let folder = folder();
    let ray = double.ray(folder.path());
    let mut reads = 0;
    for _ in 0..3 {
        let leases = ray.status().await.expect("listed");
        let of = |lease: &str| {
            leases
                .iter()
                .find(|candidate| candidate.id == id(lease))
                .expect("listed")
        };
        assert_eq!(
            of("model-pool.lab.16").ends_by(),
            Some(1_795_640_000 + 28_800)
        );
        assert_eq!(of("model-pool.lab.18").starts_unix, None, "it waits");
        let sent = double.sent();
        let of_it = |call: &str| call.ends_with("lab.16/logs");
        reads += sent.iter().filter(|request| of_it(&request.call)).count();
    }
    assert_eq!(reads, 1, "its log is read once");
}

#[tokio::test]
async fn n7_a_job_without_a_start_line_has_no_known_end_and_its_log_is_read_a_few_times_only() {
    let double = Double::start(|call| match call {
        "GET /api/jobs/" => (200, fixture("jobs-2.60.json").to_string()),
        "GET /api/jobs/model-pool.lab.16/logs" => (200, "{\"logs\": \"ready\"}".to_owned()),
        _ => (500, "trouble".to_owned()),
    })
    .await;
    let folder = folder();
    let ray = double.ray(folder.path());
    for _ in 0..20 {
        let leases = ray.status().await.expect("listed");
        assert!(leases.iter().all(|lease| lease.ends_by().is_none()));
    }
    let sent = double.sent();
    let of_it = |call: &str| call.ends_with("lab.16/logs");
    let reads = sent.iter().filter(|request| of_it(&request.call)).count();
    assert_eq!(reads, 5);
}
