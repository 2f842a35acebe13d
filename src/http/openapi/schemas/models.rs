//! The models that a key may use, and the answers about the service's health.

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

/// The models in the form of the request: Anthropic's with `anthropic-version`, else OpenAI's.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ModelListing {
    OpenAi(ModelObjects),
    Anthropic(ModelInfos),
}

/// One model in the form of the request.
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
    /// When the service started.
    pub created_at: String,
    /// `active`.
    pub lifecycle: String,
    /// Null, as the others without a description: the pool does not know them.
    #[schema(value_type = Option<Object>)]
    pub capabilities: Option<Value>,
    pub deprecated_at: Option<String>,
    pub line: Option<String>,
    /// The tokens of the longest sequence, which input and output share. Null if neither the model's file nor its weights say.
    #[schema(examples(512))]
    pub max_input_tokens: Option<u64>,
    /// The same.
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
    /// When the service started, in seconds since 1970.
    pub created: i64,
    /// `model-pool`.
    #[schema(examples("model-pool"))]
    pub owned_by: String,
    /// `chat`, `completion`, `embedding`, `rerank`, `audio` or `image`. Null if neither the model's file nor its engine says.
    #[schema(examples("chat"))]
    pub kind: Option<String>,
    /// Other names for the model. Each is listed as well.
    pub aliases: Vec<String>,
    /// The tokens of the longest sequence, by vLLM's name. Null if neither the model's file nor its weights say.
    #[schema(examples(512))]
    pub max_model_len: Option<u64>,
    /// The same, by OpenRouter's name.
    #[schema(examples(512))]
    pub context_length: Option<u64>,
    pub meta: ModelMeta,
    /// The model that an alias names.
    pub root: Option<String>,
    /// The model that an adapter belongs to.
    pub parent: Option<String>,
    /// What RayLLM returned, if `compat.rayllm` is on.
    #[schema(value_type = Option<Object>)]
    pub rayllm_metadata: Option<Value>,
    /// What RayLLM returned, if `compat.rayllm` is on.
    #[schema(value_type = Option<Value>)]
    pub permission: Option<Value>,
}

/// The numbers of a model by llama.cpp's names.
#[derive(ToSchema)]
pub struct ModelMeta {
    /// The tokens of the longest sequence.
    #[schema(examples(512))]
    pub n_ctx: Option<u64>,
    /// The same, as the model was trained.
    #[schema(examples(512))]
    pub n_ctx_train: Option<u64>,
}

/// The process answers.
#[derive(ToSchema)]
pub struct Health {
    /// `ok`.
    #[schema(examples("ok"))]
    pub status: String,
}

/// Whether requests are served.
#[derive(ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// Why not. Null if the service is ready.
    pub reason: Option<String>,
    /// What keeps single models from being served as their files say, and what cannot be stored although the rest can.
    pub details: Vec<String>,
}
