//! The response object of OpenAI's Responses API.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// A response.
#[derive(ToSchema)]
pub struct ResponseObject {
    #[schema(examples("resp_0198f6"))]
    pub id: String,
    /// `response`.
    #[schema(examples("response"))]
    pub object: String,
    /// Unix time in seconds.
    pub created_at: i64,
    /// `completed`, `incomplete`, `failed`, `cancelled`, or before the end `queued` or `in_progress`.
    #[schema(examples("completed"))]
    pub status: String,
    /// The model's name.
    pub model: String,
    pub output: Vec<OutputItem>,
    pub usage: Option<ResponseUsage>,
    /// The error of a failed response.
    pub error: Option<ResponseFailure>,
    pub incomplete_details: Option<IncompleteDetails>,
    /// Repeated from the request.
    pub instructions: Option<String>,
    /// Repeated from the request.
    pub max_output_tokens: Option<u32>,
    /// Repeated from the request.
    pub metadata: Option<BTreeMap<String, String>>,
    pub parallel_tool_calls: Option<bool>,
    pub previous_response_id: Option<String>,
    /// The conversation of the request.
    #[schema(value_type = Option<Object>)]
    pub conversation: Option<Value>,
    pub background: Option<bool>,
    pub store: Option<bool>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_logprobs: Option<u32>,
    pub service_tier: Option<String>,
    pub truncation: Option<String>,
    pub user: Option<String>,
    pub safety_identifier: Option<String>,
    pub prompt_cache_key: Option<String>,
    /// Repeated from the request.
    #[schema(value_type = Option<Object>)]
    pub text: Option<Value>,
    /// Repeated from the request.
    #[schema(value_type = Option<Object>)]
    pub reasoning: Option<Value>,
    /// Repeated from the request.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// Repeated from the request.
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<Value>,
}

/// An output item. Its fields depend on `type`.
#[derive(ToSchema)]
pub struct OutputItem {
    /// `message`, `function_call`, `custom_tool_call` or `reasoning`.
    #[schema(examples("message"))]
    pub r#type: String,
    pub id: Option<String>,
    /// `in_progress`, `completed` or `incomplete`.
    #[schema(examples("completed"))]
    pub status: Option<String>,
    /// Messages: `assistant`.
    #[schema(examples("assistant"))]
    pub role: Option<String>,
    /// Messages: the content parts.
    pub content: Option<Vec<OutputPart>>,
    /// Calls: id that the item with the result repeats.
    pub call_id: Option<String>,
    /// Calls: name of the function.
    pub name: Option<String>,
    /// Calls: namespace of the tool.
    pub namespace: Option<String>,
    /// Function calls: a JSON object as a string. Models may produce invalid JSON, so validate it.
    pub arguments: Option<String>,
    /// Custom tool calls: the input.
    pub input: Option<String>,
    /// Reasoning: the summary.
    #[schema(value_type = Option<Vec<Object>>)]
    pub summary: Option<Vec<Value>>,
    /// Reasoning: encrypted content, to be sent back unchanged.
    pub encrypted_content: Option<String>,
}

/// A part of a message.
#[derive(ToSchema)]
pub struct OutputPart {
    /// `output_text`, or for reasoning `reasoning_text` or `summary_text`.
    #[schema(examples("output_text"))]
    pub r#type: String,
    pub text: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub annotations: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub logprobs: Option<Vec<Value>>,
}

#[derive(ToSchema)]
pub struct ResponseFailure {
    /// The error type, such as `server_error`.
    #[schema(examples("server_error"))]
    pub code: Option<String>,
    /// The error and its remedy.
    pub message: String,
}

#[derive(ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens` or `content_filter`.
    #[schema(examples("max_output_tokens"))]
    pub reason: Option<String>,
}

/// Token usage of a request.
#[derive(ToSchema)]
pub struct ResponseUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub total_tokens: u64,
    /// Breakdown of the prompt tokens, such as `cached_tokens`.
    #[schema(value_type = Option<Object>)]
    pub input_tokens_details: Option<BTreeMap<String, u64>>,
    /// Breakdown of the response's tokens, such as `reasoning_tokens`.
    #[schema(value_type = Option<Object>)]
    pub output_tokens_details: Option<BTreeMap<String, u64>>,
}
