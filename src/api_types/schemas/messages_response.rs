//! Responses of Anthropic's Messages API: messages, events and errors.

use serde_json::Value;
use utoipa::ToSchema;

/// A response.
#[derive(ToSchema)]
pub struct Message {
    #[schema(examples("msg_0198f6"))]
    pub id: String,
    /// `message`.
    #[schema(examples("message"))]
    pub r#type: String,
    /// `assistant`.
    #[schema(examples("assistant"))]
    pub role: String,
    /// The model's name.
    pub model: String,
    pub content: Vec<OutputBlock>,
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use` or `refusal`. Null until the response ends.
    #[schema(examples("end_turn"))]
    pub stop_reason: Option<String>,
    /// The stop sequence that ended the response, if the engine reports it.
    pub stop_sequence: Option<String>,
    /// Always null: engines give no details of a refusal.
    #[schema(value_type = Option<Object>)]
    pub stop_details: Option<Value>,
    /// Always null: containers are not available.
    #[schema(value_type = Option<Object>)]
    pub container: Option<Value>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub diagnostics: Option<Value>,
    pub usage: Option<MessageUsage>,
}

/// A content block of a response.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputBlock {
    #[schema(title = "OutputTextBlock")]
    Text {
        text: String,
        #[schema(value_type = Option<Vec<Object>>)]
        citations: Option<Vec<Value>>,
    },
    /// A tool that the model uses.
    #[schema(title = "OutputToolUseBlock")]
    ToolUse {
        /// Id that the `tool_result` block repeats.
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
        /// `direct`, the model.
        #[schema(value_type = Object)]
        caller: Value,
    },
    /// The model's thinking.
    #[schema(title = "OutputThinkingBlock")]
    Thinking {
        thinking: String,
        signature: Option<String>,
    },
    /// The model's thinking, encrypted.
    #[schema(title = "OutputRedactedThinkingBlock")]
    RedactedThinking { data: String },
}

/// Token usage of a request.
#[derive(ToSchema)]
pub struct MessageUsage {
    /// Prompt tokens that were not cached.
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cache_creation_input_tokens: Option<u64>,
    /// Prompt tokens that were cached.
    pub cache_read_input_tokens: Option<u64>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub cache_creation: Option<Value>,
    /// Reasoning tokens as `thinking_tokens`, if the engine counts them.
    #[schema(value_type = Option<Object>)]
    pub output_tokens_details: Option<Value>,
    /// Always null: server-side tools are not available.
    #[schema(value_type = Option<Object>)]
    pub server_tool_use: Option<Value>,
    /// Always null.
    pub inference_geo: Option<String>,
    /// `standard`.
    pub service_tier: Option<String>,
    /// `standard`.
    pub speed: Option<String>,
}

/// The `data` of an event; its `type` is the name of the event. The order is `message_start`; for each block `content_block_start`,
/// `content_block_delta` and `content_block_stop`; then `message_delta` and `message_stop`. `ping` may occur at any time. `error`
/// ends the stream.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    #[schema(title = "MessageStart")]
    MessageStart { message: Message },
    #[schema(title = "Ping")]
    Ping {},
    #[schema(title = "ContentBlockStart")]
    ContentBlockStart {
        index: u32,
        content_block: OutputBlock,
    },
    #[schema(title = "ContentBlockDelta")]
    ContentBlockDelta { index: u32, delta: BlockDelta },
    #[schema(title = "ContentBlockStop")]
    ContentBlockStop { index: u32 },
    #[schema(title = "MessageDelta")]
    MessageDelta {
        delta: MessageEnd,
        usage: Option<MessageUsage>,
    },
    #[schema(title = "MessageStop")]
    MessageStop {},
    #[schema(title = "ErrorEvent")]
    Error {
        error: MessageErrorObject,
        request_id: Option<String>,
    },
}

/// The content that an event adds to a block.
#[derive(ToSchema)]
#[serde(tag = "type")]
pub enum BlockDelta {
    #[schema(title = "TextDelta")]
    #[serde(rename = "text_delta")]
    Text { text: String },
    /// The next part of a tool's input, as a string.
    #[schema(title = "InputJsonDelta")]
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[schema(title = "ThinkingDelta")]
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[schema(title = "SignatureDelta")]
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
}

/// The end of the response.
#[derive(ToSchema)]
pub struct MessageEnd {
    pub stop_reason: Option<String>,
    pub stop_sequence: Option<String>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub stop_details: Option<Value>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub container: Option<Value>,
}

/// An error in Anthropic's form.
#[derive(ToSchema)]
pub struct MessageError {
    /// `error`.
    #[schema(examples("error"))]
    pub r#type: String,
    pub error: MessageErrorObject,
    #[schema(examples("req-1"))]
    pub request_id: Option<String>,
}

#[derive(ToSchema)]
pub struct MessageErrorObject {
    /// The error type, such as `invalid_request_error` or `overloaded_error`.
    #[schema(examples("invalid_request_error"))]
    pub r#type: String,
    /// The error and its remedy.
    pub message: String,
    #[schema(value_type = Option<Object>)]
    pub details: Option<Value>,
}
