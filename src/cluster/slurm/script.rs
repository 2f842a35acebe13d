//! The script of a job: options for `sbatch`, the site's own lines, and `model-pool node`, which replaces the shell to receive
//! Slurm's signals. In a job of several nodes `srun` replaces the shell, and starts `model-pool node` on each machine.

use config::{ClusterSection, ShapeSection};

use super::super::LeaseSet;
use super::super::batch::{PREFIX, log_name};
use super::super::node_command::{data, node_command, quoted, setup};

/// Limit of nodes in a job's comment. No replica has more devices.
const SET_MAX: u32 = 1024;
/// One task per machine. A node that fails ends the others, and a node that ends on its own does not. The nodes use all processors
/// of the job, as without `srun`.
const SRUN: &str = "exec srun --nodes=COUNT --ntasks=COUNT --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=0 bash -c";

/// The job name by which a pool finds its jobs.
pub(super) fn job_name(section: &ClusterSection, shape: &str) -> String {
    format!("{PREFIX}:{}:{shape}", section.name)
}

/// The shape in a job's name, if the job belongs to this pool.
pub(super) fn shape_of<'a>(job_name: &'a str, pool: &str) -> Option<&'a str> {
    let rest = job_name.strip_prefix(PREFIX)?.strip_prefix(':')?;
    let shape = rest.strip_prefix(pool)?.strip_prefix(':')?;
    (!shape.is_empty() && !shape.contains(':')).then_some(shape)
}

/// A job's comment: its name, the number of the pool's request with the number of nodes if there are several, and the pool's id.
fn comment(section: &ClusterSection, shape: &str, request: &Request<'_>) -> String {
    let mut comment = job_name(section, shape);
    if let Some(demand) = request.demands.first() {
        comment += &format!(":{demand}");
        if request.demands.len() > 1 {
            comment += &format!("x{}", request.demands.len());
        }
        comment += &request
            .owner
            .map_or_else(String::new, |owner| format!(":{owner}"));
    }
    comment
}

/// The request of the pool that a job serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobRequest {
    pub demand: Option<u64>,
    pub set: Option<LeaseSet>,
    pub owner: Option<String>,
}

/// The request in a job's comment.
pub(super) fn request_of(comment: &str) -> JobRequest {
    // The prefix, the pool's name and the shape come first.
    let mut parts = comment.split(':').skip(3);
    let demands = parts.next().unwrap_or_default();
    let (first, nodes) = demands.split_once('x').unwrap_or((demands, "1"));
    let first: Option<u64> = first.parse().ok();
    let nodes = nodes.parse().ok();
    let nodes = nodes.filter(|nodes| (2..=SET_MAX).contains(nodes));
    JobRequest {
        demand: first,
        set: first
            .zip(nodes)
            .map(|(first, nodes)| LeaseSet { first, nodes }),
        owner: parts.next().map(str::to_owned),
    }
}

/// The origin of a job, and the nodes that it avoids in addition to the configured ones.
pub(super) struct Request<'a> {
    /// The numbers of the pool's requests, one for each node. Empty for a person's request.
    pub demands: &'a [u64],
    pub owner: Option<&'a str>,
    pub exclude: &'a [String],
}

pub(super) fn render(
    section: &ClusterSection,
    shape: &ShapeSection,
    request: &Request<'_>,
) -> String {
    let mut lines = vec!["#!/bin/bash".to_owned()];
    lines.extend(options(section, shape, request));
    lines.push(String::new());
    let nodes = request.demands.len();
    lines.push(if nodes > 1 {
        format!(
            "echo \"model-pool: job $SLURM_JOB_ID starts {nodes} nodes on $SLURM_JOB_NODELIST\""
        )
    } else {
        "echo \"model-pool: job $SLURM_JOB_ID starts a node on ${SLURMD_NODENAME:-$(hostname)}\""
            .to_owned()
    });
    let setup = setup(&section.slurm.setup, "cluster.slurm");
    if !setup.is_empty() {
        lines.push(setup.trim_end().to_owned());
    }
    let id = if nodes > 1 {
        "$SLURM_JOB_ID-$SLURM_PROCID"
    } else {
        "$SLURM_JOB_ID"
    };
    let demand = request.demands.first().map(|first| {
        if nodes > 1 {
            format!("$(({first} + SLURM_PROCID))")
        } else {
            first.to_string()
        }
    });
    let name = format!("\"slurm-{id}\"");
    let data = data(section, id, &format!("model-pool-{id}"));
    let node = format!("exec {}", node_command(section, &name, &data, demand));
    lines.push(if nodes > 1 {
        let srun = SRUN.replace("COUNT", &nodes.to_string());
        format!("{srun} {}", quoted(&node))
    } else {
        node
    });
    lines.push(String::new());
    lines.join("\n")
}

fn options(section: &ClusterSection, shape: &ShapeSection, request: &Request<'_>) -> Vec<String> {
    let slurm = &section.slurm;
    let name = job_name(section, &shape.name);
    let is_set = request.demands.len() > 1;
    let minutes = shape.time_limit.duration().as_secs().div_ceil(60);
    // `%j` is Slurm's placeholder for a job's id.
    let log = log_name("%j");
    let log = match &slurm.log_dir {
        Some(folder) => folder.join(log),
        None => log.into(),
    };
    let gres = shape.gres.clone();
    let gres = gres.or_else(|| (shape.gpus > 0).then(|| format!("gpu:{}", shape.gpus)));
    let partition = shape.partition.as_ref().or(slurm.partition.as_ref());
    let constraint = shape.constraint.as_ref().or(slurm.constraint.as_ref());
    let mut excluded: Vec<&str> = slurm.exclude.iter().map(String::as_str).collect();
    excluded.extend(request.exclude.iter().map(String::as_str));
    let requeue = slurm.requeue.map(|requeue| {
        if requeue {
            "--requeue".to_owned()
        } else {
            "--no-requeue".to_owned()
        }
    });
    let value =
        |option: &str, value: Option<&String>| value.map(|value| format!("--{option}={value}"));
    let all = [
        Some(format!("--job-name={name}")),
        Some(format!(
            "--comment={}",
            comment(section, &shape.name, request)
        )),
        Some(format!("--nodes={}", request.demands.len().max(1))),
        is_set.then(|| "--ntasks-per-node=1".to_owned()),
        value("partition", partition),
        value("account", slurm.account.as_ref()),
        value("qos", slurm.qos.as_ref()),
        value("constraint", constraint),
        value("gres", gres.as_ref()),
        Some(format!("--time={minutes}")),
        (!excluded.is_empty()).then(|| format!("--exclude={}", excluded.join(","))),
        // `srun` would end the nodes of a set at this signal. They know their end from the pool.
        (!is_set).then(|| format!("--signal=B:TERM@{}", slurm.grace.duration().as_secs())),
        requeue,
        Some("--open-mode=append".to_owned()),
        Some(format!("--output={}", log.display())),
    ];
    let own = all.into_iter().flatten();
    let all = own.chain(slurm.options.iter().cloned());
    all.map(|option| format!("#SBATCH {option}")).collect()
}
