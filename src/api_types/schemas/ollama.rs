//! Requests of Ollama's API (`compat.ollama`); docs/guides/ollama.md describes the treatment of each field.

use serde_json::Value;
use utoipa::openapi::schema::{AnyOf, ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, schema};
use utoipa::{PartialSchema, ToSchema};

use super::chat_tools::FunctionDefinition;
use super::generation::Stop;

/// A conversation, in Ollama's form. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct OllamaChatRequest {
    /// A name of `GET /api/tags`, with or without `:latest`.
    #[schema(min_length = 1)]
    pub model: String,
    /// The conversation so far. A request without messages loads the model.
    pub messages: Option<Vec<OllamaMessage>>,
    /// Functions that the model may call.
    pub tools: Option<Vec<OllamaTool>>,
    #[serde(flatten)]
    pub common: OllamaCommonFields,
}

/// A prompt, in Ollama's form. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct OllamaGenerateRequest {
    /// A name of `GET /api/tags`, with or without `:latest`.
    #[schema(min_length = 1)]
    pub model: String,
    /// The prompt. A request without a prompt loads the model.
    pub prompt: Option<String>,
    /// The text after the gap to fill.
    pub suffix: Option<String>,
    pub system: Option<String>,
    pub images: Option<Vec<OllamaImage>>,
    /// Send the prompt to the model unchanged.
    pub raw: Option<bool>,
    #[serde(flatten)]
    pub common: OllamaCommonFields,
}

/// Fields of both routes.
#[derive(ToSchema)]
pub struct OllamaCommonFields {
    /// True (the default) for JSON lines, false for a single object.
    pub stream: Option<bool>,
    /// `"json"` or a JSON schema.
    pub format: Option<OllamaFormat>,
    pub options: Option<OllamaOptions>,
    pub keep_alive: Option<OllamaDuration>,
    /// Turns thinking on or off, or sets its effort.
    pub think: Option<OllamaThink>,
    pub logprobs: Option<bool>,
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u32>,
}

/// Sampling options. Options that the engine does not support, and load options such as `num_ctx`, have no effect and are listed in
/// the header `x-model-pool-ignored`.
#[derive(ToSchema)]
pub struct OllamaOptions {
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub repeat_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f64>,
    /// Random seed. A negative value selects a new seed each time.
    pub seed: Option<i64>,
    /// Maximum number of tokens in the response; 0 or less for no limit.
    pub num_predict: Option<i64>,
    /// Stop sequences. The response ends before the first match.
    pub stop: Option<Stop>,
    /// No effect: the context size is fixed when a model is loaded.
    pub num_ctx: Option<i64>,
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaFormat {
    Word(OllamaFormatWord),
    #[schema(value_type = Object)]
    Schema(Value),
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OllamaFormatWord {
    Json,
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaThink {
    Switch(bool),
    Level(OllamaThinkLevel),
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OllamaThinkLevel {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// Seconds, or a duration such as `5m`.
pub struct OllamaDuration;

impl PartialSchema for OllamaDuration {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Number);
        let text = r"^[-+]?[0-9]+(\.[0-9]+)?((ns|us|µs|ms|s|m|h)([0-9]+(ns|us|µs|ms|s|m|h))*)?$";
        let text = text_of(text).max_length(Some(64));
        let either = AnyOf::builder().item(number).item(text);
        let note = "Seconds, or a time such as `5m`; a negative one means always. 0 without a prompt unloads the model.";
        RefOr::T(either.description(Some(note)).into())
    }
}

impl ToSchema for OllamaDuration {}

/// An image of the request.
pub struct OllamaImage;

impl PartialSchema for OllamaImage {
    fn schema() -> RefOr<Schema> {
        let text = text_of(
            "^(data:image/(png|jpeg|gif|webp);base64,|(iVBOR|/9j/|R0lG|UklGR)[A-Za-z0-9+/=]*$)",
        );
        let note = "A PNG, JPEG, GIF or WebP picture in base64, or as a `data:` URL.";
        text.description(Some(note)).into()
    }
}

impl ToSchema for OllamaImage {}

fn text_of(pattern: &str) -> ObjectBuilder {
    schema::Object::builder()
        .schema_type(Type::String)
        .pattern(Some(pattern))
}

/// A message.
#[derive(ToSchema)]
pub struct OllamaMessage {
    pub role: OllamaRole,
    pub content: Option<String>,
    pub images: Option<Vec<OllamaImage>>,
    /// The model's thinking before this message.
    pub thinking: Option<String>,
    /// Tool calls.
    pub tool_calls: Option<Vec<OllamaCall>>,
    /// Name of the tool with this result.
    pub tool_name: Option<String>,
    /// Id of the call with this result.
    pub tool_call_id: Option<String>,
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OllamaRole {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

/// A tool that the model may call.
#[derive(ToSchema)]
pub struct OllamaTool {
    /// `function`.
    #[schema(examples("function"))]
    pub r#type: Option<String>,
    pub function: FunctionDefinition,
}

/// A tool call.
#[derive(ToSchema)]
pub struct OllamaCall {
    pub id: Option<String>,
    pub function: OllamaCalledFunction,
}

#[derive(ToSchema)]
pub struct OllamaCalledFunction {
    pub name: String,
    /// An object (OpenAI's API has a string here).
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
}

/// An embeddings request. Vectors are normalized to length 1.
#[derive(ToSchema)]
pub struct OllamaEmbedRequest {
    #[schema(min_length = 1)]
    pub model: String,
    /// The input. A request without input loads the model.
    pub input: Option<OllamaInput>,
    #[schema(minimum = 1)]
    pub dimensions: Option<u32>,
    pub keep_alive: Option<OllamaDuration>,
}

#[derive(ToSchema)]
#[serde(untagged)]
pub enum OllamaInput {
    Text(String),
    Texts(Vec<String>),
}

/// An embedding request for one text.
#[derive(ToSchema)]
pub struct OllamaEmbeddingsRequest {
    #[schema(min_length = 1)]
    pub model: String,
    pub prompt: Option<String>,
    pub keep_alive: Option<OllamaDuration>,
}

/// One model.
#[derive(ToSchema)]
pub struct OllamaModelRequest {
    /// A name of `GET /api/tags`, with or without `:latest`.
    #[schema(min_length = 1)]
    pub model: String,
}

/// A registered model to pull.
#[derive(ToSchema)]
pub struct OllamaPullRequest {
    #[schema(min_length = 1)]
    pub model: String,
    /// True (the default) for JSON lines, false for a single object.
    pub stream: Option<bool>,
}
