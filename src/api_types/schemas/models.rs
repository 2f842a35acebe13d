//! Model lists and health responses.

use serde_json::Value;
use utoipa::ToSchema;

/// The models that the key may use, by name.
#[derive(ToSchema)]
pub struct ModelObjects {
    /// `list`.
    #[schema(examples("list"))]
    pub object: String,
    pub data: Vec<ModelObject>,
}

/// The models in Anthropic's form if the request has the header `anthropic-version`, otherwise in OpenAI's.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ModelListing {
    OpenAi(ModelObjects),
    Anthropic(ModelInfos),
}

/// A model in Anthropic's or OpenAI's form.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum OneModelListing {
    OpenAi(ModelObject),
    Anthropic(ModelInfo),
}

/// A page of models in Anthropic's form.
#[derive(ToSchema)]
pub struct ModelInfos {
    pub data: Vec<ModelInfo>,
    pub has_more: bool,
    pub first_id: Option<String>,
    pub last_id: Option<String>,
}

/// A model in Anthropic's form.
#[derive(ToSchema)]
pub struct ModelInfo {
    /// `model`.
    #[schema(examples("model"))]
    pub r#type: String,
    /// The name that requests use.
    pub id: String,
    pub display_name: String,
    /// Start time of the service.
    pub created_at: String,
    /// `active`.
    pub lifecycle: String,
    /// Always null, like other fields without a description: the value is unknown.
    #[schema(value_type = Option<Object>)]
    pub capabilities: Option<Value>,
    pub deprecated_at: Option<String>,
    pub line: Option<String>,
    /// Maximum sequence length in tokens, shared by input and output. Null if neither the model's file nor its weights specify it.
    #[schema(examples(512))]
    pub max_input_tokens: Option<u64>,
    /// Same as `max_input_tokens`.
    #[schema(examples(512))]
    pub max_tokens: Option<u64>,
    pub retires_at: Option<String>,
}

/// A model, loaded or not.
#[derive(ToSchema)]
pub struct ModelObject {
    /// The name that requests use.
    #[schema(examples("tiny-guide"))]
    pub id: String,
    /// `model`.
    #[schema(examples("model"))]
    pub object: String,
    /// Start time of the service, as Unix time in seconds.
    pub created: i64,
    /// `model-pool`.
    #[schema(examples("model-pool"))]
    pub owned_by: String,
    /// `chat`, `completion`, `embedding`, `rerank`, `audio` or `image`. Null if neither the model's file nor its engine specifies
    /// it.
    #[schema(examples("chat"))]
    pub kind: Option<String>,
    /// Other names for the model. Each is listed as well.
    pub aliases: Vec<String>,
    /// Maximum sequence length in tokens, under vLLM's name. Null if neither the model's file nor its weights specify it.
    #[schema(examples(512))]
    pub max_model_len: Option<u64>,
    /// Maximum sequence length, under OpenRouter's name.
    #[schema(examples(512))]
    pub context_length: Option<u64>,
    pub meta: ModelMeta,
    /// The model that an alias names.
    pub root: Option<String>,
    /// The model that an adapter belongs to.
    pub parent: Option<String>,
    /// The models behind a virtual model.
    pub members: Option<Vec<String>>,
    /// RayLLM's field, if `compat.rayllm` is on.
    #[schema(value_type = Option<Object>)]
    pub rayllm_metadata: Option<Value>,
    /// RayLLM's field, if `compat.rayllm` is on.
    #[schema(value_type = Option<Value>)]
    pub permission: Option<Value>,
}

/// Model properties under llama.cpp's names.
#[derive(ToSchema)]
pub struct ModelMeta {
    /// Maximum sequence length in tokens.
    #[schema(examples(512))]
    pub n_ctx: Option<u64>,
    /// Maximum sequence length of the model's training.
    #[schema(examples(512))]
    pub n_ctx_train: Option<u64>,
}

/// The process is running.
#[derive(ToSchema)]
pub struct Health {
    /// `ok`.
    #[schema(examples("ok"))]
    pub status: String,
}

/// Readiness of the service.
#[derive(ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// Reason that the service is not ready. Null if it is.
    pub reason: Option<String>,
    /// Problems that do not affect readiness: models that cannot be served as their files specify, and data that cannot be stored.
    pub details: Vec<String>,
}
