//! The bodies of the routes that clients of older systems know; docs/compatibility.md has the table.

use utoipa::ToSchema;

/// A model that is to be loaded, as LLM Serving's clients name it.
#[derive(ToSchema)]
pub struct GetModelRequest {
    /// An admin key, unless the request has one in its header.
    pub key: Option<String>,
    pub model_name: String,
    pub model_type: OldModelType,
    /// 0 loads nothing, 1 (the default) at least one replica, more exactly that many.
    #[schema(minimum = 0, maximum = 64)]
    pub num_replicas: Option<u32>,
    /// 2 and more overrides the model's file.
    #[schema(minimum = 1, maximum = 1024)]
    pub gpus_per_replica: Option<u32>,
    /// Sets the model's priority, which stays.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub priority: Option<u32>,
}

/// One of the old values. It has no other effect: the model's file says which engine runs it.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldModelType {
    Empty,
    VllmRaw,
    VllmOpenai,
    Embedding,
}

/// How many replicas a model has from now on.
#[derive(ToSchema)]
pub struct LoadModelRequest {
    /// An admin key, unless the request has one in its header.
    pub key: Option<String>,
    pub model_name: String,
    /// 0 unloads the model.
    #[schema(minimum = 0, maximum = 64)]
    pub num_replicas: u32,
}

/// A model that is to be unloaded.
#[derive(ToSchema)]
pub struct DeleteModelRequest {
    /// An admin key, unless the request has one in its header.
    pub key: Option<String>,
    pub model_name: String,
}

/// Nothing but a key.
#[derive(ToSchema)]
pub struct KeyRequest {
    /// An admin key, unless the request has one in its header.
    pub key: Option<String>,
}

/// The reference that is read again.
#[derive(ToSchema)]
pub struct ReferenceRequest {
    /// An admin key, unless the request has one in its header.
    pub key: Option<String>,
    /// The last part of the path must be that of `catalog.model_reference`.
    pub model_reference_path: String,
}

/// The pool in numbers.
#[derive(ToSchema)]
pub struct PoolNumbers {
    /// False.
    pub autoscaler_enabled: bool,
    /// 0.
    pub last_autoscaler_failed_time: u64,
    pub num_total_gpus: usize,
    /// The old service had this name with a colon.
    #[serde(rename = "num_available_gpus:")]
    pub num_available_gpus_with_colon: usize,
    pub num_available_gpus: usize,
    pub num_served_models: usize,
}

/// A prompt for the GPT-J pipeline's route.
#[derive(ToSchema)]
pub struct RunRequest {
    /// The prompt.
    pub data: String,
    /// The most tokens of the answer. The default is 50.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub num_tokens: Option<u32>,
    /// `contrastive_search`, `multinomial`, `beam_search` or `greedy`.
    pub decoding_strategy: Option<String>,
    /// The model's name. The default is `compat.run_model`, or the only model.
    pub model: Option<String>,
}

/// A model that was removed.
#[derive(ToSchema)]
pub struct RemovedModel {
    pub id: String,
    /// `model`.
    pub object: String,
    pub deleted: bool,
}
