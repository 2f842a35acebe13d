//! The messages of Anthropic's API, block by block.

use serde_json::Value;
use utoipa::ToSchema;

use super::generation::CacheControl;

/// One message. Consecutive messages of one role count as one.
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

/// A text or a list of blocks.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum MessageContent {
    Text(String),
    Blocks(Vec<InputBlock>),
}

/// A text or a list of text blocks: instructions for the whole conversation.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum SystemPrompt {
    Text(String),
    Blocks(Vec<TextBlock>),
}

/// One block of a message.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputBlock {
    #[schema(title = "InputTextBlock")]
    Text {
        text: String,
        cache_control: Option<CacheControl>,
        /// What an earlier answer had. There are no documents to cite.
        #[schema(value_type = Option<Vec<Value>>)]
        citations: Option<Vec<Value>>,
    },
    /// A picture, in a message of the user.
    #[schema(title = "InputImageBlock")]
    Image {
        source: ImageSource,
        cache_control: Option<CacheControl>,
    },
    /// A tool that the model used, in a message of the assistant.
    #[schema(title = "InputToolUseBlock")]
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
        cache_control: Option<CacheControl>,
        /// Who called the tool: the model.
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
    /// What the model thought, in a message of the assistant.
    #[schema(title = "InputThinkingBlock")]
    Thinking {
        thinking: String,
        /// As the answer had it.
        signature: String,
        cache_control: Option<CacheControl>,
    },
    /// What the model thought, encrypted, in a message of the assistant.
    #[schema(title = "InputRedactedThinkingBlock")]
    RedactedThinking {
        /// As the answer had it.
        data: String,
        cache_control: Option<CacheControl>,
    },
    /// A plain text, in a message of the user.
    #[schema(title = "InputDocumentBlock")]
    Document {
        source: DocumentSource,
        title: Option<String>,
        context: Option<String>,
        citations: Option<Citations>,
        cache_control: Option<CacheControl>,
    },
    /// What a server's tool did in an earlier conversation. It is left out, like the following ones.
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

/// Whether the answer cites the document. Only `enabled: false` is accepted.
#[derive(ToSchema)]
pub struct Citations {
    pub enabled: Option<bool>,
}

/// A document that is part of the request.
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
    /// What an earlier answer had. There are no documents to cite.
    #[schema(value_type = Option<Vec<Value>>)]
    pub citations: Option<Vec<Value>>,
}

/// A text or a list of blocks.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ToolResultContent {
    #[schema(title = "ToolResultText")]
    Text(String),
    #[schema(title = "ToolResultBlocks")]
    Blocks(Vec<ToolResultBlock>),
}

/// One block of a tool's result.
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

/// A picture that is part of the request. The pool never fetches a URL.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ImageSource {
    #[schema(title = "Base64Image")]
    Base64 {
        /// `image/jpeg`, `image/png`, `image/gif` or `image/webp`.
        #[schema(examples("image/png"))]
        media_type: String,
        /// The picture in base64.
        data: String,
    },
}
