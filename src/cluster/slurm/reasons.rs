//! Explanations of Slurm's reasons, with advice.

use std::time::Duration;

use super::super::end_texts;

/// Explanations for waiting jobs: the prefix of Slurm's reason, and its meaning with advice.
const PENDING: &[(&str, &str)] = &[
    (
        "Resources",
        "all nodes of this shape are in use; the job starts when one becomes free",
    ),
    (
        "Priority",
        "jobs of higher priority are before it in Slurm's queue; ask for a QOS with more priority, or wait",
    ),
    ("Dependency", "it waits for another job"),
    (
        "BeginTime",
        "Slurm starts it later without further action, as after a preemption",
    ),
    (
        "JobHeldAdmin",
        "an administrator of the cluster holds it; ask them, or release the lease",
    ),
    (
        "JobHeldUser",
        "it is held; let it go with `scontrol release`, or release the lease",
    ),
    (
        "ReqNodeNotAvail",
        "nodes that it needs are down, drained or reserved; look with `sinfo -R`, or choose another partition or constraint",
    ),
    ("Reservation", "it waits for its reservation to begin"),
    (
        "PartitionDown",
        "the partition is down; ask the cluster's administrators, or set another cluster.slurm.partition",
    ),
    (
        "PartitionInactive",
        "the partition is inactive; ask the cluster's administrators, or set another cluster.slurm.partition",
    ),
    (
        "PartitionTimeLimit",
        "the shape's time limit is longer than the partition allows, so it never starts; lower time_limit of the shape",
    ),
    (
        "PartitionNodeLimit",
        "the partition does not have enough nodes for it, so it never starts; set another partition",
    ),
    (
        "PartitionConfig",
        "the partition does not allow what it needs, so it never starts; set another partition",
    ),
    (
        "AssociationTimeLimit",
        "the account's limit of time per job is lower, so it never starts; lower time_limit of the shape",
    ),
    (
        "AssociationJobLimit",
        "the account has reached its limit of jobs; wait, or release a lease",
    ),
    (
        "AssociationResourceLimit",
        "the account has reached a limit; wait, or release a lease",
    ),
    (
        "AccountNotAllowed",
        "the partition does not accept the account; set another cluster.slurm.account or partition",
    ),
    (
        "AccountingPolicy",
        "the account does not allow it; ask the cluster's administrators",
    ),
    (
        "InvalidAccount",
        "the account does not exist; correct cluster.slurm.account",
    ),
    (
        "InvalidQOS",
        "the QOS does not exist or is not allowed; correct cluster.slurm.qos",
    ),
    (
        "QOSNotAllowed",
        "the partition does not accept the QOS; set another cluster.slurm.qos or partition",
    ),
    (
        "QOSTimeLimit",
        "the QOS has used its time; wait, or set another cluster.slurm.qos",
    ),
    (
        "QOSMaxWall",
        "the shape's time limit is longer than the QOS allows, so it never starts; lower time_limit of the shape",
    ),
    (
        "QOSMaxGRESPerUser",
        "this user has as many GPUs as the QOS allows; wait, release a lease, or use a smaller shape",
    ),
    (
        "QOSMaxGRESPerNode",
        "the QOS allows fewer GPUs per node, so it never starts; use a smaller shape",
    ),
    (
        "QOSMaxGRESPerJob",
        "the QOS allows fewer GPUs per job, so it never starts; use a smaller shape",
    ),
    (
        "QOSGrpGRES",
        "the group of the QOS has reached its limit of GPUs; wait, or release a lease",
    ),
    (
        "QOSMaxJobs",
        "this user has as many jobs as the QOS allows; wait, or release a lease",
    ),
    (
        "QOSMax",
        "this user has as much as the QOS allows; wait, release a lease, or use a smaller shape",
    ),
    (
        "QOSGrp",
        "the group of the QOS has reached a limit; wait, or release a lease",
    ),
    (
        "QOSMin",
        "the QOS asks for more than the shape has, so it never starts; use a larger shape",
    ),
    (
        "QOSUsageThreshold",
        "the QOS has used too much of its share; wait, or set another cluster.slurm.qos",
    ),
    (
        "AssocGrpGRES",
        "the account has reached its limit of GPUs; wait, release a lease, or use a smaller shape",
    ),
    (
        "AssocMaxJobs",
        "the account has reached its limit of jobs; wait, or release a lease",
    ),
    (
        "AssocMaxGRESPerJob",
        "the account allows fewer GPUs per job, so it never starts; use a smaller shape",
    ),
    (
        "AssocMaxWall",
        "the shape's time limit is longer than the account allows, so it never starts; lower time_limit of the shape",
    ),
    (
        "AssocMax",
        "the account allows less per job or user; use a smaller shape",
    ),
    (
        "AssocGrp",
        "the account has reached a limit; wait, or release a lease",
    ),
    (
        "MaxGRESPerAccount",
        "the account has reached its limit of GPUs; wait, or release a lease",
    ),
    (
        "MaxJobsPerAccount",
        "the account has reached its limit of jobs; wait, or release a lease",
    ),
    (
        "BadConstraints",
        "no node has what it needs, so it never starts; correct gres and constraint of the shape",
    ),
    ("Licenses", "it waits for a licence"),
    (
        "NodeDown",
        "a node that it needs is down; look with `sinfo -R`",
    ),
    ("Cleaning", "Slurm cleans up after its last run"),
    ("Prolog", "the cluster's prolog runs on its node"),
    (
        "JobLaunchFailure",
        "it could not be started and is held; look into the log of slurmd on the node, then release the lease",
    ),
    (
        "launch failed",
        "it could not be started and is held; look into the log of slurmd on the node, then release the lease",
    ),
    (
        "SystemFailure",
        "Slurm, the file system or the network failed; ask the cluster's administrators",
    ),
    (
        "FrontEndDown",
        "no front end node is available; ask the cluster's administrators",
    ),
    ("None", "Slurm has not considered it yet"),
];

