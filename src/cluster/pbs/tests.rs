//! Tests with programs that imitate PBS'. Their output has OpenPBS' form, taken from its source and from the pages of sites.

use std::time::Duration;

use super::super::LeaseState;
use super::*;
use crate::stand_ins::{self, id, in_words, played, read, shape, write};
use config::{ClusterKind, Length};

mod inspection;
mod scripts;

fn section() -> ClusterSection {
    let shapes = vec![shape("a2", 2, 28_801), shape("free", 0, 28_801)];
    stand_ins::section(ClusterKind::Pbs, shapes)
}

/// A cluster with these scripts as programs.
fn with_programs(programs: &[(&str, &str)]) -> (tempfile::TempDir, Pbs) {
    let folder = played(programs);
    let mut section = section();
    section.pbs.bin_dir = Some(folder.path().to_owned());
    section.pbs.log_dir = Some(folder.path().to_owned());
    section.pbs.timeout = Length::from_secs(5);
    (folder, Pbs::new(&section))
}

/// A job as `qstat -f` describes it, with these additional lines.
fn job(id: &str, lines: &str) -> String {
    format!(
        "Job Id: {id}
    Job_Name = model-pool.lab
    Job_Owner = lab@login.example.org
{lines}
    queue = gpu
    Error_Path = login.example.org:/home/lab/model-pool-with-a-very-long-name-of-a-fi
\tle.e4711
    Resource_List.walltime = 08:00:01
    Variable_List = PBS_O_HOME=/home/lab,PBS_O_PATH=/usr/local/bin:/usr/bin:/bin,
\tPBS_O_WORKDIR=/home/lab,MODEL_POOL_LEA
\tSE=a2.1764,PBS_O_QUEUE=gpu

"
    )
}

const RUNS: &str = "    job_state = R
    exec_host = gpu07/0*16
    stime = Tue Nov  1 10:00:00 2022
    substate = 42
    comment = Job run at Tue Nov 01 at 10:00 on (gpu07:ngpus=2:ncpus=16)";
const WAITS: &str = "    job_state = Q
    estimated.start_time = Tue Nov  1 12:00:00 2022
    comment = Not Running: Insufficient amount of resource: ngpus (R: 2 A: 1 T: 8
\t)";
const FAILED: &str = "    job_state = F
    exec_host = gpu03/1*16
    mtime = Tue Nov  1 10:02:00 2022
    stime = Tue Nov  1 10:00:00 2022
    substate = 93
    Exit_status = 127";

fn described(jobs: &[Job]) -> Vec<String> {
    let one = |job: &Job| {
        let state = in_words(job.lease_state());
        let facts = &job.facts;
        let times = (facts.starts_unix, facts.ends_unix);
        format!(
            "{} {} {:?} {times:?} {state}",
            facts.id, facts.shape, facts.demand
        )
    };
    jobs.iter().map(one).collect()
}

fn jobs(text: &str) -> Vec<Job> {
    let records = text::records(text, "Job Id: ");
    let jobs = records
        .iter()
        .filter_map(|record| Job::from_record(record, "lab"));
    jobs.collect()
}

#[test]
fn folded_lines_yield_this_pools_jobs_with_their_times_and_reasons() {
    let all = [
        job("7.pbs01", RUNS),
        job("8.pbs01", WAITS),
        job("9.pbs01", FAILED),
        job("10.pbs01", RUNS).replace("model-pool.lab", "model-pool.other"),
        job("11.pbs01", RUNS).replace("MODEL_POOL_LEA\n\tSE", "SOMETHING"),
    ];
    assert_eq!(
        described(&jobs(&all.concat())),
        [
            "7.pbs01 a2 Some(1764) (Some(1667296800), Some(1667325601)) running on gpu07",
            "8.pbs01 a2 Some(1764) (Some(1667304000), None) pending: there is not enough of ngpus: it needs 2, and 1 of 8 are free; it starts when jobs that hold it end (Insufficient amount of resource: ngpus (R: 2 A: 1 T: 8))",
            "9.pbs01 a2 Some(1764) (Some(1667296800), Some(1667296920)) ended: its script found no program on gpu03 (status 127); correct cluster.program, or add its folder to PATH in cluster.pbs.setup",
        ]
    );
}

#[test]
fn each_pending_reason_is_explained_followed_by_that_of_pbs() {
    for (state, comment, part) in [
        ("Q", "", "has not considered it yet"),
        (
            "Q",
            "Not Running: Job would conflict with reservation or top job",
            "lower time_limit of the shape",
        ),
        (
            "Q",
            "Not Running: Not enough free nodes available",
            "it starts when one becomes free (Not enough free nodes available)",
        ),
        (
            "Q",
            "Can Never Run: Insufficient amount of resource: ngpus (R: 9 A: 8 T: 8)",
            "no node has enough of ngpus: it needs 9, and 8 of 8 are free, so it never starts",
        ),
        (
            "Q",
            "Not Running: Insufficient amount of resource: Qlist ",
            "there is not enough of Qlist; it starts",
        ),
        (
            "Q",
            "Not Running: User has reached queue running job limit.",
            "release a lease",
        ),
        (
            "Q",
            "Not Running: Queue not started.",
            "set another cluster.pbs.queue",
        ),
        ("Q", "Not Running: a new one", "PBS' reason is: a new one"),
        ("H", "", "let it go with `qrls`"),
        (
            "H",
            "job held, too many failed attempts to run",
            "log of pbs_mom",
        ),
        ("W", "", "PBS starts it later"),
    ] {
        let reason = reasons::pending(state, comment);
        assert!(reason.contains(part), "{comment}: {reason}");
    }
}

