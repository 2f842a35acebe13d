//! Explanations of PBS' reasons, with advice. The quoted texts come from PBS' scheduler and programs.

use super::super::end_texts;
use super::jobs::Job;
use super::script::{NO_GPUS, NO_LOG};

const NEVER: &str = "Can Never Run";

/// Explanations for waiting jobs: a part of PBS' comment, and its meaning with advice. The first match counts.
const PENDING: &[(&str, &str)] = &[
    (
        "Insufficient amount of server resource",
        "the server's limit of a resource is reached; it starts when other jobs end",
    ),
    (
        "Insufficient amount of queue resource",
        "the queue's limit of a resource is reached; it starts when other jobs end",
    ),
    (
        "would conflict with reservation or top job",
        "jobs of higher priority or a reservation need the nodes first; wait, or lower time_limit of the shape so that it fits in before them",
    ),
    (
        "Not enough free nodes available",
        "all nodes of this shape are in use; it starts when one becomes free",
    ),
    (
        "Not enough total nodes available",
        "there are too few nodes of this shape; correct gpus and select of the shape",
    ),
    (
        "No available resources on nodes",
        "all nodes of this shape are in use; it starts when one becomes free",
    ),
    (
        "exclusive node and node is in use",
        "it needs an empty machine, and all have other jobs; it starts when one is empty",
    ),
    (
        "ineligible state",
        "nodes that it needs are down or offline; look with `pbsnodes -l`",
    ),
    (
        "server running job limit",
        "this user or group has as many jobs as the server allows; wait, or release a lease",
    ),
    (
        "queue running job limit",
        "this user or group has as many jobs as the queue allows; wait, or release a lease",
    ),
    (
        "job limit has been reached",
        "PBS' limit of jobs is reached; it starts when other jobs end",
    ),
    (
        "would exceed",
        "a limit of this user, group or project is reached; wait, release a lease, or use a smaller shape",
    ),
    (
        "Draining system",
        "PBS empties nodes for a job that has waited long; wait",
    ),
    ("strict", "jobs before it have to start first; wait"),
    (
        "edicated time",
        "it would not end before the cluster's dedicated time; lower time_limit of the shape, or wait",
    ),
    (
        "rimetime",
        "it would run into hours in which its queue does not run jobs; lower time_limit of the shape, or wait",
    ),
    (
        "Queue not started",
        "the queue is stopped; ask the cluster's administrators, or set another cluster.pbs.queue",
    ),
    (
        "Placement set",
        "no group of nodes that PBS keeps together is large enough; ask the cluster's administrators",
    ),
    (
        "No Select",
        "PBS does not understand what it needs, so it never starts; correct cluster.pbs.select and select of the shape",
    ),
    (
        "too many failed attempts",
        "PBS could not start it and holds it; look into the log of pbs_mom on the node, then release the lease",
    ),
    (
        "PBS Error",
        "PBS could not start it; ask the cluster's administrators",
    ),
];

/// The explanation is followed by PBS' comment, for searching.
pub(super) fn pending(state: &str, comment: &str) -> String {
    let comment: String = comment.trim().chars().take(300).collect();
    let comment = comment.trim_start_matches("Not Running:").trim();
    let meaning = match state {
        "H" if !comment.contains("failed attempts") => Some(
            "it is held; let it go with `qrls`, ask the cluster's administrators, or release the lease"
                .to_owned(),
        ),
        "W" => Some("PBS starts it later, without further action".to_owned()),
        "T" => Some("PBS moves it to another queue or server".to_owned()),
        _ => None,
    };
    let meaning = meaning.or_else(|| resource(comment)).or_else(|| {
        let found = PENDING.iter().find(|(part, _)| comment.contains(part));
        found.map(|(_, meaning)| (*meaning).to_owned())
    });
    match (meaning, comment) {
        (Some(meaning), "") => meaning,
        (Some(meaning), comment) => format!("{meaning} ({comment})"),
        (None, "") => "PBS' scheduler has not considered it yet".to_owned(),
        (None, comment) => format!("PBS' reason is: {comment}"),
    }
}

