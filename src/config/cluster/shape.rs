//! The shapes of node that can be requested from a cluster: `cluster.shapes`.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::section::{ClusterKind, ClusterSection, NODES_MAX};
use super::text::{argument_problem, is_name};
use super::{pbs as cluster_pbs, ray as cluster_ray};
use crate::DeviceKind;
use crate::problems::Problem;
use crate::values::{Length, Size};
use pool::Span;

/// A larger number is a mistake.
const SHAPES_MAX: usize = 50;
const GPUS_MAX: u32 = 64;
const TIME_LIMIT: (Span, Span) = (Span::from_secs(60), Span::from_secs(366 * 86_400));
const COST_MAX: f64 = 100_000.0;

/// One kind of node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShapeSection {
    /// Its name in commands and jobs: letters, digits, `-` and `_`; must be unique.
    pub name: String,
    /// GPUs per node, 0 to 64.
    pub gpus: u32,
    /// The memory of each GPU.
    pub memory: Size,
    /// The maker of its GPUs, for models that state one in `pool_config.accelerator`: `nvidia`, `amd`, `intel` or `other`; null:
    /// `nvidia`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<DeviceKind>,
    /// Time for which the cluster grants a node, 1m to 366 days. Required, except with Kubernetes, whose pods have no limit.
    #[serde(default = "no_limit", skip_serializing_if = "is_no_limit")]
    pub time_limit: Length,
    /// Maximum number of nodes of this shape that the pool holds or requests at a time; null: only `cluster.max_nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// The cost of a node per hour, in any currency; for `model-pool cluster status` and `cluster.budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<f64>,
    /// With Slurm: the value of `--gres`; null: `gpu:` and the number of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    /// With Slurm: the partition, if different from `cluster.slurm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// With Slurm: the constraint, if different from `cluster.slurm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// With PBS: the queue, if different from `cluster.pbs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// With PBS: resources of a node in addition to its GPUs, if different from `cluster.pbs`, such as
    /// `ncpus=16:mem=200gb:gpu_type=a100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// With Ray: custom resources, added to `cluster.ray`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, f64>,
    /// With Ray: labels, added to `cluster.ray`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl ShapeSection {
    /// The maker of its GPUs.
    pub fn maker(&self) -> DeviceKind {
        self.accelerator.unwrap_or(DeviceKind::Nvidia)
    }
}

fn no_limit() -> Length {
    Length(Span::ZERO)
}

fn is_no_limit(limit: &Length) -> bool {
    limit.0 == Span::ZERO
}

pub(crate) fn problems(section: &ClusterSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: String, message: String| {
        problems.push(Problem::new(format!("cluster.shapes{key}"), message));
    };
    let count = section.shapes.len();
    if section.kind != ClusterKind::None && count == 0 {
        let message = "is empty; list the nodes that may be requested, such as {name: a100x4, gpus: 4, memory: 80GiB, time_limit: 8h}";
        wrong(String::new(), message.to_owned());
    }
    if count > SHAPES_MAX {
        let message = format!("lists {count} shapes; allowed: {SHAPES_MAX}");
        wrong(String::new(), message);
    }
    let mut names = BTreeSet::new();
    for (index, shape) in section.shapes.iter().enumerate() {
        let mut wrong = |key: &str, message: String| wrong(format!("[{index}].{key}"), message);
        if !is_name(&shape.name) {
            let message = "allowed: 1 to 40 letters, digits, `-` and `_`, such as a100x4";
            wrong("name", format!("is `{}`; {message}", shape.name));
        }
        if !names.insert(shape.name.as_str()) {
            let message = format!(
                "`{}` is given twice; each shape needs a unique name",
                shape.name
            );
            wrong("name", message);
        }
        if shape.accelerator == Some(DeviceKind::Host) {
            let message = "is host; allowed: nvidia, amd, intel, other";
            wrong("accelerator", message.to_owned());
        }
        if shape.gpus > GPUS_MAX {
            let message = format!("is {}; allowed: 0 to {GPUS_MAX}", shape.gpus);
            wrong("gpus", message);
        }
        if shape.memory.0 < pool::Bytes(pool::Bytes::MIB) {
            let message = format!("is {}; allowed: 1MiB and more", shape.memory);
            wrong("memory", message);
        }
        let limit = shape.time_limit;
        if section.kind == ClusterKind::Kubernetes {
            if !is_no_limit(&limit) {
                let message = "is set, but pods have no time limit; remove it".to_owned();
                wrong("time_limit", message);
            }
        } else if is_no_limit(&limit) {
            let message =
                "is missing or 0; write the time that the cluster grants a node, such as 8h";
            wrong("time_limit", message.to_owned());
        } else if !(TIME_LIMIT.0..=TIME_LIMIT.1).contains(&limit.0) {
            wrong("time_limit", format!("is {limit}; allowed: 1m to 366 days"));
        }
        if shape.max_nodes.is_some_and(|most| most > NODES_MAX) {
            let most = shape.max_nodes.unwrap_or(0);
            wrong("max_nodes", format!("is {most}; allowed: 0 to {NODES_MAX}"));
        }
        if let Some(cost) = shape.cost_per_hour
            && !(0.0..=COST_MAX).contains(&cost)
        {
            let message = format!("is {cost}; allowed: 0 to {COST_MAX}");
            wrong("cost_per_hour", message);
        }
        for (key, value) in [
            ("gres", &shape.gres),
            ("partition", &shape.partition),
            ("constraint", &shape.constraint),
        ] {
            if let Some(value) = value
                && let Some(message) = argument_problem(value)
            {
                wrong(key, message);
            }
            if value.is_some() && !matches!(section.kind, ClusterKind::None | ClusterKind::Slurm) {
                let message = "is only for cluster.kind slurm; remove it".to_owned();
                wrong(key, message);
            }
        }
        let gpu_resource = &section.pbs.gpu_resource;
        let select = shape.select.as_deref();
        for (key, value, message) in [
            (
                "queue",
                &shape.queue,
                shape.queue.as_deref().and_then(argument_problem),
            ),
            (
                "select",
                &shape.select,
                select.and_then(|text| cluster_pbs::select_problem(text, gpu_resource)),
            ),
        ] {
            if let Some(message) = message {
                wrong(key, message);
            }
            if value.is_some() && !matches!(section.kind, ClusterKind::None | ClusterKind::Pbs) {
                wrong(key, "is only for cluster.kind pbs; remove it".to_owned());
            }
        }
        for (name, amount) in &shape.resources {
            if let Some(message) = cluster_ray::resource_problem(name, *amount) {
                wrong("resources", message);
            }
        }
        for (name, value) in &shape.labels {
            if let Some(message) = cluster_ray::label_problem(name, value) {
                wrong("labels", message);
            }
        }
        let is_other = !matches!(section.kind, ClusterKind::None | ClusterKind::Ray);
        for (key, is_set) in [
            ("resources", !shape.resources.is_empty()),
            ("labels", !shape.labels.is_empty()),
        ] {
            if is_set && is_other {
                wrong(key, "is only for cluster.kind ray; remove it".to_owned());
            }
        }
        if section.kind == ClusterKind::Ray && shape.gpus == 0 && section.ray.cpus == 0 {
            let message = "is 0, and cluster.ray.cpus is 0: Ray would run its nodes on the head; set one of them".to_owned();
            wrong("gpus", message);
        }
    }
    problems
}
