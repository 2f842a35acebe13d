//! The keys of `cluster.slurm`: options for each job's script.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch as cluster_batch;
use super::batch::{BatchKeys, LIST_MAX};
use super::text::argument_problem;
use crate::problems::Problem;
use crate::values::Length;

/// Settings for jobs in Slurm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmSection {
    /// The folder with Slurm's programs, such as `/opt/slurm/bin`; null: they are on the PATH.
    pub bin_dir: Option<PathBuf>,
    /// The partition; null: the cluster's default.
    pub partition: Option<String>,
    /// The account to charge; null: the user's default.
    pub account: Option<String>,
    /// The quality of service; null: the default.
    pub qos: Option<String>,
    /// Features that a node must have, such as `a100&nvlink`; null: any node.
    pub constraint: Option<String>,
    /// Nodes that are never used, such as `gpu07`. Nodes on which a job of this pool failed within the last hour are excluded too.
    pub exclude: Vec<String>,
    /// Allow Slurm to requeue a preempted job; null: the cluster's default.
    pub requeue: Option<bool>,
    /// Time before its time limit at which a job receives SIGTERM and its node begins to drain; 1s to 1h.
    pub grace: Length,
    /// The folder for the jobs' output, shared with the nodes; null: the pool's working directory.
    pub log_dir: Option<PathBuf>,
    /// Additional options of `sbatch`, such as `--cpus-per-task=16` and `--mem=200G`.
    pub options: Vec<String>,
    /// Shell lines that run on the node before it starts, such as `module load cuda`.
    pub setup: String,
    /// Time limit of each call of a Slurm program, 1s to 10m.
    pub timeout: Length,
}

impl Default for SlurmSection {
    fn default() -> SlurmSection {
        SlurmSection {
            bin_dir: None,
            partition: None,
            account: None,
            qos: None,
            constraint: None,
            exclude: Vec::new(),
            requeue: None,
            grace: Length::from_secs(120),
            log_dir: None,
            options: Vec::new(),
            setup: String::new(),
            timeout: Length::from_secs(30),
        }
    }
}

pub(crate) fn problems(section: &SlurmSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("cluster.slurm.{key}"), message));
    };
    for (key, value) in [
        ("partition", &section.partition),
        ("account", &section.account),
        ("qos", &section.qos),
        ("constraint", &section.constraint),
    ] {
        if let Some(message) = value.as_deref().and_then(argument_problem) {
            wrong(key, message);
        }
    }
    for (index, node) in section.exclude.iter().enumerate() {
        match argument_problem(node) {
            Some(message) => wrong(&format!("exclude[{index}]"), message),
            None if index == LIST_MAX => {
                wrong("exclude", format!("lists more than {LIST_MAX} nodes"))
            }
            None => {}
        }
    }
    let keys = BatchKeys {
        bin_dir: section.bin_dir.as_deref(),
        log_dir: section.log_dir.as_deref(),
        options: &section.options,
        setup: &section.setup,
        grace: section.grace,
        timeout: section.timeout,
        bin_dir_example: "/opt/slurm/bin",
        option_example: "an option of sbatch such as --mem=200G",
    };
    cluster_batch::problems(&keys, wrong);
    problems
}
