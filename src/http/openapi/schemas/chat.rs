//! The request of a chat completion.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::chat_messages::ChatMessage;
use super::chat_tools::{ChatTool, ChatToolChoice, LegacyFunction, LegacyFunctionChoice};
use super::engine_fields::EngineFields;
use super::generation::GenerationFields;
use super::messages::Thinking;

/// A conversation that the model continues.
///
/// The fields up to `seed` are OpenAI's. The others are extensions of engines: a request may use those that the engine
/// of its model has. An engine may accept fields that are not listed here. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct ChatCompletionRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The conversation so far, oldest message first.
    #[schema(min_items = 1)]
    pub messages: Vec<ChatMessage>,
    /// The most tokens that the answer may have. Without it, the answer may fill the model's context.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<u64>,
    /// The functions that the model may call. The client runs them and sends the results in `tool` messages.
    #[schema(max_items = 128)]
    pub tools: Option<Vec<ChatTool>>,
    pub tool_choice: Option<ChatToolChoice>,
    /// Whether one answer may call several functions. The default is true.
    pub parallel_tool_calls: Option<bool>,
    /// Return the log probability of each token.
    pub logprobs: Option<bool>,
    /// Return the log probabilities of this many likeliest tokens at each position. Needs `logprobs: true`.
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u64>,
    /// How the model reasons before it answers, in the form that some services have.
    pub reasoning: Option<ChatReasoning>,
    /// How the model reasons before it answers, in the form of Anthropic's Messages.
    pub thinking: Option<Thinking>,
    /// Whether the model reasons before it answers.
    pub enable_thinking: Option<bool>,
    /// The most tokens of reasoning.
    #[schema(minimum = 1)]
    pub thinking_budget: Option<u64>,
    /// How long the answer should be, for models that have levels: `low`, `medium` or `high`.
    #[schema(examples("medium"))]
    pub verbosity: Option<String>,
    /// The kinds of output: `text`, and `audio` for models that speak.
    #[schema(examples(json!(["text"])))]
    pub modalities: Option<Vec<String>>,
    /// The voice and format of spoken output, for models that speak.
    #[schema(value_type = Option<Object>)]
    pub audio: Option<BTreeMap<String, String>>,
    /// Text that the answer probably contains. A hint.
    #[schema(value_type = Option<Object>)]
    pub prediction: Option<BTreeMap<String, String>>,
    /// Options of OpenAI's own search. Only a `RemoteEngine` can have one.
    #[schema(value_type = Option<Object>)]
    pub web_search_options: Option<BTreeMap<String, String>>,
    /// The older form of `tools`.
    #[deprecated]
    pub functions: Option<Vec<LegacyFunction>>,
    /// The older form of `tool_choice`.
    #[deprecated]
    pub function_call: Option<LegacyFunctionChoice>,
    #[serde(flatten)]
    pub generation: GenerationFields,
    #[serde(flatten)]
    pub engine: EngineFields,
}

/// How the model reasons before it answers. What its engine has no switch for is named in `x-model-pool-ignored`.
#[derive(ToSchema)]
pub struct ChatReasoning {
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`.
    #[schema(examples("low"))]
    pub effort: Option<String>,
    /// The most tokens of reasoning.
    #[schema(minimum = 1)]
    pub max_tokens: Option<u64>,
    pub enabled: Option<bool>,
    /// Reasoning is always returned, in a field of its own.
    pub exclude: Option<bool>,
    pub summary: Option<String>,
}
