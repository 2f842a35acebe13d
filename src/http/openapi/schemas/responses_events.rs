//! The events of a streamed response.

use serde_json::Value;
use utoipa::ToSchema;

use super::responses_answer::{OutputItem, OutputPart, ResponseObject};

/// The `data` of one event; its `type` is the name of the event. Which fields it has depends on `type`.
///
/// The order is `response.created`, `response.in_progress`, for each item `response.output_item.added`, the events of the
/// item and `response.output_item.done`, and last `response.completed`, `response.incomplete` or `response.failed`. The
/// events of a text are `response.content_part.added`, `response.output_text.delta`, `response.output_text.done` and
/// `response.content_part.done`. Those of a call are `response.function_call_arguments.delta` and
/// `response.function_call_arguments.done`, or for a custom tool `response.custom_tool_call_input.delta` and
/// `response.custom_tool_call_input.done`. Those of reasoning are `response.reasoning_text.delta` and
/// `response.reasoning_text.done`, or for its summary `response.reasoning_summary_part.added`,
/// `response.reasoning_summary_text.delta`, `response.reasoning_summary_text.done` and
/// `response.reasoning_summary_part.done`.
#[derive(ToSchema)]
pub struct ResponseEvent {
    #[schema(examples("response.output_text.delta"))]
    pub r#type: String,
    /// Counts the events from 0.
    pub sequence_number: u64,
    /// The answer as it stands, in events of the whole response.
    pub response: Option<ResponseObject>,
    /// The item's place in `output`.
    pub output_index: Option<u32>,
    pub item_id: Option<String>,
    /// In `response.output_item.added` and `.done`.
    pub item: Option<OutputItem>,
    /// The part's place in its item.
    pub content_index: Option<u32>,
    /// The part's place in the summary of its item.
    pub summary_index: Option<u32>,
    /// In the events of parts, `.added` and `.done`.
    pub part: Option<OutputPart>,
    /// The next part of a text or of a call's arguments.
    pub delta: Option<String>,
    /// The whole text, in `response.output_text.done`.
    pub text: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub logprobs: Option<Vec<Value>>,
    /// The function, in `response.function_call_arguments.done`.
    pub name: Option<String>,
    /// All arguments, in `response.function_call_arguments.done`.
    pub arguments: Option<String>,
    /// The whole input, in `response.custom_tool_call_input.done`.
    pub input: Option<String>,
}
