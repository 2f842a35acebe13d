//! The section `cluster`: the software that provides nodes, and how a node finds the controller.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::{self as cluster_budget, BudgetSection};
use super::command::{ARGUMENTS_MAX, CommandSection};
use super::kubernetes::KubernetesSection;
use super::pbs::PbsSection;
use super::ray::RaySection;
use super::shape::ShapeSection;
use super::slurm::SlurmSection;
use super::text::{is_line, is_name};
use super::{
    command as cluster_command, kubernetes as cluster_kubernetes, pbs as cluster_pbs,
    ray as cluster_ray, shape as cluster_shape, slurm as cluster_slurm,
};
use crate::problems::Problem;
use crate::values::addresses::{check_address, is_fingerprint};
use crate::values::{Addresses, Length, RenewBefore};
use pool::Span;

/// The controller accepts no more nodes.
pub(super) const NODES_MAX: u32 = 1024;

/// Nodes from a cluster (S2): docs/guides/slurm.md, docs/guides/pbs.md, docs/guides/kubernetes.md, docs/guides/ray.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSection {
    /// The source of nodes: `slurm`, `pbs`, `kubernetes`, `ray`, or `command` for your own programs.
    pub kind: ClusterKind,
    /// This pool's name in the cluster. Jobs carry it, which lets the pool find its own after a restart. Letters, digits, `-` and
    /// `_`. Pools of one account need different names.
    pub name: String,
    /// Time that a request for a node may take before the pool evicts instead.
    pub patience: Length,
    /// Time that a node without a model is kept.
    pub scale_down_after: Length,
    /// Models of a requested node move to a cheaper place if that pays off within `scale_down_after`, and the node is given back (S3).
    pub consolidate: bool,
    /// Time before a node's time limit at which its models move to other nodes (N7): `auto`, the expected duration of the move, or
    /// a duration. At most half of the node's time.
    pub renew_before: RenewBefore,
    /// Time that a lease may run before its node has joined; then it is given back.
    pub join_within: Length,
    /// The address at which nodes reach the controller, such as `https://pool.example.org:8443`; with a standby controller, a list
    /// of both.
    pub controller: Option<Addresses>,
    /// The fingerprint of the controller's certificate that nodes accept: `sha256:` and 64 hexadecimal digits; null:
    /// certificate authorities decide.
    pub fingerprint: Option<String>,
    /// The file with the join token, at the same path on the nodes. Jobs carry the path, never the token.
    pub token_file: Option<PathBuf>,
    /// `model-pool` on the nodes: a path there, or a name on the PATH.
    pub program: String,
    /// The folder for a node's state; `%j` stands for the id of its lease. Null: a folder named after the lease in `TMPDIR`.
    pub node_data: Option<String>,
    /// Further arguments of `model-pool node`.
    pub node_options: Vec<String>,
    /// Maximum number of nodes that the pool holds or requests at a time, 0 to 1024. Nodes that a person has requested do not
    /// count. Null: no limit.
    pub max_nodes: Option<u32>,
    /// Limits per day and month for the use of nodes that the pool requests.
    pub budget: BudgetSection,
    /// The kinds of node that can be requested from the cluster.
    pub shapes: Vec<ShapeSection>,
    /// Job settings for kind `slurm`.
    pub slurm: SlurmSection,
    /// Job settings for kind `pbs`.
    pub pbs: PbsSection,
    /// The pods that serve as nodes, for kind `kubernetes`.
    pub kubernetes: KubernetesSection,
    /// Job settings for kind `ray`.
    pub ray: RaySection,
    /// The programs for kind `command`.
    pub command: CommandSection,
}

