//! The events of a streamed response.

use serde_json::Value;
use utoipa::ToSchema;

use super::responses_response::{OutputItem, OutputPart, ResponseObject};

/// The `data` of an event; its `type` is the name of the event. The fields depend on `type`.
///
/// The order is `response.created`, `response.in_progress`; for each item `response.output_item.added`, the events of the item and
/// `response.output_item.done`; and finally `response.completed`, `response.incomplete` or `response.failed`. Text has the events
/// `response.content_part.added`, `response.output_text.delta`, `response.output_text.done` and `response.content_part.done`.
/// Function calls have `response.function_call_arguments.delta` and `response.function_call_arguments.done`. Custom tool calls have
/// `response.custom_tool_call_input.delta` and `response.custom_tool_call_input.done`. Reasoning has
/// `response.reasoning_text.delta` and `response.reasoning_text.done`. Reasoning summaries have
/// `response.reasoning_summary_part.added`, `response.reasoning_summary_text.delta`, `response.reasoning_summary_text.done` and
/// `response.reasoning_summary_part.done`.
#[derive(ToSchema)]
pub struct ResponseEvent {
    #[schema(examples("response.output_text.delta"))]
    pub r#type: String,
    /// Sequence number of the event, from 0.
    pub sequence_number: u64,
    /// The current response object, in `response.created`, `response.in_progress` and the final event.
    pub response: Option<ResponseObject>,
    /// Index of the item in `output`.
    pub output_index: Option<u32>,
    pub item_id: Option<String>,
    /// In `response.output_item.added` and `.done`.
    pub item: Option<OutputItem>,
    /// Index of the part in its item.
    pub content_index: Option<u32>,
    /// Index of the part in the item's summary.
    pub summary_index: Option<u32>,
    /// In the events of parts, `.added` and `.done`.
    pub part: Option<OutputPart>,
    /// The next part of a text or of a call's arguments.
    pub delta: Option<String>,
    /// The complete text, in `response.output_text.done`.
    pub text: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub logprobs: Option<Vec<Value>>,
    /// Name of the function, in `response.function_call_arguments.done`.
    pub name: Option<String>,
    /// The complete arguments, in `response.function_call_arguments.done`.
    pub arguments: Option<String>,
    /// The complete input, in `response.custom_tool_call_input.done`.
    pub input: Option<String>,
}