/// `Insufficient amount of resource: ngpus (R: 4 A: 2 T: 8)`: required, available, total. The numbers may be missing.
fn resource(comment: &str) -> Option<String> {
    let (before, rest) = comment.split_once("Insufficient amount of resource:")?;
    let name = rest.split_whitespace().next().unwrap_or("a resource");
    let number = |sign: &str| {
        let (_, rest) = rest.split_once(sign)?;
        let text = rest.trim_start().split([' ', ')']).next()?;
        (!text.is_empty()).then_some(text)
    };
    let numbers = match (number("R:"), number("A:"), number("T:")) {
        (Some(required), Some(free), Some(total)) => {
            format!(": it needs {required}, and {free} of {total} are free")
        }
        _ => String::new(),
    };
    Some(if before.contains(NEVER) {
        format!(
            "no node has enough of {name}{numbers}, so it never starts; correct gpus and select of the shape"
        )
    } else {
        format!("there is not enough of {name}{numbers}; it starts when jobs that hold it end")
    })
}

/// Advice for messages of `qsub`.
pub(super) const ADVICE: &[(&str, &str)] = &[
    (
        "Unknown queue",
        "correct cluster.pbs.queue; `qstat -Q` lists the queues",
    ),
    (
        "Access to queue is denied",
        "this account may not use the queue: some queues take jobs only from a routing queue; set another cluster.pbs.queue",
    ),
    (
        "Queue is not enabled",
        "the queue takes no jobs now; set another cluster.pbs.queue, or ask the cluster's administrators",
    ),
    (
        "Unknown resource",
        "correct cluster.pbs.gpu_resource and select; `pbsnodes -a` lists the resources that nodes have",
    ),
    (
        "violates queue and/or server resource limits",
        "the queue allows less: lower time_limit or gpus of the shape; `qstat -Qf` lists the limits",
    ),
    (
        "would exceed",
        "this user, group or project has reached its limit of jobs; release a lease, or ask the cluster's administrators",
    ),
    (
        "Maximum number of jobs",
        "the queue has reached its limit of jobs; release a lease, or ask the cluster's administrators",
    ),
    (
        "Illegal attribute or resource value",
        "correct select, account and options in cluster.pbs and its shapes",
    ),
    ("Invalid account", "correct cluster.pbs.account"),
    (
        "Unauthorized Request",
        "this account may not do it; ask the cluster's administrators",
    ),
    (
        "Bad UID for job execution",
        "PBS does not accept jobs of this account from this machine; ask the cluster's administrators",
    ),
    (
        "illegal -",
        "correct cluster.pbs.options; `man qsub` lists the options",
    ),
    (
        "invalid option",
        "correct cluster.pbs.options; `man qsub` lists the options",
    ),
];

/// The reason that a job has ended. Negative statuses are PBS' own. Statuses above 128 or 256 contain the signal that ended the
/// job's shell: PBS Professional Administrator's Guide, "Job Exit Codes".
pub(super) fn ended(job: &Job) -> String {
    let place = end_texts::place(&job.facts.host);
    let is_deleted = job.substate == Some(91);
    let Some(exit) = job.exit else {
        return match job.state.as_str() {
            "M" => "PBS has moved it to another server, which this pool does not poll".to_owned(),
            _ if is_deleted => "the job was deleted".to_owned(),
            _ if job.facts.host.is_empty() => "it was cancelled before it ran".to_owned(),
            _ => format!("PBS does not say why{place}"),
        };
    };
    match exit {
        0 => end_texts::RELEASED.to_owned(),
        -29 => end_texts::time_is_over(job.facts.time_limit),
        -27 | -26 => format!(
            "it needed more of the host's memory than its job has{place}; add mem= to select of the shape or of cluster.pbs"
        ),
        -28 | -25 | -24 => format!(
            "it used more processors than its job has{place}; raise ncpus= in select of the shape or of cluster.pbs"
        ),
        ..0 => format!(
            "PBS could not run it{place} (status {exit}); ask the cluster's administrators for the log of pbs_mom there"
        ),
        NO_LOG => format!(
            "its script could not write its log{place} (status {exit}); make cluster.pbs.log_dir a folder that the nodes can write to"
        ),
        NO_GPUS => format!(
            "PBS does not tell jobs{place} which GPUs are theirs (status {exit}); see cluster.pbs.exclusive"
        ),
        127 => end_texts::no_program(&place, "cluster.pbs"),
        126 => end_texts::cannot_run(&place),
        129.. if is_deleted => "the job was deleted".to_owned(),
        129.. if job.is_out_of_time() => end_texts::time_is_over(job.facts.time_limit),
        143 | 271 => format!(
            "it was ended{place} by SIGTERM, as when a job of higher priority takes its place"
        ),
        137 | 265 => format!(
            "it was killed{place} by SIGKILL, as when memory runs out or a job of higher priority takes its place"
        ),
        129.. => format!("a signal ended it{place} (status {exit})"),
        _ => end_texts::failed(exit, &place),
    }
}
