//! The response of a chat completion, complete or streamed.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_messages::{CalledFunction, ChatToolCall};

/// A chat completion.
#[derive(ToSchema)]
pub struct ChatCompletion {
    #[schema(examples("chatcmpl-9f1c"))]
    pub id: String,
    /// `chat.completion`.
    #[schema(examples("chat.completion"))]
    pub object: String,
    /// Unix time in seconds.
    pub created: i64,
    /// The model's name.
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Option<Usage>,
    pub system_fingerprint: Option<String>,
    pub service_tier: Option<String>,
}

/// A choice, one per value of `n`.
#[derive(ToSchema)]
pub struct ChatChoice {
    pub index: u32,
    pub message: ChatAnswerMessage,
    /// `stop`: the model finished or produced a stop sequence. `length`: the token limit or the context is exhausted. `tool_calls`:
    /// the model calls functions. `content_filter`: the engine withheld the rest.
    #[schema(examples("stop"))]
    pub finish_reason: Option<String>,
    pub logprobs: Option<ChatLogprobs>,
    /// The stop sequence or token that ended the response, if the engine reports it.
    #[schema(value_type = Option<Value>)]
    pub stop_reason: Option<Value>,
}

/// The model's message.
#[derive(ToSchema)]
pub struct ChatAnswerMessage {
    /// `assistant`.
    #[schema(examples("assistant"))]
    pub role: String,
    /// The text. Null if the model only calls functions.
    pub content: Option<String>,
    /// The model's refusal, if any.
    pub refusal: Option<String>,
    /// The functions that the model calls.
    pub tool_calls: Option<Vec<ChatToolCall>>,
    /// The model's reasoning, if the engine separates it from the text.
    pub reasoning_content: Option<String>,
    /// Same as `reasoning_content`, under the name that some engines use.
    pub reasoning: Option<String>,
    /// Older form of `tool_calls`.
    #[deprecated]
    pub function_call: Option<CalledFunction>,
}

/// A chunk of a streamed response, sent as the `data` of an event. The stream ends with `data: [DONE]`, or with an event whose
/// `data` is an error object.
#[derive(ToSchema)]
pub struct ChatCompletionChunk {
    #[schema(examples("chatcmpl-9f1c"))]
    pub id: String,
    /// `chat.completion.chunk`.
    #[schema(examples("chat.completion.chunk"))]
    pub object: String,
    /// Unix time in seconds.
    pub created: i64,
    /// The model's name.
    pub model: String,
    /// Empty in the chunk with the usage.
    pub choices: Vec<ChatChunkChoice>,
    /// In the last chunk, if `stream_options.include_usage` is true.
    pub usage: Option<Usage>,
    pub system_fingerprint: Option<String>,
    pub service_tier: Option<String>,
}

/// A part of one choice.
#[derive(ToSchema)]
pub struct ChatChunkChoice {
    pub index: u32,
    pub delta: ChatDelta,
    /// Null until the response ends.
    pub finish_reason: Option<String>,
    pub logprobs: Option<ChatLogprobs>,
    /// The stop sequence or token that ended the response, if the engine reports it.
    #[schema(value_type = Option<Value>)]
    pub stop_reason: Option<Value>,
}

/// The content that this chunk adds.
#[derive(ToSchema)]
pub struct ChatDelta {
    /// In the first chunk.
    pub role: Option<String>,
    pub content: Option<String>,
    pub refusal: Option<String>,
    pub tool_calls: Option<Vec<ChatToolCallDelta>>,
    /// The model's reasoning, if the engine separates it from the text.
    pub reasoning_content: Option<String>,
    /// Same as `reasoning_content`, under the name that some engines use.
    pub reasoning: Option<String>,
}

/// A part of a call. The first part has its id and name, and each part continues the arguments.
#[derive(ToSchema)]
pub struct ChatToolCallDelta {
    /// Index of the call in the response.
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

/// Log probabilities of the response's tokens.
#[derive(ToSchema)]
pub struct ChatLogprobs {
    pub content: Option<Vec<TokenLogprob>>,
    pub refusal: Option<Vec<TokenLogprob>>,
}

#[derive(ToSchema)]
pub struct TokenLogprob {
    pub token: String,
    pub logprob: f64,
    /// Bytes of the token, which may be part of a character.
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

/// Token usage of a request.
#[derive(ToSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    /// Missing if nothing is generated.
    pub completion_tokens: Option<u64>,
    pub total_tokens: u64,
    /// Breakdown of the prompt tokens, such as `cached_tokens`.
    #[schema(value_type = Option<Object>)]
    pub prompt_tokens_details: Option<BTreeMap<String, u64>>,
    /// Breakdown of the response's tokens, such as `reasoning_tokens`.
    #[schema(value_type = Option<Object>)]
    pub completion_tokens_details: Option<BTreeMap<String, u64>>,
}
