//! Fields that chat completions and completions share: sampling, the end of an answer, the form of the stream.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::chat_tools::ResponseFormat;

/// How an answer is sampled, ended and sent.
#[derive(ToSchema)]
pub struct GenerationFields {
    /// The older name of `max_completion_tokens`. Completions have this name alone; their default is 16.
    #[schema(minimum = 0)]
    pub max_tokens: Option<u64>,
    /// 0 takes the likeliest token always; higher values make answers more random. The default is the model's own.
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f64>,
    /// Sample from the likeliest tokens that together have this probability.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// The number of answers. `server.sequences_max` (256) limits the number of all answers of a request.
    #[schema(minimum = 1, maximum = 128)]
    pub n: Option<u64>,
    /// The answer ends before any of these texts.
    pub stop: Option<Stop>,
    /// Send the answer in pieces, as server-sent events.
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    /// Above 0: tokens that the text contains become less likely.
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f64>,
    /// Above 0: tokens become less likely each time that the text contains them.
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f64>,
    /// Numbers from -100 to 100 that are added to the logits of tokens, by token id.
    #[schema(examples(json!({"50256": -100})))]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Requests with the same seed and the same other fields get the same answer where the engine can.
    pub seed: Option<i64>,
    /// How much the model reasons before it answers, for models that have levels: `none`, `minimal`, `low`, `medium`,
    /// `high` or `xhigh`.
    #[schema(examples("low"))]
    pub reasoning_effort: Option<String>,
    /// What the answer must look like.
    pub response_format: Option<ResponseFormat>,
    /// Your own user, for your own records. Engines do nothing with it.
    pub user: Option<String>,
    /// A hint for OpenAI's own service. It has no effect here.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// A hint for OpenAI's own service. It has no effect here: answers of these routes are not stored.
    pub store: Option<bool>,
    /// A hint for OpenAI's own service. It has no effect here.
    pub service_tier: Option<String>,
    /// A hint for OpenAI's own service. It has no effect here.
    pub safety_identifier: Option<String>,
    /// A hint for caches. It has no effect here.
    pub prompt_cache_key: Option<String>,
    /// A hint for caches. It has no effect here.
    pub prompt_cache_retention: Option<String>,
}

/// One text or several.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Several(Vec<String>),
}

/// Options of a stream. They need `stream: true`.
#[derive(ToSchema)]
pub struct StreamOptions {
    /// Send one more piece before the end, with the usage and without choices.
    pub include_usage: Option<bool>,
    /// Send the usage so far with each piece, for engines that can.
    pub continuous_usage_stats: Option<bool>,
    /// Padding against eavesdroppers. There is none; `false` is accepted.
    pub include_obfuscation: Option<bool>,
}

/// A hint for caches, which has no effect here.
#[derive(ToSchema)]
pub struct CacheControl {
    pub r#type: Option<CacheKind>,
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    Ephemeral,
}
