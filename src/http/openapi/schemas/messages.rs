//! The request of Anthropic's Messages API.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::generation::CacheControl;
use super::messages_blocks::{InputMessage, SystemPrompt};

/// A conversation that the model continues, in the form of Anthropic's Messages API.
///
/// `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct MessageRequest {
    /// The most tokens that the answer may have.
    #[schema(minimum = 1)]
    pub max_tokens: u64,
    /// 0 takes the likeliest token always; higher values make answers more random.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// Sample from the likeliest tokens that together have this probability.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// Sample from this many likeliest tokens.
    #[schema(minimum = 1)]
    pub top_k: Option<u64>,
    /// The answer ends before any of these texts.
    pub stop_sequences: Option<Vec<String>>,
    /// Send the answer as server-sent events.
    pub stream: Option<bool>,
    pub metadata: Option<MessageMetadata>,
    /// `auto` or `standard_only`. There is one tier.
    #[schema(examples("auto"))]
    pub service_tier: Option<String>,
    /// `standard` or `fast`. There is one speed.
    pub speed: Option<String>,
    #[serde(flatten)]
    pub conversation: MessageConversation,
}

/// A conversation whose tokens are counted.
#[derive(ToSchema)]
pub struct CountTokensRequest {
    #[serde(flatten)]
    pub conversation: MessageConversation,
}

/// What both routes have.
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
    /// The older name of `output_config.format`.
    pub output_format: Option<OutputFormat>,
    pub cache_control: Option<CacheControl>,
    /// How a server shortens the conversation. It has no effect here.
    #[schema(value_type = Option<Object>)]
    pub context_management: Option<Value>,
    /// Servers that the provider calls. They have no effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub mcp_servers: Option<Vec<Value>>,
}

#[derive(ToSchema)]
pub struct MessageMetadata {
    /// Your own user, for your own records.
    pub user_id: Option<String>,
}

/// A tool that the client runs. Tools that a server runs are accepted and left out.
#[derive(ToSchema)]
pub struct MessageTool {
    /// `custom` (the default), or the type of a tool that a server runs.
    #[schema(value_type = Option<String>, examples("custom"))]
    pub r#type: Option<String>,
    /// A custom tool needs it.
    #[schema(examples("weather"))]
    pub name: Option<String>,
    /// What the tool does. The model reads it.
    pub description: Option<String>,
    /// The input, as a JSON schema of type object. A custom tool needs it.
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Value>,
    /// Hold the input to the schema exactly.
    pub strict: Option<bool>,
    pub cache_control: Option<CacheControl>,
    /// Pieces of the input are always streamed as they come.
    pub eager_input_streaming: Option<bool>,
    /// Tools are always described to the model: `true` has no effect.
    pub defer_loading: Option<bool>,
    /// Examples of inputs. They have no effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub input_examples: Option<Vec<Value>>,
    /// Who calls the tool: only `["direct"]`, the model, is accepted.
    pub allowed_callers: Option<Vec<String>>,
}

/// Whether the model uses a tool.
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

/// Whether the model thinks before it answers.
#[derive(ToSchema)]
pub struct Thinking {
    /// `disabled`, `enabled`, `adaptive` or `auto`.
    #[schema(examples("disabled"))]
    pub r#type: String,
    /// The most tokens of thinking.
    #[schema(minimum = 1)]
    pub budget_tokens: Option<u64>,
    /// `summarized`, or `omitted`: the answer has the signature alone.
    pub display: Option<String>,
}

/// How the answer is made.
#[derive(ToSchema)]
pub struct OutputConfig {
    /// How much the model thinks, for models that have levels.
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