#[test]
fn each_end_of_a_job_is_explained_in_plain_language() {
    let ended = |lines: &str| {
        let jobs = jobs(&job("9.pbs01", &FAILED.replace("Exit_status = 127", lines)));
        let LeaseState::Ended { why } = jobs[0].lease_state() else {
            panic!("{jobs:?}");
        };
        why
    };
    for (lines, expected) in [
        (
            "Exit_status = 0",
            "its node was released or ended on its own",
        ),
        ("Exit_status = -29", "its time limit of 480 min was over"),
        ("Exit_status = -27", "add mem= to select"),
        (
            "Exit_status = -3",
            "PBS could not run it on gpu03 (status -3)",
        ),
        ("Exit_status = 73", "make cluster.pbs.log_dir a folder"),
        ("Exit_status = 78", "which GPUs are theirs"),
        ("Exit_status = 271", "ended on gpu03 by SIGTERM"),
        ("Exit_status = 265", "killed on gpu03 by SIGKILL"),
        ("Exit_status = 1", "it failed with status 1 on gpu03"),
        ("comment = x", "PBS does not say why on gpu03"),
    ] {
        let why = ended(lines);
        assert!(why.contains(expected), "{lines}: {why}");
    }
    let deleted = FAILED.replace("substate = 93", "substate = 91");
    let deleted = jobs(&job("9.pbs01", &deleted.replace("127", "271")));
    assert!(described(&deleted)[0].ends_with("the job was deleted"));
    let over = FAILED.replace("10:02:00", "18:00:05");
    let over = jobs(&job("9.pbs01", &over.replace("127", "271")));
    assert!(described(&over)[0].ends_with("its time limit of 480 min was over"));
}

const NONE: (&str, &str) = ("qselect", "exit 0");

#[tokio::test]
async fn a_request_submits_the_script_and_gives_the_id_of_the_job() {
    let keep = "cat > $(dirname $0)/script; echo \"$*\" > $(dirname $0)/words; echo 17.pbs01";
    let (folder, pbs) = with_programs(&[("qsub", keep)]);
    let excluded = ["gpu01".to_owned()];
    let id = pbs.request("a2", Some(5), &excluded).await;
    assert_eq!(id.expect("submitted").as_str(), "17.pbs01");
    let script = pbs.script("a2", Some(5)).expect("rendered");
    assert_eq!(read(&folder, "script"), script);
    assert_eq!(read(&folder, "words"), "-f\n");
}

