//! The request of OpenAI's Responses API.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_tools::CustomToolFormat;
use super::responses_items::ResponseInput;

/// A request in the form of OpenAI's Responses API.
///
/// `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct ResponseRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    pub input: ResponseInput,
    /// Instructions that precede the conversation.
    pub instructions: Option<String>,
    /// Id of a stored response whose conversation the request continues.
    #[schema(examples("resp_0198f6"))]
    pub previous_response_id: Option<String>,
    /// Maximum number of tokens in the response.
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature. 0 always selects the likeliest token; higher values make responses more random.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// Sample from the likeliest tokens that together have this probability.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// Stream the response as server-sent events.
    pub stream: Option<bool>,
    pub stream_options: Option<ResponseStreamOptions>,
    /// The functions that the model may call. The client runs them.
    pub tools: Option<Vec<ResponseTool>>,
    pub tool_choice: Option<ResponseToolChoice>,
    /// Allow several function calls in one response. The default is true.
    pub parallel_tool_calls: Option<bool>,
    pub text: Option<ResponseText>,
    pub reasoning: Option<Reasoning>,
    /// Additional fields of the response, such as `reasoning.encrypted_content`.
    pub include: Option<Vec<String>>,
    /// Up to 16 strings that the response repeats.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Client metadata.
    #[schema(value_type = Option<Object>)]
    pub client_metadata: Option<Value>,
    /// Storage of the response for later requests. `true` stores it on disk before the response ends. By default it is kept for a
    /// short time. docs/guides/clients.md has the details.
    pub store: Option<bool>,
    /// Server-side context management, without effect here.
    #[schema(value_type = Option<Vec<Value>>)]
    pub context_management: Option<Vec<Value>>,
    /// Treatment of a conversation that is too long. It is always refused, as with `disabled`.
    #[schema(examples("disabled"))]
    pub truncation: Option<String>,
    /// Queue the response and return immediately. `GET /v1/responses/{id}` shows it. `store` must not be `false`.
    pub background: Option<bool>,
    /// Id of the conversation that precedes `input` and gets the items of the response, or an object with its `id`. Not together with
    /// `previous_response_id`.
    #[schema(value_type = Option<Value>)]
    pub conversation: Option<Value>,
    /// The class of the request: `flex` (served while no other request waits for the model), `default` or `priority` (within the
    /// reserved share of the group); `auto` is the default. The response names the class in which the request was served.
    #[schema(examples("auto"))]
    pub service_tier: Option<String>,
    /// The class of the request as a number, as in vLLM: above 0 is `flex`, below 0 is `priority`. `service_tier` takes precedence.
    pub priority: Option<i64>,
    /// Number of likeliest tokens with log probabilities. Only 0; use chat completions for log probabilities.
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u64>,
    /// Maximum number of server-side tool calls, without effect here.
    #[schema(minimum = 1)]
    pub max_tool_calls: Option<u64>,
    /// vLLM: continue after the model's end token.
    pub ignore_eos: Option<bool>,
    /// Id of your end user, for your records.
    pub user: Option<String>,
    /// Id of your end user, for your records.
    pub safety_identifier: Option<String>,
    /// A caching hint without effect.
    pub prompt_cache_key: Option<String>,
    /// A caching hint without effect.
    pub prompt_cache_retention: Option<String>,
}

#[derive(ToSchema)]
pub struct ResponseStreamOptions {
    /// Padding of stream events. Not supported.
    pub include_obfuscation: Option<bool>,
    /// No effect: the last event always contains the usage.
    pub include_usage: Option<bool>,
}

/// A tool. Its fields depend on `type`. Server-side tools are accepted and left out.
#[derive(ToSchema)]
pub struct ResponseTool {
    /// `function`, `custom` (with plain text input), `namespace` (a group of tools), or the type of a server-side tool.
    #[schema(examples("function"))]
    pub r#type: String,
    /// 1 to 64 letters, digits, underscores and dashes.
    #[schema(examples("weather"))]
    pub name: Option<String>,
    /// Description of the function for the model.
    pub description: Option<String>,
    /// JSON schema of the arguments, of type object.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Enforce the schema exactly.
    pub strict: Option<bool>,
    /// `true` has no effect: tools are always described to the model.
    pub defer_loading: Option<bool>,
    /// Custom tools: format of the input.
    pub format: Option<CustomToolFormat>,
    /// Namespaces: the contained tools.
    #[schema(no_recursion)]
    pub tools: Option<Vec<ResponseTool>>,
}

/// Tool choice: `auto`, `none`, `required`, or a tool.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ResponseToolChoice {
    #[schema(title = "ResponseToolChoiceMode")]
    Mode(String),
    #[schema(title = "ResponseToolChoiceFunction")]
    Function(ChosenTool),
}

/// The tool that the model calls, or a list of permitted tools.
#[derive(ToSchema)]
pub struct ChosenTool {
    /// `function`, `custom` or `allowed_tools`.
    #[schema(examples("function"))]
    pub r#type: String,
    #[schema(examples("weather"))]
    pub name: Option<String>,
    /// The namespace of the tool.
    pub namespace: Option<String>,
    /// For `allowed_tools`: `auto` or `required`.
    pub mode: Option<String>,
    /// For `allowed_tools`: the permitted tools.
    pub tools: Option<Vec<AllowedTool>>,
}

#[derive(ToSchema)]
pub struct AllowedTool {
    pub r#type: Option<String>,
    pub name: Option<String>,
    pub namespace: Option<String>,
}

/// Text output options.
#[derive(ToSchema)]
pub struct ResponseText {
    pub format: Option<ResponseTextFormat>,
    /// Length of the response, for models with levels: `low`, `medium` or `high`.
    #[schema(examples("medium"))]
    pub verbosity: Option<String>,
}

/// Format of the text.
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
        /// Purpose of the response, for the model.
        description: Option<String>,
        #[schema(value_type = Object)]
        schema: Value,
        strict: Option<bool>,
    },
}

/// Reasoning options, for reasoning models.
#[derive(ToSchema)]
pub struct Reasoning {
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`.
    #[schema(examples("none"))]
    pub effort: Option<String>,
    /// `auto`, `concise` or `detailed`.
    pub summary: Option<String>,
    /// Older name of `summary`.
    pub generate_summary: Option<String>,
}
