//! The request of Anthropic's Messages API.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::generation::CacheControl;
use super::messages_blocks::{InputMessage, SystemPrompt};

/// A request in the form of Anthropic's Messages API.
///
/// `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct MessageRequest {
    /// Maximum number of tokens in the response.
    #[schema(minimum = 1)]
    pub max_tokens: u64,
    /// Sampling temperature. 0 always selects the likeliest token; higher values make responses more random.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// Sample from the likeliest tokens that together have this probability.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// Sample from this many likeliest tokens.
    #[schema(minimum = 1)]
    pub top_k: Option<u64>,
    /// Stop sequences. The response ends before the first match.
    pub stop_sequences: Option<Vec<String>>,
    /// Stream the response as server-sent events.
    pub stream: Option<bool>,
    pub metadata: Option<MessageMetadata>,
    /// `auto` or `standard_only`. Only one tier exists.
    #[schema(examples("auto"))]
    pub service_tier: Option<String>,
    /// `standard` or `fast`. Only one speed exists.
    pub speed: Option<String>,
    #[serde(flatten)]
    pub conversation: MessageConversation,
}

/// A conversation to count tokens of.
#[derive(ToSchema)]
pub struct CountTokensRequest {
    #[serde(flatten)]
    pub conversation: MessageConversation,
}

/// Fields of both routes.
#[derive(ToSchema)]
pub struct MessageConversation {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The conversation so far, oldest message first. The last message is the user's.
    #[schema(min_items = 1)]
    pub messages: Vec<InputMessage>,
    pub system: Option<SystemPrompt>,
    /// The tools that the model may use. The client runs them and sends `tool_result` blocks.
    pub tools: Option<Vec<MessageTool>>,
    pub tool_choice: Option<MessageToolChoice>,
    pub thinking: Option<Thinking>,
    pub output_config: Option<OutputConfig>,
    /// Older name of `output_config.format`.
    pub output_format: Option<OutputFormat>,
    pub cache_control: Option<CacheControl>,
    /// Server-side context management, without effect here.
    #[schema(value_type = Option<Object>)]
    pub context_management: Option<Value>,
    /// MCP servers that the provider calls, without effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub mcp_servers: Option<Vec<Value>>,
}

#[derive(ToSchema)]
pub struct MessageMetadata {
    /// Id of your end user, for your records.
    pub user_id: Option<String>,
}

/// A client-side tool. Server-side tools are accepted and left out.
#[derive(ToSchema)]
pub struct MessageTool {
    /// `custom` (the default), or the type of a server-side tool.
    #[schema(value_type = Option<String>, examples("custom"))]
    pub r#type: Option<String>,
    /// Required for custom tools.
    #[schema(examples("weather"))]
    pub name: Option<String>,
    /// Description of the tool for the model.
    pub description: Option<String>,
    /// JSON schema of the input, of type object. Required for custom tools.
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Value>,
    /// Enforce the schema exactly.
    pub strict: Option<bool>,
    pub cache_control: Option<CacheControl>,
    /// No effect: pieces of the input are always streamed as they arrive.
    pub eager_input_streaming: Option<bool>,
    /// `true` has no effect: tools are always described to the model.
    pub defer_loading: Option<bool>,
    /// Examples of inputs, without effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub input_examples: Option<Vec<Value>>,
    /// Callers of the tool. Only `["direct"]` (the model) is accepted.
    pub allowed_callers: Option<Vec<String>>,
}

/// Tool choice.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageToolChoice {
    /// The model decides.
    #[schema(title = "ToolChoiceAuto")]
    Auto {
        disable_parallel_tool_use: Option<bool>,
    },
    /// The model uses at least one tool.
    #[schema(title = "ToolChoiceAny")]
    Any {
        disable_parallel_tool_use: Option<bool>,
    },
    /// The model uses this tool.
    #[schema(title = "ToolChoiceTool")]
    Tool {
        name: String,
        disable_parallel_tool_use: Option<bool>,
    },
    /// The model uses no tool.
    #[schema(title = "ToolChoiceNone")]
    None {
        disable_parallel_tool_use: Option<bool>,
    },
}

/// Thinking options.
#[derive(ToSchema)]
pub struct Thinking {
    /// `disabled`, `enabled`, `adaptive` or `auto`.
    #[schema(examples("disabled"))]
    pub r#type: String,
    /// Maximum number of thinking tokens.
    #[schema(minimum = 1)]
    pub budget_tokens: Option<u64>,
    /// `summarized`, or `omitted` to receive only the signature.
    pub display: Option<String>,
}

/// Output options.
#[derive(ToSchema)]
pub struct OutputConfig {
    /// Thinking effort, for models with levels.
    #[schema(examples("medium"))]
    pub effort: Option<String>,
    pub format: Option<OutputFormat>,
}

/// JSON that matches a schema.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    #[schema(title = "JsonSchemaOutput")]
    JsonSchema {
        /// The schema.
        #[schema(value_type = Object)]
        schema: BTreeMap<String, Value>,
    },
}