#[tokio::test]
async fn missing_refusing_hanging_and_broken_programs_are_errors_with_advice() {
    let (_folder, pbs) = with_programs(&[]);
    let error = pbs.request("a2", None, &[]).await.expect_err("missing");
    assert!(error.to_string().contains("/opt/pbs/bin"), "{error}");
    for (script, is_unknown, part) in [
        (
            "echo 'qsub: Unknown queue' >&2; exit 170",
            false,
            "correct cluster.pbs.queue",
        ),
        ("exec sleep 600", true, "the job may have been submitted"),
        ("echo Welcome", true, "printed `Welcome` and no job id"),
        ("kill -9 $$", true, "a signal ended it"),
        (
            "echo 'qsub: cannot connect to server pbs01 (errno=111)' >&2; exit 111",
            true,
            "state of its nodes is unknown",
        ),
    ] {
        let (_folder, pbs) = with_programs(&[("qsub", script)]);
        let error = pbs.request("a2", None, &[]).await.expect_err(script);
        assert_eq!(error.is_unknown(), is_unknown, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// Lists two live jobs and an ended one, and records the arguments of each call.
const SELECT: (&str, &str) = (
    "qselect",
    "echo \"$TZ $*\" >> $(dirname $0)/calls; case \"$*\" in *-x*) echo 9.pbs01;; *) echo 7.pbs01; echo 8.pbs01;; esac",
);

#[tokio::test]
async fn the_leases_are_the_jobs_with_the_pools_name_and_the_log_explains_a_failure() {
    let (folder, pbs) = with_programs(&[SELECT, ("qstat", "cat $(dirname $0)/text")]);
    let all = [job("7.pbs01", RUNS), job("8.pbs01", WAITS)].concat() + &job("9.pbs01", FAILED);
    write(&folder, "text", &all);
    let log = "model-pool: the token has expired\n=>> PBS: job killed: over\n\n";
    write(&folder, "model-pool-9.pbs01.log", log);
    let leases = pbs.status().await.expect("known");
    let nodes: Vec<&str> = leases.iter().map(|lease| lease.node.as_str()).collect();
    assert_eq!(nodes, ["pbs-7", "pbs-8", "pbs-9"]);
    assert_eq!(leases[0].ends_by(), Some(1_667_325_601));
    assert_eq!(leases[0].time_limit, Some(Duration::from_secs(28_801)));
    let LeaseState::Ended { why } = &leases[2].state else {
        panic!("{leases:?}");
    };
    let end = "its log ends with: model-pool: the token has expired";
    assert!(why.ends_with(end), "{why}");
    let calls = read(&folder, "calls");
    let mut calls = calls.lines();
    let first = calls.next().expect("a call");
    assert!(first.starts_with("UTC -u ") && first.ends_with(" -N model-pool.lab"));
    let second = calls.next().expect("a second call");
    assert!(
        second.contains(" -N model-pool.lab -x -s F -tm.gt.20"),
        "{second}"
    );
}

#[tokio::test]
async fn a_server_without_history_is_not_queried_for_it_again() {
    let stat = "echo \"$*\" >> $(dirname $0)/stats; case \"$*\" in *-x*) echo 'qstat: PBS is not configured to maintain job history' >&2; exit 0;; esac; cat $(dirname $0)/text";
    let select = "case \"$*\" in *-x*) exit 0;; esac; echo 7.pbs01";
    let (folder, pbs) = with_programs(&[("qselect", select), ("qstat", stat)]);
    write(&folder, "text", &job("7.pbs01", RUNS));
    assert_eq!(pbs.status().await.expect("known").len(), 1);
    assert_eq!(pbs.status().await.expect("known").len(), 1);
    assert_eq!(
        read(&folder, "stats"),
        "-f -x 7.pbs01\n-f 7.pbs01\n-f 7.pbs01\n"
    );
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_an_error_and_never_an_empty_list() {
    let down =
        "echo 'Connection refused' >&2; echo 'cannot connect to server pbs01 (errno=111)' >&2";
    for (select, stat) in [
        (format!("{down}; exit 1"), String::new()),
        (
            "case $* in *-x*) ;; *) echo 7.pbs01;; esac".to_owned(),
            format!("{down}; exit 1"),
        ),
        // The program succeeds and leaves the job out.
        (
            "case $* in *-x*) ;; *) echo 7.pbs01;; esac".to_owned(),
            "exit 0".to_owned(),
        ),
    ] {
        let (_folder, pbs) = with_programs(&[("qselect", &select), ("qstat", &stat)]);
        let error = pbs.status().await.expect_err("down");
        assert!(error.is_unknown(), "{error}");
    }
}

#[tokio::test]
async fn a_job_that_disappears_during_a_poll_has_ended() {
    let stat = "cat $(dirname $0)/text; echo 'qstat: Unknown Job Id 8.pbs01' >&2; exit 153";
    let (folder, pbs) = with_programs(&[SELECT, ("qstat", stat)]);
    let both = [job("7.pbs01", RUNS), job("9.pbs01", FAILED)].concat();
    write(&folder, "text", &both);
    assert_eq!(pbs.status().await.expect("known").len(), 2);
    // A job that is neither described nor named as gone is unknown, as is a job without its state.
    for text in [job("7.pbs01", RUNS), both.replace("job_state", "other")] {
        write(&folder, "text", &text);
        let error = pbs.status().await.expect_err("unknown");
        assert!(error.is_unknown(), "{error}");
    }
    let (_folder, pbs) = with_programs(&[NONE]);
    assert!(pbs.status().await.expect("none").is_empty());
}

#[tokio::test]
async fn release_deletes_only_jobs_of_this_pool_and_drains_running_ones() {
    let keep = |name: &str| format!("echo \"{name} $*\" >> $(dirname $0)/ends");
    let (signal, delete) = (keep("qsig"), keep("qdel"));
    let (folder, pbs) = with_programs(&[
        SELECT,
        ("qstat", "cat $(dirname $0)/text"),
        ("qsig", &signal),
        ("qdel", &delete),
    ]);
    let all = [job("7.pbs01", RUNS), job("8.pbs01", WAITS)].concat() + &job("9.pbs01", FAILED);
    write(&folder, "text", &all);
    let error = pbs.release(&id("16"), Release::Now).await;
    assert!(error.expect_err("another's").to_string().contains("`16`"));
    for (lease, how) in [
        ("7.pbs01", Release::Drain),
        ("8", Release::Drain),
        ("7", Release::Now),
        ("9.pbs01", Release::Now),
    ] {
        pbs.release(&id(lease), how).await.expect("done");
    }
    assert_eq!(
        read(&folder, "ends"),
        "qsig -s SIGURG 7.pbs01\nqdel 8.pbs01\nqdel 7.pbs01\n"
    );
}
