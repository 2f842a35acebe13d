//! llama.cpp's own requests and responses.

use serde_json::Value;
use utoipa::ToSchema;

/// A text with a gap, or a text to continue, in llama.cpp's form.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct InfillRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The text before the gap.
    pub input_prefix: Option<String>,
    /// The text after the gap.
    pub input_suffix: Option<String>,
    /// Other files, each with `filename` and `text`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub input_extra: Option<Vec<Value>>,
    /// The text to continue: a string, tokens, or a list of either.
    #[schema(value_type = Option<Value>)]
    pub prompt: Option<Value>,
    /// Maximum number of tokens in the response.
    pub n_predict: Option<i64>,
    /// Stream the response as server-sent events.
    pub stream: Option<bool>,
    /// Stop sequences.
    pub stop: Option<Vec<String>>,
    /// Sampling temperature. 0 always selects the likeliest token; higher values are more random.
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub seed: Option<i64>,
    /// Cache the prompt for the next request.
    pub cache_prompt: Option<bool>,
    /// The samplers, in their order.
    pub samplers: Option<Vec<String>>,
    /// Minimum indentation of the response's lines.
    pub n_indent: Option<u64>,
    /// Maximum time for the prompt in milliseconds.
    pub t_max_prompt_ms: Option<u64>,
    /// Maximum time for the response in milliseconds.
    pub t_max_predict_ms: Option<u64>,
}

/// A response in llama.cpp's form. Engines return more fields.
#[derive(ToSchema)]
pub struct LlamaCompletion {
    pub content: String,
    /// The response is complete.
    pub stop: Option<bool>,
    pub tokens_predicted: Option<u64>,
    pub tokens_evaluated: Option<u64>,
}

/// The properties of a model.
#[derive(ToSchema)]
pub struct ModelProperties {
    pub default_generation_settings: GenerationSettings,
    /// Number of requests that a replica serves simultaneously.
    pub total_slots: u32,
    pub model_alias: String,
    pub modalities: Modalities,
    /// `model-pool` and its version.
    pub build_info: String,
}

#[derive(ToSchema)]
pub struct GenerationSettings {
    /// Maximum sequence length in tokens. Null if neither the model's file nor its weights specify it.
    pub n_ctx: Option<u64>,
}

/// Inputs that the model reads in addition to text, from the label `capabilities` of its file.
#[derive(ToSchema)]
pub struct Modalities {
    pub vision: bool,
    pub audio: bool,
}

/// The voices of a model, as its engine lists them.
#[derive(ToSchema)]
pub struct Voices {
    #[schema(value_type = Vec<Value>)]
    pub voices: Vec<Value>,
}
