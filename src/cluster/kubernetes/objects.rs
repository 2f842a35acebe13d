//! The fields read from the API server's objects. Other fields are ignored. A missing field has its zero value, because the API
//! server omits it in that case.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `autoscaling/v1`, the subresource `scale` of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Scale {
    pub api_version: String,
    pub kind: String,
    pub metadata: ScaleMetadata,
    pub spec: ScaleSpec,
}

/// The version that the server compares before it changes the number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ScaleMetadata {
    pub name: String,
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    pub resource_version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ScaleSpec {
    pub replicas: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodList {
    pub metadata: ListMetadata,
    pub items: Vec<Pod>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListMetadata {
    /// The start of the next page.
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub metadata: Metadata,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub creation_timestamp: Option<String>,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub node_name: String,
    pub scheduling_gates: Vec<Gate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gate {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodStatus {
    pub phase: String,
    pub reason: String,
    pub message: String,
    pub start_time: Option<String>,
    pub conditions: Vec<Condition>,
    pub init_container_statuses: Vec<Container>,
    pub container_statuses: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container {
    pub restart_count: u32,
    pub state: ContainerState,
    /// The state in which its previous run ended.
    pub last_state: ContainerState,
}

/// At most one field is set; a container without either runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub waiting: Option<WaitingState>,
    pub terminated: Option<TerminatedState>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WaitingState {
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TerminatedState {
    pub exit_code: i32,
    pub reason: String,
    /// The end of the log, if the template has `terminationMessagePolicy: FallbackToLogsOnError`.
    pub message: String,
}

/// The API server's response in place of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ApiStatus {
    pub message: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Version {
    pub git_version: String,
}

impl Pod {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Returns true if the pod is being deleted or has ended.
    pub fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
            || matches!(self.status.phase.as_str(), "Failed" | "Succeeded")
    }
}
