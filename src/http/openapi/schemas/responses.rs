//! The request of OpenAI's Responses API.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_tools::CustomToolFormat;
use super::responses_items::ResponseInput;

/// A conversation that the model continues, in the form of OpenAI's Responses API.
///
/// `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct ResponseRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    pub input: ResponseInput,
    /// Instructions that go before the conversation.
    pub instructions: Option<String>,
    /// The id of a stored response, whose conversation goes on.
    #[schema(examples("resp_0198f6"))]
    pub previous_response_id: Option<String>,
    /// The most tokens that the answer may have.
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<u64>,
    /// 0 takes the likeliest token always; higher values make answers more random.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// Sample from the likeliest tokens that together have this probability.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// Send the answer as server-sent events.
    pub stream: Option<bool>,
    pub stream_options: Option<ResponseStreamOptions>,
    /// The functions that the model may call. The client runs them.
    pub tools: Option<Vec<ResponseTool>>,
    pub tool_choice: Option<ResponseToolChoice>,
    /// Whether one answer may call several functions. The default is true.
    pub parallel_tool_calls: Option<bool>,
    pub text: Option<ResponseText>,
    pub reasoning: Option<Reasoning>,
    /// What else the answer has, such as `reasoning.encrypted_content`.
    pub include: Option<Vec<String>>,
    /// Up to 16 texts that the answer repeats.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Notes of the client on itself.
    #[schema(value_type = Option<Object>)]
    pub client_metadata: Option<Value>,
    /// Whether later requests may refer to the answer. `true` stores it on disk before the answer ends. If it is not there, the answer is kept for a
    /// short time. docs/clients.md has the details.
    pub store: Option<bool>,
    /// How a server shortens the conversation. It has no effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub context_management: Option<Vec<Value>>,
    /// What happens to a conversation that is too long. It is always refused, as with `disabled`.
    #[schema(examples("disabled"))]
    pub truncation: Option<String>,
    /// Only `false`: an answer is made while its client waits.
    pub background: Option<bool>,
    /// `auto` or `default`. There is one tier.
    #[schema(examples("auto"))]
    pub service_tier: Option<String>,
    /// The number of likeliest tokens whose log probabilities are returned. Only 0; chat completions have them.
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u64>,
    /// The most calls of tools that a server runs. It has no effect here.
    #[schema(minimum = 1)]
    pub max_tool_calls: Option<u64>,
    /// vLLM: do not end the answer at the model's end token.
    pub ignore_eos: Option<bool>,
    /// Your own user, for your own records.
    pub user: Option<String>,
    /// Your own user, for your own records.
    pub safety_identifier: Option<String>,
    /// A hint for caches. It has no effect here.
    pub prompt_cache_key: Option<String>,
    /// A hint for caches. It has no effect here.
    pub prompt_cache_retention: Option<String>,
}

#[derive(ToSchema)]
pub struct ResponseStreamOptions {
    /// Padding against eavesdroppers. There is none.
    pub include_obfuscation: Option<bool>,
    /// The last event always has the usage.
    pub include_usage: Option<bool>,
}

/// A tool. Which fields it has depends on `type`. Tools that a server runs are accepted and left out.
#[derive(ToSchema)]
pub struct ResponseTool {
    /// `function`, `custom` (its input is a text), `namespace` (a group of tools), or the type of a tool that a server runs.
    #[schema(examples("function"))]
    pub r#type: String,
    /// 1 to 64 letters, digits, underscores and dashes.
    #[schema(examples("weather"))]
    pub name: Option<String>,
    /// What the function does. The model reads it.
    pub description: Option<String>,
    /// The arguments, as a JSON schema of type object.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Hold the arguments to the schema exactly.
    pub strict: Option<bool>,
    /// Tools are always described to the model: `true` has no effect.
    pub defer_loading: Option<bool>,
    /// Of a custom tool: what its input looks like.
    pub format: Option<CustomToolFormat>,
    /// Of a namespace: its tools.
    #[schema(no_recursion)]
    pub tools: Option<Vec<ResponseTool>>,
}

/// Whether the model calls a tool: `auto`, `none`, `required`, or a tool.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ResponseToolChoice {
    #[schema(title = "ResponseToolChoiceMode")]
    Mode(String),
    #[schema(title = "ResponseToolChoiceFunction")]
    Function(ChosenTool),
}

/// The tool that the model calls, or those that it may call.
#[derive(ToSchema)]
pub struct ChosenTool {
    /// `function`, `custom` or `allowed_tools`.
    #[schema(examples("function"))]
    pub r#type: String,
    #[schema(examples("weather"))]
    pub name: Option<String>,
    /// The namespace of the tool.
    pub namespace: Option<String>,
    /// Of `allowed_tools`: `auto` or `required`.
    pub mode: Option<String>,
    /// Of `allowed_tools`.
    pub tools: Option<Vec<AllowedTool>>,
}

#[derive(ToSchema)]
pub struct AllowedTool {
    pub r#type: Option<String>,
    pub name: Option<String>,
    pub namespace: Option<String>,
}

/// The form of the answer's text.
#[derive(ToSchema)]
pub struct ResponseText {
    pub format: Option<ResponseTextFormat>,
    /// How long the answer should be, for models that have levels: `low`, `medium` or `high`.
    #[schema(examples("medium"))]
    pub verbosity: Option<String>,
}

/// What the text must look like.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseTextFormat {
    /// Any text.
    #[schema(title = "ResponseTextFormatText")]
    Text {},
    /// A JSON object.
    #[schema(title = "ResponseTextFormatJsonObject")]
    JsonObject {},
    /// JSON that matches a schema.
    #[schema(title = "ResponseTextFormatJsonSchema")]
    JsonSchema {
        /// 1 to 64 letters, digits, underscores and dashes.
        name: String,
        /// What the answer is for.
        description: Option<String>,
        #[schema(value_type = Object)]
        schema: Value,
        strict: Option<bool>,
    },
}

/// How the model reasons before it answers, for models that do.
#[derive(ToSchema)]
pub struct Reasoning {
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`.
    #[schema(examples("none"))]
    pub effort: Option<String>,
    /// `auto`, `concise` or `detailed`.
    pub summary: Option<String>,
    /// The older name of `summary`.
    pub generate_summary: Option<String>,
}
