//! Tests with programs that refuse and hang, and with recorded output of real ones (tests/fixtures/slurm). Tests with a real Slurm
//! are in tests/outside.

use std::time::Duration;

use super::super::LeaseState;
use super::*;
use crate::stand_ins::{self, id, in_words, played, read, shape, write};
use config::{ClusterKind, Length};

mod sets;

fn section() -> ClusterSection {
    let shapes = vec![shape("a2", 2, 3601), shape("free", 0, 3601)];
    stand_ins::section(ClusterKind::Slurm, shapes)
}

/// A cluster with these scripts as programs.
fn with_programs(programs: &[(&str, &str)]) -> (tempfile::TempDir, Slurm) {
    let folder = played(programs);
    let mut section = section();
    section.slurm.bin_dir = Some(folder.path().to_owned());
    section.slurm.log_dir = Some(folder.path().to_owned());
    section.slurm.timeout = Length::from_secs(5);
    (folder, Slurm::new(&section))
}

fn fixture(name: &str) -> String {
    stand_ins::fixture(&format!("slurm/{name}"))
}

fn described(job: &Job) -> String {
    let state = in_words(job.lease_state());
    let limit = job.facts.time_limit.map(|limit| limit.as_secs() / 60);
    format!("{} {} {limit:?} {state}", job.facts.id, job.facts.shape)
}

const EXPECTED: &[&str] = &[
    "10 short Some(60) ended: its node was released or ended on its own",
    "12 a2 Some(480) pending: the shape's time limit is longer than the partition allows, so it never starts; lower time_limit of the shape (PartitionTimeLimit)",
    "13 a2 Some(60) running on n0",
    "14 a2 Some(60) pending: all nodes of this shape are in use; the job starts when one becomes free (Resources)",
    "15 down Some(60) pending: the partition is down; ask the cluster's administrators, or set another cluster.slurm.partition (PartitionDown)",
    "17 free None pending: the partition is down; ask the cluster's administrators, or set another cluster.slurm.partition (PartitionDown)",
    "18 gone Some(60) ended: the job was cancelled",
];

fn check(mut jobs: Vec<Job>, failed: &str) {
    jobs.sort_by_key(|job| job.facts.id.parse::<u64>().expect("a number"));
    let mut all: Vec<String> = jobs.iter().map(described).collect();
    assert_eq!(all.remove(1), failed);
    assert_eq!(all, EXPECTED);
    let running = &jobs[3].facts;
    assert_eq!(
        (running.starts_unix, running.ends_unix),
        (Some(1_795_468_642), Some(1_795_472_242))
    );
}

#[test]
fn both_forms_of_a_real_squeue_yield_only_this_pools_jobs() {
    let jobs = jobs::of_json(&fixture("squeue-22.05.json"), "lab", 0).expect("read");
    check(
        jobs,
        "11 broken Some(60) ended: its script found no program on n0 (status 127); correct cluster.program, or add its folder to PATH in cluster.slurm.setup",
    );
    let other_user = jobs::of_json(&fixture("squeue-22.05.json"), "lab", 1000);
    assert_eq!(other_user, Ok(vec![]));
    let jobs = jobs::of_queue_text(&fixture("squeue.txt"), "lab").expect("read");
    check(jobs, "11 broken Some(60) ended: it failed on n0");
    assert!(jobs::of_json("{}", "lab", 0).is_err());
    assert!(jobs::of_queue_text("1 2 3\n", "lab").is_err());
}

