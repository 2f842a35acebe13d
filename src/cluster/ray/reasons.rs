//! Explanations of Ray's states and messages, with advice.

use config::{ClusterSection, ShapeSection};

use super::super::ShapeRoom;
use super::super::end_texts::{self, NO_AUTOSCALER};
use super::super::program::one_line;
use super::client::last_line;
use super::jobs::Job;
use super::machines::{Autoscaler, Machines};
use super::start_line;

/// The reason that a job of this shape waits.
pub(super) fn pending(
    section: &ClusterSection,
    shape: &ShapeSection,
    machines: &Machines,
) -> String {
    let needs = match shape.gpus {
        0 => "a free node".to_owned(),
        1 => "a node with 1 free GPU".to_owned(),
        gpus => format!("a node with {gpus} free GPUs"),
    };
    let fitting = machines.fitting(section, shape);
    let why = match fitting {
        0 => format!(
            "{}; {}",
            machines.lacking(section, shape),
            bringing(&machines.autoscaler)
        ),
        1 => format!(
            "1 node is that large; the job starts when it is free{}",
            no_other(section, shape, machines)
        ),
        many => format!(
            "{many} nodes are that large; the job starts when one is free{}",
            no_other(section, shape, machines)
        ),
    };
    format!("Ray has not found {needs} yet: {why}")
}

/// The number of nodes of this shape that Ray can bring if it has no autoscaler. Other users' jobs do not count, because they may end
/// soon.
pub(super) fn closed(
    section: &ClusterSection,
    shape: &ShapeSection,
    machines: &Machines,
) -> Option<ShapeRoom> {
    if machines.autoscaler != Autoscaler::None {
        return None;
    }
    let nodes = machines.room(section, shape);
    let why = if machines.fitting(section, shape) == 0 {
        machines.lacking(section, shape)
    } else if nodes == 0 {
        "this pool holds all nodes that are that large".to_owned()
    } else if nodes == 1 {
        "its machines have room for 1 more of this size".to_owned()
    } else {
        format!("its machines have room for {nodes} more of this size")
    };
    let why = format!("Ray cannot grow: {NO_AUTOSCALER}, and {why}");
    Some(ShapeRoom { nodes, why })
}

/// Suffix of a reason: the pool itself holds the GPUs, and no others come.
fn no_other(section: &ClusterSection, shape: &ShapeSection, machines: &Machines) -> String {
    if machines.autoscaler == Autoscaler::None && machines.are_held(section, shape) {
        format!("; this pool holds all of them, and {NO_AUTOSCALER} to bring another")
    } else {
        String::new()
    }
}

fn bringing(autoscaler: &Autoscaler) -> String {
    match autoscaler {
        Autoscaler::None => {
            format!("{NO_AUTOSCALER}, so it starts when such a node joins Ray")
        }
        Autoscaler::Broken(why) => format!("its autoscaler fails: {why}"),
        Autoscaler::Launching(what) => format!("its autoscaler starts {what}"),
        Autoscaler::Idle | Autoscaler::Unknown => "its autoscaler may bring one".to_owned(),
    }
}

/// The reason that a job has ended.
pub(super) fn ended(job: &Job) -> String {
    let place = end_texts::place(&job.host);
    match job.status.as_str() {
        "SUCCEEDED" => return end_texts::RELEASED.to_owned(),
        "STOPPED" => return "it was given back, or someone stopped the job".to_owned(),
        _ if job.is_cancelled && job.node_id.is_empty() => {
            return "the request was cancelled".to_owned();
        }
        _ if job.is_cancelled => return "it was given back immediately".to_owned(),
        _ => {}
    }
    match (exit_of(job), job.error_type.as_str()) {
        (Some(124), _) => end_texts::time_is_over(job.time_limit),
        (Some(127), _) => end_texts::no_program(&place, "cluster.ray") + &log(job),
        (Some(status), _) => end_texts::failed(status, &place) + &log(job),
        (None, "JOB_SUPERVISOR_ACTOR_START_TIMEOUT") => {
            "Ray found no node for it in time; raise RAY_JOB_START_TIMEOUT_SECONDS where Ray's head is started, or request a smaller shape".to_owned()
        }
        (None, "RUNTIME_ENV_SETUP_FAILURE") => {
            format!("Ray could not set its environment up: {}", last_line(&job.message))
        }
        (None, _) if job.message.contains("killed by `ray.kill`") => "someone killed the job".to_owned(),
        (None, _) if job.message.contains("node has died") || job.message.contains("node died") => {
            format!("its machine failed or left Ray{place}")
        }
        (None, _) if job.message.contains("failed to start within") => {
            "Ray found no node for it in time; raise RAY_JOB_START_TIMEOUT_SECONDS where Ray's head is started, or request a smaller shape".to_owned()
        }
        (None, _) => format!("Ray says{place}: {}", last_line(&job.message)),
    }
}

/// Versions before 2.9 have the status only in the message.
fn exit_of(job: &Job) -> Option<i64> {
    job.exit.or_else(|| {
        let (_, rest) = job.message.split_once("failed with exit code ")?;
        let digits = rest
            .split(|letter: char| !letter.is_ascii_digit() && letter != '-')
            .next()?;
        digits.parse().ok()
    })
}

fn log(job: &Job) -> String {
    let (_, tail) = job
        .message
        .split_once("last available logs")
        .unwrap_or_default();
    let tail = tail.split_once(":\n").map_or("", |(_, tail)| tail);
    let line = log_end(tail, &job.id, &job.entrypoint);
    line.map_or_else(String::new, |line| end_texts::log_end(&line))
}

/// The last line of a job's log that its node wrote. Ray adds the entry point and lines about the environment, and the script adds
/// its start.
pub(super) fn log_end(log: &str, id: &str, entrypoint: &str) -> Option<String> {
    let announced = format!("Running entrypoint for job {id}: {entrypoint}");
    let log = log.replace(&announced, "");
    let mut lines = log.lines().rev().map(one_line);
    let is_rays = |line: &str| line.contains("INFO job_manager.py");
    lines.find(|line| !(line.is_empty() || is_rays(line) || start_line::is_line(line)))
}
