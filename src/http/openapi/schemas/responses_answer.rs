//! The answer of OpenAI's Responses API.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// An answer.
#[derive(ToSchema)]
pub struct ResponseObject {
    #[schema(examples("resp_0198f6"))]
    pub id: String,
    /// `response`.
    #[schema(examples("response"))]
    pub object: String,
    /// Seconds since 1970.
    pub created_at: i64,
    /// `completed`, `incomplete`, `failed`, or in an event `in_progress`.
    #[schema(examples("completed"))]
    pub status: String,
    /// The model's name.
    pub model: String,
    pub output: Vec<OutputItem>,
    pub usage: Option<ResponseUsage>,
    /// Why the answer failed.
    pub error: Option<ResponseFailure>,
    pub incomplete_details: Option<IncompleteDetails>,
    /// As the request had it.
    pub instructions: Option<String>,
    /// As the request had it.
    pub max_output_tokens: Option<u32>,
    /// As the request had it.
    pub metadata: Option<BTreeMap<String, String>>,
    pub parallel_tool_calls: Option<bool>,
    pub previous_response_id: Option<String>,
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
    /// As the request had it.
    #[schema(value_type = Option<Object>)]
    pub text: Option<Value>,
    /// As the request had it.
    #[schema(value_type = Option<Object>)]
    pub reasoning: Option<Value>,
    /// As the request had it.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// As the request had it.
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<Value>,
}

/// One item of an answer. Which fields it has depends on `type`.
#[derive(ToSchema)]
pub struct OutputItem {
    /// `message`, `function_call`, `custom_tool_call` or `reasoning`.
    #[schema(examples("message"))]
    pub r#type: String,
    pub id: Option<String>,
    /// `in_progress`, `completed` or `incomplete`.
    #[schema(examples("completed"))]
    pub status: Option<String>,
    /// Of a message: `assistant`.
    #[schema(examples("assistant"))]
    pub role: Option<String>,
    /// Of a message: its parts.
    pub content: Option<Vec<OutputPart>>,
    /// Of a call: the item with its result repeats this id.
    pub call_id: Option<String>,
    /// Of a call: the function.
    pub name: Option<String>,
    /// Of a call: the namespace of its tool.
    pub namespace: Option<String>,
    /// Of a call of a function: a JSON object as text. A model may write invalid JSON: check it.
    pub arguments: Option<String>,
    /// Of a call of a custom tool: its input.
    pub input: Option<String>,
    /// Of reasoning: its summary.
    #[schema(value_type = Option<Vec<Object>>)]
    pub summary: Option<Vec<Value>>,
    /// Of reasoning: send it back unchanged.
    pub encrypted_content: Option<String>,
}

/// One part of a message.
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
    /// The kind of error, such as `server_error`.
    #[schema(examples("server_error"))]
    pub code: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

#[derive(ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens` or `content_filter`.
    #[schema(examples("max_output_tokens"))]
    pub reason: Option<String>,
}

/// The tokens of a request and its answer.
#[derive(ToSchema)]
pub struct ResponseUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub total_tokens: u64,
    /// What the prompt's tokens consist of, such as `cached_tokens`.
    #[schema(value_type = Option<Object>)]
    pub input_tokens_details: Option<BTreeMap<String, u64>>,
    /// What the answer's tokens consist of, such as `reasoning_tokens`.
    #[schema(value_type = Option<Object>)]
    pub output_tokens_details: Option<BTreeMap<String, u64>>,
}
