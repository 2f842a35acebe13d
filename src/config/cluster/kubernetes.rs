//! The keys of `cluster.kubernetes`: the API server, and the Deployments whose pods are nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::problems::Problem;
use crate::values::Length;
use pool::Span;

const TIMEOUT: (Span, Span) = (Span::from_secs(1), Span::from_secs(120));
/// A pod's name is up to 17 characters longer, and is also the node's name, which has at most 63.
const DEPLOYMENT_NAME_MAX: usize = 46;
const NAMESPACE_MAX: usize = 63;
/// Each Deployment and each set without a pod is checked while a request is open.
const DEPLOYMENTS_MAX: usize = 256;
/// The least and the largest number of nodes of a set.
const SET_NODES: (u32, u32) = (2, 64);

/// Pods as nodes: docs/guides/kubernetes.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSection {
    /// The API server, such as `https://10.0.0.1:6443`; null: the server of the cluster in which this program runs.
    pub server: Option<String>,
    /// The namespace of the Deployments; null: the namespace of this program's pod.
    pub namespace: Option<String>,
    /// The file with the token of the service account, read for each call because it is replaced periodically. Null: the token of
    /// this program's pod.
    pub token_file: Option<PathBuf>,
    /// The file with the certificate authorities of the API server; null: the authorities of this program's pod.
    pub ca_file: Option<PathBuf>,
    /// The Deployments of each shape, by the shape's name. Each has one pod or none, and a pod is a node.
    pub deployments: BTreeMap<String, Vec<String>>,
    /// The objects that start several nodes of a shape together, by the shape's name, for models that span machines. Without a free
    /// set of the right size, as many Deployments are used.
    pub sets: BTreeMap<String, Vec<PodSet>>,
    /// Time limit of a call, 1s to 2m.
    pub timeout: Length,
}

/// An object whose pods are nodes that start and end together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PodSet {
    pub kind: PodSetKind,
    pub name: String,
    /// The number of its pods, 2 to 64.
    pub nodes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PodSetKind {
    /// A group of a LeaderWorkerSet (`leaderworkerset.x-k8s.io/v1`), whose `size` is `nodes`.
    LeaderWorkerSet,
    /// A StatefulSet that has `nodes` pods or none.
    StatefulSet,
}

impl Default for KubernetesSection {
    fn default() -> KubernetesSection {
        KubernetesSection {
            server: None,
            namespace: None,
            token_file: None,
            ca_file: None,
            deployments: BTreeMap::new(),
            sets: BTreeMap::new(),
            timeout: Length::from_secs(10),
        }
    }
}

/// Returns true for lower-case letters, digits and dashes: a DNS label, as used for most object names.
fn is_label(text: &str, length_max: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=length_max).contains(&bytes.len())
        && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
        && [bytes.first(), bytes.last()]
            .iter()
            .all(|end| end.is_some_and(|byte| is_plain(*byte)))
}

/// `pool_name` and `shapes` come from the section `cluster`; `is_used`: true if pods serve as nodes.
pub(crate) fn problems(
    section: &KubernetesSection,
    is_used: bool,
    pool_name: &str,
    shapes: &[&str],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("cluster.kubernetes{key}"), message));
    };
    if let Some(server) = &section.server
        && let Err(why) = server_address(server)
    {
        wrong(".server", why);
    }
    if let Some(namespace) = &section.namespace
        && !is_label(namespace, NAMESPACE_MAX)
    {
        let message = "allowed: lower-case letters, digits and `-`, such as llm";
        wrong(".namespace", format!("is `{namespace}`; {message}"));
    }
    let timeout = section.timeout;
    if !(TIMEOUT.0..=TIMEOUT.1).contains(&timeout.0) {
        wrong(
            ".timeout",
            format!("is {timeout}; allowed: 1s to 2m, such as 10s"),
        );
    }
    let mut names = BTreeSet::new();
    for (shape, deployments) in &section.deployments {
        if !shapes.contains(&shape.as_str()) {
            let message = format!("names the shape `{shape}`, which cluster.shapes does not have");
            wrong(".deployments", message);
        }
        for name in deployments {
            if !is_label(name, DEPLOYMENT_NAME_MAX) {
                let message = format!(
                    "has `{name}`; allowed: 1 to {DEPLOYMENT_NAME_MAX} lower-case letters, digits and `-`, such as model-pool-a100x1-1"
                );
                wrong(".deployments", message);
            } else if !names.insert(name) {
                let message =
                    format!("has `{name}` twice; each Deployment is one node of one shape");
                wrong(".deployments", message);
            }
        }
    }
    for (shape, sets) in &section.sets {
        if !shapes.contains(&shape.as_str()) {
            let message = format!("names the shape `{shape}`, which cluster.shapes does not have");
            wrong(".sets", message);
        }
        for set in sets {
            let name = &set.name;
            if !is_label(name, DEPLOYMENT_NAME_MAX) || !names.insert(name) {
                let message = format!(
                    "has `{name}`; allowed: 1 to {DEPLOYMENT_NAME_MAX} lower-case letters, digits and `-`, once in deployments and sets, such as model-pool-a100x8-set-1"
                );
                wrong(".sets", message);
            }
            if !(SET_NODES.0..=SET_NODES.1).contains(&set.nodes) {
                let (least, most) = SET_NODES;
                let message = format!(
                    "has {} nodes in `{name}`; allowed: {least} to {most}",
                    set.nodes
                );
                wrong(".sets", message);
            }
        }
    }
    if names.len() > DEPLOYMENTS_MAX {
        let message = format!(
            "has {} Deployments and sets; allowed: {DEPLOYMENTS_MAX}",
            names.len()
        );
        wrong(".deployments", message);
    }
    if !is_used {
        return problems;
    }
    for shape in shapes {
        let has_some = section.deployments.get(*shape);
        if has_some.is_none_or(Vec::is_empty) {
            let message = format!(
                "has none for the shape `{0}`, so no such node could start; write {0}: [model-pool-{0}-1, model-pool-{0}-2] with one Deployment per possible node",
                shape
            );
            wrong(".deployments", message);
        }
    }
    // The name is used as the value of a label.
    let ends = [pool_name.chars().next(), pool_name.chars().last()];
    if !ends
        .iter()
        .all(|end| end.is_some_and(|letter| letter.is_ascii_alphanumeric()))
    {
        let message = format!(
            "is `{pool_name}`; with Kubernetes it is the value of a label and must begin and end with a letter or a digit"
        );
        problems.push(Problem::new("cluster.name".to_owned(), message));
    }
    problems
}

fn server_address(text: &str) -> Result<(), String> {
    let example = "write one such as https://10.0.0.1:6443";
    let url = Url::parse(text).map_err(|error| format!("is not a URL ({error}); {example}"))?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        None => return Err(format!("names no host; {example}")),
    };
    match url.scheme() {
        "https" => {}
        "http" if is_loopback => {}
        "http" => {
            return Err(
                "begins with http://, and the token would be sent in plain text; write https://, or http:// with a loopback address, as for `kubectl proxy`".to_owned(),
            );
        }
        _ => return Err(format!("must begin with https://; {example}")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "contains a user or a password; write the token into a file and set token_file to it"
                .to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("contains more than an address; {example}"));
    }
    Ok(())
}
