//! Fields shared by chat completions and completions: sampling, stop conditions and streaming.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::chat_tools::ResponseFormat;

/// Sampling, stop conditions and streaming.
#[derive(ToSchema)]
pub struct GenerationFields {
    /// Older name of `max_completion_tokens`. Completions have only this name, with a default of 16.
    #[schema(minimum = 0)]
    pub max_tokens: Option<u64>,
    /// Sampling temperature. 0 always selects the likeliest token; higher values make responses more random. The default depends on
    /// the model.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// Sample from the likeliest tokens that together have this probability.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// Number of choices. `server.sequences_max` (256) limits the total number of choices of a request.
    #[schema(minimum = 1, maximum = 128)]
    pub n: Option<u64>,
    /// Stop sequences. The response ends before the first match.
    pub stop: Option<Stop>,
    /// Stream the response as server-sent events.
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    /// Above 0, tokens that occur in the text become less likely.
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f64>,
    /// Above 0, tokens become less likely with each occurrence in the text.
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f64>,
    /// Values from -100 to 100 that are added to the logits of tokens, by token id.
    #[schema(examples(json!({"50256": -100})))]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Random seed. Equal requests with equal seeds get equal responses, if the engine supports it.
    pub seed: Option<i64>,
    /// Reasoning effort, for models with levels: `none`, `minimal`, `low`, `medium`, `high` or `xhigh`.
    #[schema(examples("low"))]
    pub reasoning_effort: Option<String>,
    /// Format of the response.
    pub response_format: Option<ResponseFormat>,
    /// Id of your end user, for your records. Engines ignore it.
    pub user: Option<String>,
    /// A hint for OpenAI's own service, without effect here.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// A hint for OpenAI's own service, without effect here: responses of these routes are not stored.
    pub store: Option<bool>,
    /// The class of the request: `flex` (served while no other request waits for the model), `default` or `priority` (within the
    /// reserved share of the group); `auto` is the default.
    pub service_tier: Option<String>,
    /// The class of the request as a number, as in vLLM: above 0 is `flex`, below 0 is `priority`. `service_tier` takes precedence.
    pub priority: Option<i64>,
    /// A hint for OpenAI's own service, without effect here.
    pub safety_identifier: Option<String>,
    /// A caching hint without effect.
    pub prompt_cache_key: Option<String>,
    /// A caching hint without effect.
    pub prompt_cache_retention: Option<String>,
}

/// A string or a list of strings.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Several(Vec<String>),
}

/// Stream options. They require `stream: true`.
#[derive(ToSchema)]
pub struct StreamOptions {
    /// Send a final chunk with the usage and without choices.
    pub include_usage: Option<bool>,
    /// Send the current usage with each chunk, if the engine supports it.
    pub continuous_usage_stats: Option<bool>,
    /// Padding of stream events. Not supported; `false` is accepted.
    pub include_obfuscation: Option<bool>,
}

/// A caching hint without effect.
#[derive(ToSchema)]
pub struct CacheControl {
    pub r#type: Option<CacheKind>,
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    Ephemeral,
}