/// The explanation is followed by Slurm's reason, for searching.
pub(super) fn pending(word: &str) -> String {
    let word: String = word
        .trim_matches(['(', ')', ' '])
        .chars()
        .take(200)
        .collect();
    if word.is_empty() {
        return "Slurm has not considered it yet".to_owned();
    }
    let unwrapped = word.replace("_", " ");
    let found = PENDING
        .iter()
        .find(|(name, _)| word.starts_with(name) || unwrapped.starts_with(name));
    match found {
        Some((_, meaning)) => format!("{meaning} ({word})"),
        None => format!("Slurm's reason is {word}; `man squeue` explains it"),
    }
}

/// Advice for messages of `sbatch`.
pub(super) const ADVICE: &[(&str, &str)] = &[
    (
        "Invalid partition",
        "correct cluster.slurm.partition; `sinfo` lists the partitions",
    ),
    (
        "invalid partition",
        "correct cluster.slurm.partition; `sinfo` lists the partitions",
    ),
    (
        "Invalid account",
        "correct cluster.slurm.account and cluster.slurm.qos; `sacctmgr show assoc user=$USER` lists yours",
    ),
    (
        "Invalid qos",
        "correct cluster.slurm.qos; `sacctmgr show qos` lists them",
    ),
    (
        "Invalid generic resource",
        "correct gres of the shape; `sinfo -o %G` lists what nodes have",
    ),
    (
        "Requested node configuration is not available",
        "no node has that many GPUs or these features: correct gpus, gres and constraint of the shape; `sinfo -o '%N %G %f'` lists what nodes have",
    ),
    (
        "Invalid feature",
        "correct constraint; `sinfo -o '%N %f'` lists the features",
    ),
    (
        "time limit",
        "lower time_limit of the shape; `sinfo -o '%P %l'` lists the partitions' limits",
    ),
    (
        "Invalid node name",
        "correct cluster.slurm.exclude; `sinfo -N` lists the nodes",
    ),
    (
        "unrecognized option",
        "this version of Slurm does not know the option: correct cluster.slurm.options, or upgrade Slurm to 20.02 or later",
    ),
    (
        "Access/permission denied",
        "this account may not submit there; ask the cluster's administrators",
    ),
    (
        "User's group not permitted",
        "this account may not use the partition; set another cluster.slurm.partition",
    ),
    (
        "job submit limit",
        "the account has reached its limit of jobs; release a lease, or ask the cluster's administrators",
    ),
    (
        "QOS",
        "the limits of the QOS or account do not allow it; use a smaller shape or another cluster.slurm.qos",
    ),
];

/// The reason that a job has ended.
pub(super) fn ended(
    state: &str,
    reason: &str,
    host: &str,
    exit: Option<u64>,
    limit: Option<Duration>,
) -> String {
    let place = end_texts::place(host);
    let base = state.split([' ', '+']).next().unwrap_or_default();
    match base {
        "COMPLETED" => end_texts::RELEASED.to_owned(),
        "CANCELLED" => match state.split_once(" by ") {
            Some((_, user)) => format!("the user with number {user} cancelled the job"),
            None => "the job was cancelled".to_owned(),
        },
        "TIMEOUT" => end_texts::time_is_over(limit),
        "PREEMPTED" => "a job of higher priority took its place".to_owned(),
        "NODE_FAIL" => format!("the machine failed{place}; look with `sinfo -R`"),
        "BOOT_FAIL" => format!("the machine did not boot{place}; look with `sinfo -R`"),
        "OUT_OF_MEMORY" => format!(
            "it needed more of the host's memory than its job has{place}; add --mem to cluster.slurm.options"
        ),
        "DEADLINE" => "its deadline was over".to_owned(),
        "REVOKED" => "another cluster of the federation runs it".to_owned(),
        "FAILED" if host.is_empty() => {
            format!("Slurm did not start it: {}", pending(reason))
        }
        "FAILED" => match exit {
            Some(127) => end_texts::no_program(&place, "cluster.slurm"),
            Some(126) => end_texts::cannot_run(&place),
            Some(status) => end_texts::failed(status, &place),
            None => format!("it failed{place}"),
        },
        other => format!("Slurm's state is {other}{place}"),
    }
}
