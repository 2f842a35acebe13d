//! The script of a job: options for `sbatch`, the site's own lines, and `model-pool node`, which replaces the shell to receive
//! Slurm's signals.

use config::{ClusterSection, ShapeSection};

use super::super::batch::{PREFIX, log_name};
use super::super::node_command::{data, node_command, setup};

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

/// A job's comment: its name, the number of the pool's request, and the pool's id.
fn comment(section: &ClusterSection, shape: &str, request: &Request<'_>) -> String {
    let mut comment = job_name(section, shape);
    if let Some(demand) = request.demand {
        comment += &format!(":{demand}");
        comment += &request
            .owner
            .map_or_else(String::new, |owner| format!(":{owner}"));
    }
    comment
}

/// The number of the pool's request in a comment, and the pool's id.
pub(super) fn request_of(comment: &str) -> (Option<u64>, Option<String>) {
    // The prefix, the pool's name and the shape come first.
    let mut parts = comment.split(':').skip(3);
    let demand = parts.next().and_then(|demand| demand.parse().ok());
    (demand, parts.next().map(str::to_owned))
}

/// The origin of a job, and the nodes that it avoids in addition to the configured ones.
pub(super) struct Request<'a> {
    pub demand: Option<u64>,
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
    lines.push(
        "echo \"model-pool: job $SLURM_JOB_ID starts a node on ${SLURMD_NODENAME:-$(hostname)}\""
            .to_owned(),
    );
    let setup = setup(&section.slurm.setup, "cluster.slurm");
    if !setup.is_empty() {
        lines.push(setup.trim_end().to_owned());
    }
    let name = "\"slurm-$SLURM_JOB_ID\"";
    let data = data(section, "$SLURM_JOB_ID", "model-pool-$SLURM_JOB_ID");
    let node = node_command(section, name, &data, request.demand);
    lines.push(format!("exec {node}"));
    lines.push(String::new());
    lines.join("\n")
}

fn options(section: &ClusterSection, shape: &ShapeSection, request: &Request<'_>) -> Vec<String> {
    let slurm = &section.slurm;
    let name = job_name(section, &shape.name);
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
        Some("--nodes=1".to_owned()),
        value("partition", partition),
        value("account", slurm.account.as_ref()),
        value("qos", slurm.qos.as_ref()),
        value("constraint", constraint),
        value("gres", gres.as_ref()),
        Some(format!("--time={minutes}")),
        (!excluded.is_empty()).then(|| format!("--exclude={}", excluded.join(","))),
        Some(format!(
            "--signal=B:TERM@{}",
            slurm.grace.duration().as_secs()
        )),
        requeue,
        Some("--open-mode=append".to_owned()),
        Some(format!("--output={}", log.display())),
    ];
    let own = all.into_iter().flatten();
    let all = own.chain(slurm.options.iter().cloned());
    all.map(|option| format!("#SBATCH {option}")).collect()
}
