//! The keys of `cluster.pbs`: options for each job's script.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch as cluster_batch;
use super::batch::BatchKeys;
use super::text::{argument_problem, is_name};
use crate::problems::Problem;
use crate::values::Length;

/// Options of `qsub` that the pool sets itself: the name and the variable identify its jobs, bash reads their script, each job is
/// one node, and `qsub` prints its id (`-z` would suppress it).
const OWN_OPTIONS: &[&str] = &["-N", "-v", "-V", "-S", "-J", "-I", "-h", "-z"];

/// Settings for jobs of PBS Professional or OpenPBS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PbsSection {
    /// The folder with PBS' programs, such as `/opt/pbs/bin`; null: they are on the PATH.
    pub bin_dir: Option<PathBuf>,
    /// The queue; null: the server's default.
    pub queue: Option<String>,
    /// The account to charge (`qsub -A`); null: unspecified.
    pub account: Option<String>,
    /// Resources of each node in addition to its GPUs, in the form of a chunk of `-l select`, such as
    /// `ncpus=16:mem=200gb:gpu_type=a100`; null: PBS' defaults, often one CPU.
    pub select: Option<String>,
    /// The resource that counts GPUs.
    pub gpu_resource: String,
    /// Reserve the machine with all its GPUs for a node (`place=exclhost`). If false, machines are shared, and PBS must set
    /// `CUDA_VISIBLE_DEVICES` to the job's GPUs; a job without it ends immediately.
    pub exclusive: bool,
    /// Allow PBS to requeue a preempted job (`qsub -r`).
    pub requeue: bool,
    /// Time before its time limit at which a node begins to drain; 1s to 1h.
    pub grace: Length,
    /// The folder for the jobs' output, shared with the nodes; null: PBS copies it to the pool's working directory after a job has
    /// ended.
    pub log_dir: Option<PathBuf>,
    /// Additional options of `qsub`, such as `-P project` and `-l filesystems=home`.
    pub options: Vec<String>,
    /// Shell lines that run on the node before it starts, such as `module load cuda`.
    pub setup: String,
    /// Time limit of each call of a PBS program, 1s to 10m.
    pub timeout: Length,
}

impl Default for PbsSection {
    fn default() -> PbsSection {
        PbsSection {
            bin_dir: None,
            queue: None,
            account: None,
            select: None,
            gpu_resource: "ngpus".to_owned(),
            exclusive: false,
            requeue: false,
            grace: Length::from_secs(120),
            log_dir: None,
            options: Vec::new(),
            setup: String::new(),
            timeout: Length::from_secs(30),
        }
    }
}

/// Checks the part after the GPUs in a chunk of `-l select`; returns the problem.
pub(super) fn select_problem(text: &str, gpu_resource: &str) -> Option<String> {
    if let Some(message) = argument_problem(text) {
        return Some(message);
    }
    let is_resource = |part: &str| {
        part.split_once('=')
            .is_some_and(|(name, value)| is_name(name) && !value.is_empty())
    };
    if text.contains('+') || !text.split(':').all(is_resource) {
        return Some(format!(
            "is `{text}`; write the resources of one node without a number before them, such as ncpus=16:mem=200gb"
        ));
    }
    let is_gpus = |part: &str| {
        part.split_once('=')
            .is_some_and(|(name, _)| name == gpu_resource)
    };
    text.split(':')
        .any(is_gpus)
        .then(|| format!("has `{gpu_resource}`, which is the shape's `gpus`; remove it from here"))
}

pub(crate) fn problems(section: &PbsSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("cluster.pbs.{key}"), message));
    };
    for (key, value) in [("queue", &section.queue), ("account", &section.account)] {
        if let Some(message) = value.as_deref().and_then(argument_problem) {
            wrong(key, message);
        }
    }
    if !is_name(&section.gpu_resource) {
        let message = "write the name of the resource that counts GPUs, such as ngpus";
        wrong(
            "gpu_resource",
            format!("is `{}`; {message}", section.gpu_resource),
        );
    }
    let select = section.select.as_deref();
    if let Some(message) = select.and_then(|text| select_problem(text, &section.gpu_resource)) {
        wrong("select", message);
    }
    for (index, option) in section.options.iter().enumerate() {
        // A script line may contain several options.
        let mut words = option.split_whitespace();
        let own = words.find_map(|word| OWN_OPTIONS.iter().find(|own| word.starts_with(**own)));
        if let Some(own) = own {
            let message = format!(
                "is `{option}`, and {own} is set by the pool; remove it, and set variables in cluster.pbs.setup with export NAME=value"
            );
            wrong(&format!("options[{index}]"), message);
        }
    }
    let keys = BatchKeys {
        bin_dir: section.bin_dir.as_deref(),
        log_dir: section.log_dir.as_deref(),
        options: &section.options,
        setup: &section.setup,
        grace: section.grace,
        timeout: section.timeout,
        bin_dir_example: "/opt/pbs/bin",
        option_example: "an option of qsub such as -P project",
    };
    cluster_batch::problems(&keys, wrong);
    problems
}
