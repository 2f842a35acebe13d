//! Tokens of a text, and the text of tokens.

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_messages::ChatMessage;
use super::chat_tools::ChatTool;

/// A text or a conversation. Give `prompt` or `messages`, not both.
#[derive(ToSchema)]
pub struct TokenizeRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// A text.
    pub prompt: Option<String>,
    /// A conversation, formatted with the model's chat template.
    pub messages: Option<Vec<ChatMessage>>,
    /// The tools of the conversation.
    pub tools: Option<Vec<ChatTool>>,
    /// Add special tokens. The default is true for text and false for a conversation.
    pub add_special_tokens: Option<bool>,
    /// End the prompt with the start of an assistant message. The default is true.
    pub add_generation_prompt: Option<bool>,
    /// Also return the tokens as strings. Only vLLM and the embedded engine support it.
    pub return_token_strs: Option<bool>,
}

/// Token ids in the order of the text.
#[derive(ToSchema)]
pub struct Tokens {
    pub tokens: Vec<u32>,
    /// The number of tokens.
    pub count: u64,
    /// Maximum sequence length of the model. Null if the engine does not report it.
    pub max_model_len: Option<u64>,
    /// The tokens as strings, if `return_token_strs` is true.
    #[schema(value_type = Option<Vec<String>>)]
    pub token_strs: Option<Value>,
}

/// Token ids to convert to text.
#[derive(ToSchema)]
pub struct DetokenizeRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// Token ids of the model.
    pub tokens: Vec<u32>,
}

/// A text.
#[derive(ToSchema)]
pub struct DetokenizedText {
    /// The text of the tokens.
    pub prompt: String,
}

/// The tokens of a message.
#[derive(ToSchema)]
pub struct MessageTokens {
    pub input_tokens: u64,
}
