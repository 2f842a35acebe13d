//! The requests of Ollama's API (`compat.ollama`); docs/ollama.md says what becomes of each field.

use serde_json::Value;
use utoipa::ToSchema;

/// A conversation, in Ollama's form. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct OllamaChatRequest {
    /// A name of `GET /api/tags`, with or without `:latest`.
    pub model: String,
    /// The conversation so far. Without messages the model is loaded.
    pub messages: Option<Vec<OllamaMessage>>,
    /// Functions that the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    #[serde(flatten)]
    pub common: OllamaCommonFields,
}

/// A prompt, in Ollama's form. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct OllamaGenerateRequest {
    /// A name of `GET /api/tags`, with or without `:latest`.
    pub model: String,
    /// Without a prompt the model is loaded.
    pub prompt: Option<String>,
    /// The text after the one that is wanted.
    pub suffix: Option<String>,
    pub system: Option<String>,
    /// Pictures in base64.
    pub images: Option<Vec<String>>,
    /// Send the prompt to the model as it is.
    pub raw: Option<bool>,
    #[serde(flatten)]
    pub common: OllamaCommonFields,
}

/// What both have.
#[derive(ToSchema)]
pub struct OllamaCommonFields {
    /// Lines of JSON, or one object. The default is true.
    pub stream: Option<bool>,
    /// `"json"` or a JSON schema.
    #[schema(value_type = Option<OllamaFormat>)]
    pub format: Option<Value>,
    /// `temperature`, `top_p`, `num_predict` and so on. What the engine does not have is named in
    /// `x-model-pool-ignored`.
    #[schema(value_type = Option<Object>)]
    pub options: Option<Value>,
    /// Seconds, or a time such as `5m`; a negative one means always. 0 without a prompt unloads the model.
    #[schema(value_type = Option<OllamaDuration>)]
    pub keep_alive: Option<Value>,
    /// Whether the model thinks, or how much: `low`, `medium` or `high`.
    #[schema(value_type = Option<OllamaThink>)]
    pub think: Option<Value>,
    pub logprobs: Option<bool>,
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u32>,
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaFormat {
    Name(String),
    #[schema(value_type = Object)]
    Schema(Value),
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaDuration {
    Seconds(f64),
    Text(String),
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaThink {
    Switch(bool),
    Level(String),
}

/// One turn.
#[derive(ToSchema)]
pub struct OllamaMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    pub content: Option<String>,
    /// Pictures in base64.
    pub images: Option<Vec<String>>,
    /// Calls of tools, with objects for arguments.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Option<Vec<Value>>,
    /// The tool whose result this is.
    pub tool_name: Option<String>,
    pub tool_call_id: Option<String>,
}

/// Texts that become vectors of the length 1.
#[derive(ToSchema)]
pub struct OllamaEmbedRequest {
    pub model: String,
    /// Without an input the model is loaded.
    #[schema(value_type = Option<OllamaInput>)]
    pub input: Option<Value>,
    #[schema(minimum = 1)]
    pub dimensions: Option<u32>,
    #[schema(value_type = Option<OllamaDuration>)]
    pub keep_alive: Option<Value>,
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaInput {
    Text(String),
    Texts(Vec<String>),
}

/// A text that becomes a vector.
#[derive(ToSchema)]
pub struct OllamaEmbeddingsRequest {
    pub model: String,
    pub prompt: Option<String>,
    #[schema(value_type = Option<OllamaDuration>)]
    pub keep_alive: Option<Value>,
}

/// One model.
#[derive(ToSchema)]
pub struct OllamaModelRequest {
    /// A name of `GET /api/tags`, with or without `:latest`.
    pub model: String,
}

/// A registered model that would be pulled.
#[derive(ToSchema)]
pub struct OllamaPullRequest {
    pub model: String,
    /// Lines of JSON, or one object. The default is true.
    pub stream: Option<bool>,
}
