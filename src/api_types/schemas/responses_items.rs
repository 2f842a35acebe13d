//! The items of a Responses request's `input`.

use serde_json::Value;
use utoipa::ToSchema;

/// A user message, or the items of a conversation.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ResponseInput {
    #[schema(title = "ResponseInputText")]
    Text(String),
    #[schema(title = "ResponseInputItems")]
    Items(Vec<InputItem>),
}

/// An item of a conversation. Its fields depend on `type`. Output items can be sent back unchanged.
#[derive(ToSchema)]
pub struct InputItem {
    /// `message` (the default), `function_call`, `function_call_output`, `custom_tool_call`, `custom_tool_call_output`,
    /// `reasoning`, or `item_reference` for an item of a stored response with this `id`. Items of server-side tools are left out.
    #[schema(examples("message"))]
    pub r#type: Option<String>,
    pub id: Option<String>,
    pub status: Option<String>,
    /// Messages: `user`, `assistant`, `system` or `developer`.
    #[schema(examples("user"))]
    pub role: Option<String>,
    /// Messages: the content.
    pub content: Option<InputContent>,
    /// Assistant messages: phase of the response.
    pub phase: Option<String>,
    /// Calls and results: the id that connects them.
    pub call_id: Option<String>,
    /// Calls: name of the function.
    pub name: Option<String>,
    /// Calls: namespace of the tool.
    pub namespace: Option<String>,
    /// Function calls: a JSON object as a string.
    pub arguments: Option<String>,
    /// Custom tool calls: the input.
    pub input: Option<String>,
    /// Results: a string or a list of parts.
    pub output: Option<InputContent>,
    /// Reasoning: the summary, unchanged from the response.
    #[schema(value_type = Option<Vec<Value>>)]
    pub summary: Option<Vec<Value>>,
    /// Reasoning: unchanged from the response.
    pub encrypted_content: Option<String>,
}

/// A string or a list of parts.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum InputContent {
    #[schema(title = "InputContentText")]
    Text(String),
    #[schema(title = "InputContentParts")]
    Parts(Vec<InputPart>),
}

/// A content part.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputPart {
    #[schema(title = "InputTextPart")]
    InputText { text: String },
    /// An image as a `data:` URL. The pool never fetches a URL.
    #[schema(title = "InputImagePart")]
    InputImage {
        #[schema(pattern = "^data:")]
        image_url: String,
        /// `auto`, `low` or `high`.
        detail: Option<String>,
    },
    /// Text of an earlier response.
    #[schema(title = "OutputTextPart")]
    OutputText {
        text: String,
        #[schema(value_type = Option<Vec<Value>>)]
        annotations: Option<Vec<Value>>,
        #[schema(value_type = Option<Vec<Value>>)]
        logprobs: Option<Vec<Value>>,
    },
    /// A refusal of an earlier response.
    #[schema(title = "RefusalInputPart")]
    Refusal { refusal: String },
    /// Reasoning of an earlier response.
    #[schema(title = "ReasoningTextPart")]
    ReasoningText { text: String },
    /// Reasoning of an earlier response, in the form of some servers.
    #[schema(title = "PlainTextPart")]
    Text { text: String },
    /// A reasoning summary of an earlier response.
    #[schema(title = "SummaryTextPart")]
    SummaryText { text: String },
}