impl Default for ClusterSection {
    fn default() -> ClusterSection {
        ClusterSection {
            kind: ClusterKind::None,
            name: "pool".to_owned(),
            patience: Length::from_secs(180),
            scale_down_after: Length::from_secs(1200),
            consolidate: true,
            renew_before: RenewBefore::Auto,
            join_within: Length::from_secs(600),
            controller: None,
            fingerprint: None,
            token_file: None,
            program: "model-pool".to_owned(),
            node_data: None,
            node_options: Vec::new(),
            max_nodes: None,
            budget: BudgetSection::default(),
            shapes: Vec::new(),
            slurm: SlurmSection::default(),
            pbs: PbsSection::default(),
            kubernetes: KubernetesSection::default(),
            ray: RaySection::default(),
            command: CommandSection::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    None,
    Slurm,
    Pbs,
    Kubernetes,
    Ray,
    Command,
}

/// All problems of this section.
pub(crate) fn problems(section: &ClusterSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("cluster.{key}"), message));
    };
    for (key, length) in [
        ("patience", section.patience),
        ("scale_down_after", section.scale_down_after),
        ("join_within", section.join_within),
    ] {
        if length.0 == Span::ZERO {
            wrong(
                key,
                format!("is {length}; allowed: 1ms and more, such as 3m"),
            );
        }
    }
    if section.renew_before == RenewBefore::Before(Length(Span::ZERO)) {
        let message = "is 0s, so no model would move before its node ends; write auto, or a duration such as 30m";
        wrong("renew_before", message.to_owned());
    }
    if !is_name(&section.name) {
        let message = "allowed: 1 to 40 letters, digits, `-` and `_`, such as lab";
        wrong("name", format!("is `{}`; {message}", section.name));
    }
    if let Some(fingerprint) = &section.fingerprint
        && !is_fingerprint(fingerprint)
    {
        let message =
            "is not a fingerprint; write sha256: and the 64 hexadecimal digits of the certificate";
        wrong("fingerprint", message.to_owned());
    }
    // In Kubernetes the command is in the template of the pods.
    let needs_command = !matches!(section.kind, ClusterKind::None | ClusterKind::Kubernetes);
    match &section.controller {
        Some(addresses) => {
            let secret_goes = "set cluster.token_file to a file with the token";
            for address in addresses.iter() {
                if let Err(why) = check_address(address, secret_goes) {
                    wrong("controller", why);
                }
            }
        }
        None if needs_command => wrong(
            "controller",
            "is not set, so no node could join; write the address at which nodes reach this pool, such as https://pool.example.org:8443".to_owned(),
        ),
        None => {}
    }
    if needs_command && section.token_file.is_none() {
        let message = "is not set, so no node could join; write the path of the file with the join token, in a folder that the nodes share";
        wrong("token_file", message.to_owned());
    }
    if let Some(file) = &section.token_file
        && !(file.is_absolute() && is_line(&file.to_string_lossy()))
    {
        let message = format!(
            "is `{}`; nodes start in other working directories, so write an absolute path",
            file.display()
        );
        wrong("token_file", message);
    }
    if !is_line(&section.program) {
        let message =
            "is empty or has more than one line; write model-pool, or its path on the nodes";
        wrong("program", message.to_owned());
    }
    if let Some(folder) = &section.node_data
        && !(is_line(folder) && folder.starts_with('/'))
    {
        let message =
            format!("is `{folder}`; write an absolute path such as /scratch/model-pool-%j");
        wrong("node_data", message);
    }
    for (index, option) in section.node_options.iter().enumerate() {
        if !is_line(option) || index >= ARGUMENTS_MAX {
            let message = "is empty, too long or has more than one line; write one argument per line, at most 100";
            wrong(&format!("node_options[{index}]"), message.to_owned());
        }
    }
    if section.max_nodes.is_some_and(|most| most > NODES_MAX) {
        let most = section.max_nodes.unwrap_or(0);
        let message = format!("is {most}; allowed: 0 to {NODES_MAX}, or null for no limit");
        problems.push(Problem::new("cluster.max_nodes", message));
    }
    problems.extend(cluster_budget::problems(section));
    problems.extend(cluster_shape::problems(section));
    problems.extend(cluster_slurm::problems(&section.slurm));
    problems.extend(cluster_pbs::problems(&section.pbs));
    let names: Vec<&str> = section
        .shapes
        .iter()
        .map(|shape| shape.name.as_str())
        .collect();
    let (kind, name) = (section.kind, &section.name);
    problems.extend(cluster_kubernetes::problems(
        &section.kubernetes,
        kind == ClusterKind::Kubernetes,
        name,
        &names,
    ));
    problems.extend(cluster_ray::problems(&section.ray));
    if kind == ClusterKind::Ray && section.ray.address.is_none() {
        let message =
            "is not set; write the address of Ray's dashboard, such as http://ray-head:8265";
        problems.push(Problem::new("cluster.ray.address", message));
    }
    let is_command = kind == ClusterKind::Command;
    problems.extend(cluster_command::problems(&section.command, is_command));
    problems
}

/// Settings without effect.
pub(crate) fn notices(section: &ClusterSection) -> Vec<String> {
    let default = ClusterSection::default();
    let mut notices = Vec::new();
    if section.kind == ClusterKind::None {
        for (key, is_set) in [
            ("patience", section.patience != default.patience),
            (
                "scale_down_after",
                section.scale_down_after != default.scale_down_after,
            ),
            ("consolidate", section.consolidate != default.consolidate),
            ("renew_before", section.renew_before != default.renew_before),
            ("join_within", section.join_within != default.join_within),
            ("max_nodes", section.max_nodes != default.max_nodes),
            ("budget", section.budget.is_set()),
        ] {
            if is_set {
                notices.push(format!(
                    "cluster.{key} has no effect while cluster.kind is none"
                ));
            }
        }
        return notices;
    }
    let kind = match section.kind {
        ClusterKind::None => "none",
        ClusterKind::Slurm => "slurm",
        ClusterKind::Pbs => "pbs",
        ClusterKind::Kubernetes => "kubernetes",
        ClusterKind::Ray => "ray",
        ClusterKind::Command => "command",
    };
    for (key, is_set) in [
        ("slurm", section.slurm != default.slurm),
        ("pbs", section.pbs != default.pbs),
        ("kubernetes", section.kubernetes != default.kubernetes),
        ("ray", section.ray != default.ray),
        ("command", section.command != default.command),
    ] {
        if is_set && key != kind {
            notices.push(format!(
                "cluster.{key} has no effect while cluster.kind is {kind}"
            ));
        }
    }
    if section.kind != ClusterKind::Kubernetes {
        return notices;
    }
    for (key, is_set) in [
        ("controller", section.controller != default.controller),
        ("fingerprint", section.fingerprint != default.fingerprint),
        ("token_file", section.token_file != default.token_file),
        ("program", section.program != default.program),
        ("node_data", section.node_data != default.node_data),
        ("node_options", section.node_options != default.node_options),
    ] {
        if is_set {
            notices.push(format!(
                "cluster.{key} has no effect while cluster.kind is kubernetes: the pods' template defines how their node starts"
            ));
        }
    }
    notices
}
