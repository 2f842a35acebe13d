//! The answer of a chat completion, complete or in pieces.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_messages::{CalledFunction, ChatToolCall};

/// An answer to a conversation.
#[derive(ToSchema)]
pub struct ChatCompletion {
    #[schema(examples("chatcmpl-9f1c"))]
    pub id: String,
    /// `chat.completion`.
    #[schema(examples("chat.completion"))]
    pub object: String,
    /// Seconds since 1970.
    pub created: i64,
    /// The model's name.
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Option<Usage>,
    pub system_fingerprint: Option<String>,
    pub service_tier: Option<String>,
}

/// One of the `n` answers.
#[derive(ToSchema)]
pub struct ChatChoice {
    pub index: u32,
    pub message: ChatAnswerMessage,
    /// `stop`: the model ended or met a stop text. `length`: the limit or the context is full. `tool_calls`: the model
    /// calls functions. `content_filter`: the engine withheld the rest.
    #[schema(examples("stop"))]
    pub finish_reason: Option<String>,
    pub logprobs: Option<ChatLogprobs>,
    /// The stop text or token that ended the answer, where the engine reports it.
    #[schema(value_type = Option<Value>)]
    pub stop_reason: Option<Value>,
}

/// What the model says.
#[derive(ToSchema)]
pub struct ChatAnswerMessage {
    /// `assistant`.
    #[schema(examples("assistant"))]
    pub role: String,
    /// The text. Null if the model only calls functions.
    pub content: Option<String>,
    /// Why the model refused, if it did.
    pub refusal: Option<String>,
    /// The functions that the model calls.
    pub tool_calls: Option<Vec<ChatToolCall>>,
    /// What the model reasoned before it answered, where the engine separates it.
    pub reasoning_content: Option<String>,
    /// The same under the name that some engines use.
    pub reasoning: Option<String>,
    /// The older form of `tool_calls`.
    #[deprecated]
    pub function_call: Option<CalledFunction>,
}

/// One piece of an answer. Each event of the stream has one as its `data`. The stream ends with `data: [DONE]`, or with
/// an event whose `data` is an error object.
#[derive(ToSchema)]
pub struct ChatCompletionChunk {
    #[schema(examples("chatcmpl-9f1c"))]
    pub id: String,
    /// `chat.completion.chunk`.
    #[schema(examples("chat.completion.chunk"))]
    pub object: String,
    /// Seconds since 1970.
    pub created: i64,
    /// The model's name.
    pub model: String,
    /// Empty in the piece that has the usage.
    pub choices: Vec<ChatChunkChoice>,
    /// In the last piece, if `stream_options.include_usage` is true.
    pub usage: Option<Usage>,
    pub system_fingerprint: Option<String>,
    pub service_tier: Option<String>,
}

/// A piece of one of the answers.
#[derive(ToSchema)]
pub struct ChatChunkChoice {
    pub index: u32,
    pub delta: ChatDelta,
    /// Null until the answer ends.
    pub finish_reason: Option<String>,
    pub logprobs: Option<ChatLogprobs>,
    /// The stop text or token that ended the answer, where the engine reports it.
    #[schema(value_type = Option<Value>)]
    pub stop_reason: Option<Value>,
}

/// What this piece adds.
#[derive(ToSchema)]
pub struct ChatDelta {
    /// In the first piece.
    pub role: Option<String>,
    pub content: Option<String>,
    pub refusal: Option<String>,
    pub tool_calls: Option<Vec<ChatToolCallDelta>>,
    /// What the model reasons before it answers, where the engine separates it.
    pub reasoning_content: Option<String>,
    /// The same under the name that some engines use.
    pub reasoning: Option<String>,
}

/// A piece of a call: the first one has its id and name, all of them parts of the arguments.
#[derive(ToSchema)]
pub struct ChatToolCallDelta {
    /// Which call of the answer the piece belongs to.
    pub index: u32,
    pub id: Option<String>,
    #[schema(value_type = Option<String>)]
    pub r#type: Option<String>,
    pub function: Option<CalledFunctionDelta>,
    pub custom: Option<CalledCustomToolDelta>,
}

#[derive(ToSchema)]
pub struct CalledCustomToolDelta {
    pub name: Option<String>,
    /// The next part of the input.
    pub input: Option<String>,
}

#[derive(ToSchema)]
pub struct CalledFunctionDelta {
    pub name: Option<String>,
    /// The next part of the arguments' text.
    pub arguments: Option<String>,
}

/// Log probabilities of the answer's tokens.
#[derive(ToSchema)]
pub struct ChatLogprobs {
    pub content: Option<Vec<TokenLogprob>>,
    pub refusal: Option<Vec<TokenLogprob>>,
}

#[derive(ToSchema)]
pub struct TokenLogprob {
    pub token: String,
    pub logprob: f64,
    /// The token's bytes; a token may be a part of a character.
    pub bytes: Option<Vec<u8>>,
    /// The likeliest tokens at this position.
    pub top_logprobs: Option<Vec<TopLogprob>>,
}

#[derive(ToSchema)]
pub struct TopLogprob {
    pub token: String,
    pub logprob: f64,
    pub bytes: Option<Vec<u8>>,
}

/// The tokens of a request and its answer.
#[derive(ToSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    /// Missing where nothing is generated.
    pub completion_tokens: Option<u64>,
    pub total_tokens: u64,
    /// What the prompt's tokens consist of, such as `cached_tokens`.
    #[schema(value_type = Option<Object>)]
    pub prompt_tokens_details: Option<BTreeMap<String, u64>>,
    /// What the answer's tokens consist of, such as `reasoning_tokens`.
    #[schema(value_type = Option<Object>)]
    pub completion_tokens_details: Option<BTreeMap<String, u64>>,
}