#[test]
fn newer_json_has_lists_of_states_and_wrapped_numbers() {
    let job = |state: &str, extra: &str| {
        format!(
            r#"{{"job_id": 7, "user_id": 5, "name": "model-pool:lab:a2", "job_state": {state}, "state_reason": "QOSMaxGRESPerUser",
            "nodes": "gpu07", "start_time": {{"set": true, "infinite": false, "number": 1700000000}}, "end_time": {{"set": true, "infinite": false, "number": 0}},
            {extra}}}"#
        )
    };
    let limited = r#""time_limit": {"set": true, "infinite": false, "number": 480}, "exit_code": {"status": ["ERROR"], "return_code": {"set": true, "infinite": false, "number": 3}}"#;
    let infinite =
        r#""time_limit": {"set": false, "infinite": true, "number": 0}, "exit_code": {}"#;
    let text = format!(
        r#"{{"jobs": [{}, {}, {}]}}"#,
        job(r#"["FAILED", "COMPLETING"]"#, limited),
        job(r#"["FAILED"]"#, limited),
        job(r#"["PENDING"]"#, infinite)
    );
    let jobs = jobs::of_json(&text, "lab", 5).expect("read");
    let all: Vec<String> = jobs.iter().map(described).collect();
    assert_eq!(
        all,
        [
            "7 a2 Some(480) running on gpu07",
            "7 a2 Some(480) ended: it failed with status 3 on gpu07",
            "7 a2 None pending: this user has as many GPUs as the QOS allows; wait, release a lease, or use a smaller shape (QOSMaxGRESPerUser)",
        ]
    );
    assert_eq!(
        (jobs[0].facts.starts_unix, jobs[0].facts.ends_unix),
        (Some(1_700_000_000), None)
    );
}

#[test]
fn accounting_records_yield_the_canceller_and_the_exit_status_of_a_job() {
    let text = "5\u{1f}model-pool:lab:a2\u{1f}CANCELLED by 1000\u{1f}gpu07\u{1f}480\u{1f}1700000000\u{1f}1700000100\u{1f}0:15\n\
                6\u{1f}model-pool:lab:a2\u{1f}NODE_FAIL\u{1f}gpu08\u{1f}480\u{1f}1700000000\u{1f}1700000100\u{1f}1:0\n\
                7\u{1f}other\u{1f}FAILED\u{1f}gpu08\u{1f}480\u{1f}Unknown\u{1f}Unknown\u{1f}1:0\n";
    let jobs = jobs::of_accounting(text, "lab");
    let all: Vec<String> = jobs.iter().map(described).collect();
    assert_eq!(
        all,
        [
            "5 a2 Some(480) ended: the user with number 1000 cancelled the job",
            "6 a2 Some(480) ended: the machine failed on gpu08; look with `sinfo -R`",
        ]
    );
    assert_eq!(failed_hosts(&jobs, 1_700_000_200), ["gpu08"]);
    assert!(failed_hosts(&jobs, 1_700_009_999).is_empty(), "long ago");
    let many: Vec<Job> = (0..4)
        .map(|host| {
            let mut job = jobs[1].clone();
            job.facts.host = host.to_string();
            job
        })
        .collect();
    assert!(
        failed_hosts(&many, 1_700_000_200).is_empty(),
        "not the hosts"
    );
}

#[test]
fn a_time_limit_is_read_in_every_form() {
    let minutes = |text: &str| jobs::time_limit(text).map(|limit| limit.as_secs() / 60);
    for (text, expected) in [
        ("30:00", Some(30)),
        ("1:30:00", Some(90)),
        ("2-00:00:00", Some(2880)),
        ("UNLIMITED", None),
        ("infinite", None),
        ("INVALID", None),
        ("", None),
        ("99999999999999999999:00", None),
    ] {
        assert_eq!(minutes(text), expected, "{text}");
    }
}

#[test]
fn the_script_has_every_option_quoted_and_never_the_token() {
    let mut section = section();
    section.fingerprint = Some(format!("sha256:{}", "0".repeat(64)));
    section.node_data = Some("/scratch/a b/%j".to_owned());
    section.node_options = vec!["--listen".to_owned(), "0.0.0.0:0; rm -r /".to_owned()];
    section.shapes[0].gres = Some("gpu:h100:2".to_owned());
    let slurm = &mut section.slurm;
    slurm.partition = Some("gpu".to_owned());
    slurm.account = Some("lab".to_owned());
    slurm.qos = Some("long".to_owned());
    slurm.constraint = Some("h100&nvlink".to_owned());
    slurm.exclude = vec!["gpu01".to_owned()];
    slurm.requeue = Some(false);
    slurm.log_dir = Some("/shared/logs".into());
    slurm.options = vec!["--mem=200G".to_owned()];
    slurm.setup = "module load cuda\n".to_owned();
    let script = Slurm::new(&section)
        .script("a2", &[], &["gpu02".to_owned()])
        .expect("rendered");
    let expected = r#"#!/bin/bash
#SBATCH --job-name=model-pool:lab:a2
#SBATCH --comment=model-pool:lab:a2
#SBATCH --nodes=1
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --qos=long
#SBATCH --constraint=h100&nvlink
#SBATCH --gres=gpu:h100:2
#SBATCH --time=61
#SBATCH --exclude=gpu01,gpu02
#SBATCH --signal=B:TERM@120
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --output=/shared/logs/model-pool-%j.log
#SBATCH --mem=200G

echo "model-pool: job $SLURM_JOB_ID starts a node on ${SLURMD_NODENAME:-$(hostname)}"
trap 'echo "model-pool: a command of cluster.slurm.setup failed with status $?, so the job ends" >&2' EXIT
set -e
module load cuda
set +e
trap - EXIT
exec model-pool node --controller https://pool.example.org:8443 --name "slurm-$SLURM_JOB_ID" --token-file '/shared/the token' --fingerprint sha256:0000000000000000000000000000000000000000000000000000000000000000 --data '/scratch/a b/'"$SLURM_JOB_ID" --remove-data --listen '0.0.0.0:0; rm -r /'
"#;
    assert_eq!(script, expected);
    let unknown = Slurm::new(&section)
        .script("a3", &[], &[])
        .expect_err("unknown");
    assert!(unknown.to_string().contains("a2, free"), "{unknown}");
}

const EMPTY: (&str, &str) = ("squeue", r#"echo '{"jobs": []}'"#);
const NO_ACCOUNTING: (&str, &str) = (
    "sacct",
    "echo 'Slurm accounting storage is disabled' >&2; exit 1",
);

#[tokio::test]
async fn a_request_submits_the_script_and_gives_the_number_of_the_job() {
    let keep = "cat > $(dirname $0)/script; echo '17;cluster'";
    let (folder, slurm) = with_programs(&[("sbatch", keep), EMPTY, NO_ACCOUNTING]);
    let id = slurm.request("a2", None, &[]).await.expect("submitted");
    assert_eq!(id.as_str(), "17");
    let script = slurm.script("a2", &[], &[]).expect("rendered");
    assert_eq!(read(&folder, "script"), script);
}

#[tokio::test]
async fn missing_refusing_hanging_and_broken_programs_are_errors_with_advice() {
    let (_folder, slurm) = with_programs(&[]);
    let error = slurm.request("a2", None, &[]).await.expect_err("missing");
    assert!(error.to_string().contains("slurm-client"), "{error}");
    for (script, is_unknown, part) in [
        (
            "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1",
            false,
            "correct cluster.slurm.partition",
        ),
        ("exec sleep 600", true, "the job may have been submitted"),
        ("echo Welcome", true, "printed `Welcome` and no job id"),
        ("kill -9 $$", true, "a signal ended it"),
        (
            "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
            true,
            "state of its nodes is unknown",
        ),
    ] {
        let (_folder, slurm) = with_programs(&[("sbatch", script), EMPTY, NO_ACCOUNTING]);
        let error = slurm.request("a2", None, &[]).await.expect_err(script);
        assert_eq!(error.is_unknown(), is_unknown, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_controller_daemon_that_is_down_is_an_error_and_never_an_empty_list() {
    // If the daemon is down, the JSON is an empty list, and `squeue --json` exits with 0.
    let down = "case $1 in --json) cat $(dirname $0)/json;; *) echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1;; esac";
    let (folder, slurm) = with_programs(&[("squeue", down), NO_ACCOUNTING]);
    write(&folder, "json", &fixture("squeue-22.05-unreachable.json"));
    let error = slurm.status().await.expect_err("down");
    assert!(error.is_unknown(), "{error}");
    let json = fixture("squeue-22.05.json").replace("\"user_id\": 0", &own_user());
    write(&folder, "json", &json);
    write(&folder, "squeue", "#!/bin/sh\ncat $(dirname $0)/json\n");
    let leases = slurm.status().await.expect("known again");
    assert_eq!(leases.len(), 8);
    let running = leases
        .iter()
        .find(|lease| lease.id.as_str() == "13")
        .expect("13");
    assert_eq!(running.node, "slurm-13");
    assert_eq!(running.time_limit, Some(Duration::from_secs(3600)));
}

fn own_user() -> String {
    format!("\"user_id\": {}", rustix::process::getuid().as_raw())
}

#[tokio::test]
async fn text_is_read_if_the_json_is_missing_or_too_long() {
    for json in [
        "echo \"squeue: unrecognized option '--json'\" >&2; exit 1",
        "echo '{\"jobs\": '",
        "yes '{\"jobs\": [['",
    ] {
        let script = format!("case $1 in --json) {json};; *) cat $(dirname $0)/text;; esac");
        let (folder, slurm) = with_programs(&[("squeue", &script), NO_ACCOUNTING]);
        write(&folder, "text", &fixture("squeue.txt"));
        assert_eq!(slurm.status().await.expect("read").len(), 8, "{json}");
    }
}

#[tokio::test]
async fn the_end_of_a_failed_jobs_log_is_shown() {
    let script = "case $1 in --json) exit 1;; *) cat $(dirname $0)/text;; esac";
    let (folder, slurm) = with_programs(&[("squeue", script), NO_ACCOUNTING]);
    write(&folder, "text", &fixture("squeue.txt"));
    let log = "model-pool: the token has expired\nslurmstepd: error: over\n\n";
    write(&folder, "model-pool-11.log", log);
    let leases = slurm.status().await.expect("read");
    let failed = leases
        .iter()
        .find(|lease| lease.id.as_str() == "11")
        .expect("11");
    let LeaseState::Ended { why } = &failed.state else {
        panic!("{failed:?}");
    };
    assert!(
        why.ends_with("its log ends with: model-pool: the token has expired"),
        "{why}"
    );
}

#[tokio::test]
async fn release_cancels_only_jobs_of_this_pool_and_drains_them_first() {
    let queue = "case $1 in --json) exit 1;; *) cat $(dirname $0)/text;; esac";
    let cancel = "echo \"$@\" >> $(dirname $0)/calls; echo 'Invalid job id specified' >&2; exit 1";
    let (folder, slurm) = with_programs(&[("squeue", queue), ("scancel", cancel), NO_ACCOUNTING]);
    write(&folder, "text", &fixture("squeue.txt"));
    let error = slurm
        .release(&id("16"), Release::Now)
        .await
        .expect_err("another pool's");
    assert!(error.to_string().contains("`16`"), "{error}");
    slurm
        .release(&id("13"), Release::Drain)
        .await
        .expect("done");
    slurm.release(&id("13"), Release::Now).await.expect("done");
    assert_eq!(
        read(&folder, "calls"),
        "--name=model-pool:lab:a2 --state=PENDING 13\n\
         --name=model-pool:lab:a2 --state=RUNNING --batch --signal=TERM 13\n\
         --name=model-pool:lab:a2 13\n"
    );
}
