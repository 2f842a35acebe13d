//! The request of a chat completion.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::chat_messages::ChatMessage;
use super::chat_tools::{ChatTool, ChatToolChoice, LegacyFunction, LegacyFunctionChoice};
use super::engine_fields::EngineFields;
use super::generation::GenerationFields;
use super::messages::Thinking;

/// A chat completion request.
///
/// The fields up to `seed` are OpenAI's. The others are extensions that depend on the model's engine. An engine may accept fields
/// that are not listed here. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct ChatCompletionRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The conversation so far, oldest message first.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatMessage>,
    /// Maximum number of tokens in the response. By default the response may fill the model's context.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<u64>,
    /// The functions that the model may call. The client runs them and sends the results in `tool` messages.
    #[schema(max_items = 128)]
    pub tools: Option<Vec<ChatTool>>,
    pub tool_choice: Option<ChatToolChoice>,
    /// Allow several function calls in one response. The default is true.
    pub parallel_tool_calls: Option<bool>,
    /// Return the log probability of each token.
    pub logprobs: Option<bool>,
    /// Return the log probabilities of this many likeliest tokens at each position. Needs `logprobs: true`.
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u64>,
    /// Reasoning options, in a form that other services use.
    pub reasoning: Option<ChatReasoning>,
    /// Reasoning options, in the form of Anthropic's Messages API.
    pub thinking: Option<Thinking>,
    /// Turns reasoning on or off.
    pub enable_thinking: Option<bool>,
    /// Maximum number of reasoning tokens.
    #[schema(minimum = 1)]
    pub thinking_budget: Option<u64>,
    /// Length of the response, for models with levels: `low`, `medium` or `high`.
    #[schema(examples("medium"))]
    pub verbosity: Option<String>,
    /// Output types: `text`, and `audio` for models that speak.
    #[schema(examples(json!(["text"])))]
    pub modalities: Option<Vec<String>>,
    /// The voice and format of spoken output, for models that speak.
    #[schema(value_type = Option<Object>)]
    pub audio: Option<BTreeMap<String, String>>,
    /// Text that the response probably contains. A hint.
    #[schema(value_type = Option<Object>)]
    pub prediction: Option<BTreeMap<String, String>>,
    /// Options of OpenAI's web search. Only a `RemoteEngine` may support it.
    #[schema(value_type = Option<Object>)]
    pub web_search_options: Option<BTreeMap<String, String>>,
    /// Older form of `tools`.
    #[deprecated]
    pub functions: Option<Vec<LegacyFunction>>,
    /// Older form of `tool_choice`.
    #[deprecated]
    pub function_call: Option<LegacyFunctionChoice>,
    #[serde(flatten)]
    pub generation: GenerationFields,
    #[serde(flatten)]
    pub engine: EngineFields,
}

/// Reasoning options. Options that the model's engine does not support are listed in the header `x-model-pool-ignored`.
#[derive(ToSchema)]
pub struct ChatReasoning {
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`.
    #[schema(examples("low"))]
    pub effort: Option<String>,
    /// Maximum number of reasoning tokens.
    #[schema(minimum = 1)]
    pub max_tokens: Option<u64>,
    pub enabled: Option<bool>,
    /// No effect: reasoning is always returned in a separate field.
    pub exclude: Option<bool>,
    pub summary: Option<String>,
}
