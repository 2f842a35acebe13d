//! The items of a Responses request's `input`.

use serde_json::Value;
use utoipa::ToSchema;

/// A text of the user, or the items of a conversation.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ResponseInput {
    #[schema(title = "ResponseInputText")]
    Text(String),
    #[schema(title = "ResponseInputItems")]
    Items(Vec<InputItem>),
}

/// One item of a conversation. Which fields it has depends on `type`. An item of an answer can be sent back unchanged.
#[derive(ToSchema)]
pub struct InputItem {
    /// `message` (the default), `function_call`, `function_call_output`, `custom_tool_call`, `custom_tool_call_output`,
    /// `reasoning`, or `item_reference`: the item of a stored response that has this `id`. Items of tools that a server ran are left out.
    #[schema(examples("message"))]
    pub r#type: Option<String>,
    pub id: Option<String>,
    pub status: Option<String>,
    /// Of a message: `user`, `assistant`, `system` or `developer`.
    #[schema(examples("user"))]
    pub role: Option<String>,
    /// Of a message.
    pub content: Option<InputContent>,
    /// Of a message of the assistant: which part of an answer it was.
    pub phase: Option<String>,
    /// Of a call and its result: the id that connects them.
    pub call_id: Option<String>,
    /// Of a call: the function.
    pub name: Option<String>,
    /// Of a call: the namespace of its tool.
    pub namespace: Option<String>,
    /// Of a call of a function: a JSON object as text.
    pub arguments: Option<String>,
    /// Of a call of a custom tool: its input.
    pub input: Option<String>,
    /// Of a result: a text or a list of parts.
    pub output: Option<InputContent>,
    /// Of reasoning: its summary, as the answer had it.
    #[schema(value_type = Option<Vec<Value>>)]
    pub summary: Option<Vec<Value>>,
    /// Of reasoning: as the answer had it.
    pub encrypted_content: Option<String>,
}

/// A text or a list of parts.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum InputContent {
    #[schema(title = "InputContentText")]
    Text(String),
    #[schema(title = "InputContentParts")]
    Parts(Vec<InputPart>),
}

/// One part of a content.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputPart {
    #[schema(title = "InputTextPart")]
    InputText { text: String },
    /// A picture that is part of the request, as a `data:` URL. The pool never fetches a URL.
    #[schema(title = "InputImagePart")]
    InputImage {
        #[schema(pattern = "^data:")]
        image_url: String,
        /// `auto`, `low` or `high`.
        detail: Option<String>,
    },
    /// A text of an earlier answer.
    #[schema(title = "OutputTextPart")]
    OutputText {
        text: String,
        #[schema(value_type = Option<Vec<Value>>)]
        annotations: Option<Vec<Value>>,
        #[schema(value_type = Option<Vec<Value>>)]
        logprobs: Option<Vec<Value>>,
    },
    /// A refusal of an earlier answer.
    #[schema(title = "RefusalInputPart")]
    Refusal { refusal: String },
    /// Reasoning of an earlier answer.
    #[schema(title = "ReasoningTextPart")]
    ReasoningText { text: String },
    /// Reasoning of an earlier answer, in the form of some servers.
    #[schema(title = "PlainTextPart")]
    Text { text: String },
    /// A summary of the reasoning of an earlier answer.
    #[schema(title = "SummaryTextPart")]
    SummaryText { text: String },
}
