//! Messages of Anthropic's API and their content blocks.

use serde_json::Value;
use utoipa::ToSchema;

use super::generation::CacheControl;

/// A message. Consecutive messages of the same role count as one.
#[derive(ToSchema)]
pub struct InputMessage {
    pub role: MessageRole,
    pub content: MessageContent,
    pub cache_control: Option<CacheControl>,
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    User,
    Assistant,
    System,
}

/// A string or a list of blocks.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum MessageContent {
    Text(String),
    Blocks(Vec<InputBlock>),
}

/// Instructions for the entire conversation: a string or a list of text blocks.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum SystemPrompt {
    Text(String),
    Blocks(Vec<TextBlock>),
}

/// A content block of a message.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputBlock {
    #[schema(title = "InputTextBlock")]
    Text {
        text: String,
        cache_control: Option<CacheControl>,
        /// Citations of an earlier response, without effect here.
        #[schema(value_type = Option<Vec<Value>>)]
        citations: Option<Vec<Value>>,
    },
    /// An image, in a user message.
    #[schema(title = "InputImageBlock")]
    Image {
        source: ImageSource,
        cache_control: Option<CacheControl>,
    },
    /// A tool that the model used, in an assistant message.
    #[schema(title = "InputToolUseBlock")]
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
        cache_control: Option<CacheControl>,
        /// The caller of the tool: the model.
        #[schema(value_type = Option<Object>)]
        caller: Option<Value>,
    },
    /// The result of a tool, in the user's message that follows its use.
    #[schema(title = "InputToolResultBlock")]
    ToolResult {
        tool_use_id: String,
        content: Option<ToolResultContent>,
        /// The tool failed. The model reads `Error: ` before the content.
        is_error: Option<bool>,
        cache_control: Option<CacheControl>,
    },
    /// The model's thinking, in an assistant message.
    #[schema(title = "InputThinkingBlock")]
    Thinking {
        thinking: String,
        /// Unchanged from the response.
        signature: String,
        cache_control: Option<CacheControl>,
    },
    /// The model's encrypted thinking, in an assistant message.
    #[schema(title = "InputRedactedThinkingBlock")]
    RedactedThinking {
        /// Unchanged from the response.
        data: String,
        cache_control: Option<CacheControl>,
    },
    /// A text document, in a user message.
    #[schema(title = "InputDocumentBlock")]
    Document {
        source: DocumentSource,
        title: Option<String>,
        context: Option<String>,
        citations: Option<Citations>,
        cache_control: Option<CacheControl>,
    },
    /// A server-side tool call of an earlier conversation. This block and the following ones are left out.
    #[schema(title = "ServerToolUseBlock")]
    ServerToolUse {},
    #[schema(title = "WebSearchToolResultBlock")]
    WebSearchToolResult {},
    #[schema(title = "WebFetchToolResultBlock")]
    WebFetchToolResult {},
    #[schema(title = "CodeExecutionToolResultBlock")]
    CodeExecutionToolResult {},
    #[schema(title = "BashCodeExecutionToolResultBlock")]
    BashCodeExecutionToolResult {},
    #[schema(title = "TextEditorCodeExecutionToolResultBlock")]
    TextEditorCodeExecutionToolResult {},
    #[schema(title = "ToolSearchToolResultBlock")]
    ToolSearchToolResult {},
    #[schema(title = "McpToolUseBlock")]
    McpToolUse {},
    #[schema(title = "McpToolResultBlock")]
    McpToolResult {},
}

/// Citation options. Only `enabled: false` is accepted.
#[derive(ToSchema)]
pub struct Citations {
    pub enabled: Option<bool>,
}

/// A document embedded in the request.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DocumentSource {
    #[schema(title = "TextDocument")]
    Text {
        /// `text/plain`.
        media_type: Option<String>,
        /// The text.
        data: String,
    },
}

/// A text.
#[derive(ToSchema)]
pub struct TextBlock {
    /// `text`.
    #[schema(examples("text"))]
    pub r#type: String,
    pub text: String,
    pub cache_control: Option<CacheControl>,
    /// Citations of an earlier response, without effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub citations: Option<Vec<Value>>,
}

/// A string or a list of blocks.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ToolResultContent {
    #[schema(title = "ToolResultText")]
    Text(String),
    #[schema(title = "ToolResultBlocks")]
    Blocks(Vec<ToolResultBlock>),
}

/// A content block of a tool result.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolResultBlock {
    #[schema(title = "ToolResultTextBlock")]
    Text {
        text: String,
        cache_control: Option<CacheControl>,
        #[schema(value_type = Option<Vec<Value>>)]
        citations: Option<Vec<Value>>,
    },
    #[schema(title = "ToolResultImageBlock")]
    Image {
        source: ImageSource,
        cache_control: Option<CacheControl>,
    },
    #[schema(title = "ToolResultDocumentBlock")]
    Document {
        source: DocumentSource,
        title: Option<String>,
        context: Option<String>,
        citations: Option<Citations>,
        cache_control: Option<CacheControl>,
    },
    /// A tool that a search found.
    #[schema(title = "ToolResultReferenceBlock")]
    ToolReference { tool_name: String },
}

/// An image embedded in the request. The pool never fetches a URL.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ImageSource {
    #[schema(title = "Base64Image")]
    Base64 {
        /// `image/jpeg`, `image/png`, `image/gif` or `image/webp`.
        #[schema(examples("image/png"))]
        media_type: String,
        /// Base64 image data.
        data: String,
    },
}
