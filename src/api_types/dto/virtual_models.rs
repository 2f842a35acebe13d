//! Virtual models with their members, and the member that a request would get.

use serde::Serialize;
use utoipa::ToSchema;

/// The member of a virtual model for the next request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VirtualChoice {
    /// The virtual model.
    #[schema(example = "coder")]
    pub name: String,
    /// `any_of`, `split`, `fallback` or `by`.
    #[schema(example = "any_of")]
    pub kind: &'static str,
    /// The model that would serve the request.
    #[schema(example = "tiny-code")]
    pub member: String,
    #[schema(example = "it is the first ready member with a free seat")]
    pub reason: String,
}

/// A model behind a virtual model.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VirtualMember {
    #[schema(example = "tiny-code")]
    pub model: String,
    /// Its state, such as `ready` or `cold`; null if no such model is served.
    #[schema(example = "ready")]
    pub state: Option<String>,
    /// Its weight in a `split`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// A virtual model.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VirtualModelView {
    #[schema(example = "coder")]
    pub name: String,
    /// `any_of`, `split`, `fallback` or `by`.
    #[schema(example = "any_of")]
    pub kind: &'static str,
    pub members: Vec<VirtualMember>,
    /// Its section of the configuration.
    #[schema(value_type = Option<Object>)]
    pub rule: Option<serde_json::Value>,
    /// Its origin: `configuration`, or `api` if administrators have set it.
    #[schema(example = "configuration")]
    pub source: &'static str,
    /// The member for a request without images and tools; null if no member is served.
    pub next: Option<VirtualChoice>,
    pub warnings: Vec<String>,
}

/// The virtual models by name.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VirtualModelList {
    pub virtual_models: Vec<VirtualModelView>,
}

/// A virtual model that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RemovedVirtualModel {
    #[schema(example = "coder")]
    pub name: String,
    /// True if the configuration has a virtual model of this name, which is in force again.
    pub is_in_configuration: bool,
}
