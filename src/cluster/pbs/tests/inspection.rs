//! `model-pool check --pbs` with programs that imitate a server with two queues and three nodes.

use super::super::super::Finding;
use super::*;

const VERSION: &str =
    "case \"$*\" in --version) echo 'pbs_version = 2022.1.1'; exit;; esac; cat $(dirname $0)";
const SERVER: &str = "Server: pbs01
    server_state = Active
    scheduling = True
    default_queue = workq

";
const QUEUES: &str = "Queue: workq
    queue_type = Execution
    enabled = True
    started = True
    resources_max.walltime = 04:00:00

Queue: gpu
    queue_type = Route
    route_destinations = gpu_short,gpu_long
    enabled = True
    started = False

";
const NODES: &str = "gpu07-0
     Mom = gpu07.example.org
     state = free
     resources_available.gpu_type = a100
     resources_available.host = gpu07
     resources_available.ncpus = 32
     resources_available.ngpus = 2
     sharing = default_shared

gpu07-1
     state = job-busy
     resources_available.host = gpu07
     resources_available.ngpus = 2

gpu08
     state = down,offline
     resources_available.ngpus = 8
";

async fn inspected(change: impl FnOnce(&mut ClusterSection)) -> Vec<String> {
    let stat = format!(
        "case \"$*\" in *-Q*) cat $(dirname $0)/queues;; *-B*) cat $(dirname $0)/server;; *) {VERSION}/none;; esac"
    );
    let nodes = format!("{VERSION}/nodes");
    let other = format!("{VERSION}/none");
    let (folder, pbs) = with_programs(&[
        ("qstat", &stat),
        ("pbsnodes", &nodes),
        ("qsub", &other),
        ("qselect", &other),
        ("qsig", &other),
        ("qdel", &other),
    ]);
    for (name, text) in [
        ("server", SERVER),
        ("queues", QUEUES),
        ("nodes", NODES),
        ("none", ""),
    ] {
        write(&folder, name, text);
    }
    let mut section = pbs.section;
    change(&mut section);
    let findings = Pbs::new(&section).inspect().await;
    let line = |finding: Finding| match finding {
        Finding::Good(text) => format!("ok: {text}"),
        Finding::Note(text) => format!("note: {text}"),
        Finding::Problem(text) => format!("error: {text}"),
    };
    findings.into_iter().map(line).collect()
}

#[track_caller]
fn has(lines: &[String], parts: &[&str]) {
    for part in parts {
        let found = lines.iter().any(|line| line.contains(part));
        assert!(found, "`{part}` is missing in:\n{}", lines.join("\n"));
    }
}

#[tokio::test]
async fn shapes_are_compared_with_queues_and_with_the_hosts_that_are_up() {
    let lines = inspected(|section| section.shapes[0].gpus = 4).await;
    has(
        &lines,
        &[
            "ok: qsub: pbs_version = 2022.1.1",
            "ok: the server pbs01 answers (Active); queues: workq, gpu",
            "note: the server keeps no history of jobs",
            "ok: qselect and qstat answer; this pool (cluster.name: lab) has 0 pending or running jobs",
            "error: shape a2: its time_limit of 8h 1s is longer than the queue workq allows (04:00:00)",
            "note: shape a2: it has no ncpus",
            "ok: shape a2: 1 host has 4 or more of ngpus; it asks for -l select=1:ngpus=4",
            "error: cluster.token_file /shared/the token cannot be read",
            "note: whether nodes see the files",
            "| qsub -j oe -l select=1:ngpus=1 -l walltime=00:02:00",
        ],
    );
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("shape free: no node"))
    );
}

#[tokio::test]
async fn a_resource_that_no_queue_or_node_has_is_a_problem_with_advice() {
    let lines = inspected(|section| {
        section.shapes[0].gpus = 5;
        section.shapes[0].select = Some("ncpus=4:gpu_type=h100".to_owned());
        section.shapes[0].queue = Some("gpu".to_owned());
        section.shapes[1].queue = Some("fast".to_owned());
    })
    .await;
    has(
        &lines,
        &[
            "error: shape a2: the queue gpu is stopped",
            "note: shape a2: the queue gpu hands jobs on to gpu_short,gpu_long",
            "note: shape a2: no node shows gpu_type=h100",
            "error: shape a2: it has 5 gpus, and no node that is up has more than 4",
            "error: shape free: the queue `fast` does not exist",
        ],
    );
    let lines = inspected(|section| section.pbs.gpu_resource = "gpus".to_owned()).await;
    has(
        &lines,
        &["error: shape a2: no node has the resource `gpus`; set cluster.pbs.gpu_resource"],
    );
}

#[tokio::test]
async fn without_the_pbs_programs_nothing_else_is_checked() {
    let (_folder, pbs) = with_programs(&[]);
    let findings = pbs.inspect().await;
    assert_eq!(findings.len(), 6);
    let Finding::Problem(text) = &findings[0] else {
        panic!("{findings:?}");
    };
    assert!(text.contains("cluster.pbs.bin_dir"), "{text}");
}
