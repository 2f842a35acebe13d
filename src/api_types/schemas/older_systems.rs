//! Bodies of the routes for clients of older systems; docs/reference/compatibility.md lists the routes.

use serde_json::Value;
use utoipa::ToSchema;

/// A load request of LLM Serving's clients.
#[derive(ToSchema)]
pub struct GetModelRequest {
    /// An admin key, if the request has none in its header.
    pub key: Option<String>,
    pub model_name: String,
    pub model_type: OldModelType,
    /// 0 loads nothing, 1 (the default) at least one replica, and a larger number exactly that many.
    #[schema(minimum = 0, maximum = 64)]
    pub num_replicas: Option<u32>,
    /// 2 and above overrides the model's file.
    #[schema(minimum = 1, maximum = 1024)]
    pub gpus_per_replica: Option<u32>,
    /// Sets the model's priority permanently.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub priority: Option<u32>,
}

/// A value of the previous API. It has no effect: the model's file determines its engine.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldModelType {
    Empty,
    VllmRaw,
    VllmOpenai,
    Embedding,
}

/// Sets the number of a model's replicas.
#[derive(ToSchema)]
pub struct LoadModelRequest {
    /// An admin key, if the request has none in its header.
    pub key: Option<String>,
    pub model_name: String,
    /// 0 unloads the model.
    #[schema(minimum = 0, maximum = 64)]
    pub num_replicas: u32,
}

/// An unload request.
#[derive(ToSchema)]
pub struct DeleteModelRequest {
    /// An admin key, if the request has none in its header.
    pub key: Option<String>,
    pub model_name: String,
}

/// A request with only a key.
#[derive(ToSchema)]
pub struct KeyRequest {
    /// An admin key, if the request has none in its header.
    pub key: Option<String>,
}

/// The reference file to reload.
#[derive(ToSchema)]
pub struct ReferenceRequest {
    /// An admin key, if the request has none in its header.
    pub key: Option<String>,
    /// The last part of the path must be that of `catalog.model_reference`.
    pub model_reference_path: String,
}

/// Statistics of the pool.
#[derive(ToSchema)]
pub struct PoolNumbers {
    /// False.
    pub autoscaler_enabled: bool,
    /// 0.
    pub last_autoscaler_failed_time: u64,
    pub num_total_gpus: usize,
    /// The previous service spelled this name with a colon.
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
    /// Maximum number of tokens in the response. The default is 50.
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

/// A prompt of Aviary's clients.
#[derive(ToSchema)]
pub struct AviaryPrompt {
    pub prompt: String,
    /// False to continue the text without a chat template. The default is true.
    pub use_prompt_format: Option<bool>,
    /// Parameters of Hugging Face's `generate`, and `stopping_sequences`.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Stop sequences, unless `parameters` contains some.
    pub stopping_sequences: Option<Vec<String>>,
}

/// A chat with the model in the path, which the body may repeat.
#[derive(ToSchema)]
pub struct AviaryChat {
    pub model: Option<String>,
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub messages: Value,
    /// All other fields of `/v1/chat/completions` are accepted.
    pub stream: Option<bool>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
}

/// A completion by the model in the path, which the body may repeat.
#[derive(ToSchema)]
pub struct AviaryCompletion {
    pub model: Option<String>,
    pub prompt: String,
    /// All other fields of `/v1/completions` are accepted.
    pub stream: Option<bool>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
}

/// A response in Aviary's form.
#[derive(ToSchema)]
pub struct AviaryResponse {
    /// Null if there is an error.
    pub generated_text: Option<String>,
    pub num_input_tokens: Option<u64>,
    pub num_generated_tokens: Option<u64>,
    pub num_total_tokens: Option<u64>,
    /// In seconds, including the wait for the model.
    pub total_time: Option<f64>,
    /// The error, if the request failed.
    pub error: Option<String>,
    pub error_type: Option<String>,
}

/// Model details in Aviary's form.
#[derive(ToSchema)]
pub struct AviaryMetadata {
    /// `model_config` with `model_id`, `model_url`, `model_description`, `max_total_tokens` and `generation`.
    #[schema(value_type = Object)]
    pub metadata: Value,
}

/// A test request of LLM Serving's clients.
#[derive(ToSchema)]
pub struct TestModelRequest {
    pub model: String,
    /// No effect: tests do not load models.
    #[schema(minimum = 0, maximum = 64)]
    pub num_replicas: Option<u32>,
    /// No effect.
    #[schema(minimum = 0, maximum = 1024)]
    pub gpus_per_replica: Option<u32>,
    /// No effect.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub priority: Option<u32>,
}

/// The models in LLM Serving's form.
#[derive(ToSchema)]
pub struct OldModels {
    pub hot_models: Vec<OldHotModel>,
    /// Models whose weights are on this machine.
    pub cached_models: Vec<OldCachedModel>,
}

/// A model with replicas.
#[derive(ToSchema)]
pub struct OldHotModel {
    pub model_name: String,
    pub model_type: OldModelType,
    /// `Running` or `Deploying`.
    pub status: String,
    pub num_replicas: usize,
    pub priority: u32,
    pub gpus_per_replica: u32,
    /// The base path, which all models share.
    pub route_prefix: String,
    /// Time at which its oldest replica became ready, `YYYY-MM-DD HH:MM` in UTC.
    pub created_time: Option<String>,
}

/// A model whose weights are on this machine.
#[derive(ToSchema)]
pub struct OldCachedModel {
    #[serde(rename = "model-name")]
    pub model_name: String,
    /// Size, such as `13.5G`.
    #[serde(rename = "model-size")]
    pub model_size: String,
    #[serde(rename = "last-modified-time")]
    pub last_modified_time: String,
}
