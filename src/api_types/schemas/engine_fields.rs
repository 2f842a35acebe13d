//! Fields of generation requests that OpenAI does not have. The catalogue knows the fields of each engine, and a test compares it
//! with this list.

use serde_json::Value;
use utoipa::ToSchema;

/// Extensions of engines. docs/guides/engines.md lists the fields of each engine. A field that the model's engine does not support
/// returns 400 with the field's name.
#[derive(ToSchema)]
pub struct EngineFields {
    /// Sample from this many likeliest tokens; 0 or -1 for all.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// Exclude tokens less likely than this fraction of the likeliest token.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f64>,
    /// Typical sampling: sample from tokens of close to average information.
    #[schema(minimum = 0, maximum = 1)]
    pub typical_p: Option<f64>,
    /// TensorRT-LLM: minimum of a decaying `top_p`.
    pub top_p_min: Option<f64>,
    /// llama.cpp: sample from tokens within this many standard deviations of the likeliest.
    pub top_n_sigma: Option<f64>,
    /// Above 1, tokens that occur in the text become less likely.
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f64>,
    /// llama.cpp's name of `repetition_penalty`.
    pub repeat_penalty: Option<f64>,
    /// llama.cpp: number of last tokens that the penalties consider.
    pub repeat_last_n: Option<i64>,
    /// Minimum number of tokens in the response.
    #[schema(minimum = 0)]
    pub min_tokens: Option<u64>,
    /// llama.cpp's name of `max_tokens`.
    pub n_predict: Option<i64>,
    /// Token ids that end the response. The embedded engine also accepts lists of ids.
    pub stop_token_ids: Option<Vec<StopTokens>>,
    /// SGLang: regular expressions that end the response.
    pub stop_regex: Option<StopExpression>,
    /// Continue after the model's end token.
    pub ignore_eos: Option<bool>,
    /// vLLM, TensorRT-LLM: include the stop sequence in the response.
    pub include_stop_str_in_output: Option<bool>,
    /// SGLang: include the stop sequence in the response.
    pub no_stop_trim: Option<bool>,
    /// vLLM: strings that the response must not contain.
    pub bad_words: Option<Vec<String>>,
    /// vLLM: token ids that the response may contain.
    pub allowed_token_ids: Option<Vec<u32>>,

    /// Embedded engine: decoding strategy. docs/guides/engines.md describes the strategies.
    pub decoding_strategy: Option<DecodingStrategy>,
    /// Embedded engine: number of beams in a beam search.
    #[schema(minimum = 2, maximum = 8)]
    pub num_beams: Option<u32>,
    /// vLLM, TensorRT-LLM: beam search with `n` beams.
    pub use_beam_search: Option<bool>,
    /// Above 0, a beam search prefers longer responses; below 0, shorter responses.
    pub length_penalty: Option<f64>,
    /// End condition of a beam search: true, false, or `never` (embedded engine).
    #[schema(value_type = Option<Value>)]
    pub early_stopping: Option<Value>,
    /// Embedded engine: penalty for repetition in a contrastive search.
    #[schema(minimum = 0, maximum = 1)]
    pub penalty_alpha: Option<f64>,

    /// JSON schema that the response matches.
    #[schema(value_type = Option<Value>)]
    pub guided_json: Option<Value>,
    /// Regular expression that the response matches.
    pub guided_regex: Option<String>,
    /// Permitted responses.
    pub guided_choice: Option<Vec<String>>,
    /// Grammar that the response matches.
    pub guided_grammar: Option<String>,
    /// vLLM: regular expression for white space in JSON.
    pub guided_whitespace_pattern: Option<String>,
    /// vLLM's newer form of the `guided_` fields: an object with `json`, `regex`, `choice` or `grammar`.
    #[schema(value_type = Option<Object>)]
    pub structured_outputs: Option<Value>,
    /// vLLM: text with structured parts.
    #[schema(value_type = Option<Value>)]
    pub structural_tag: Option<Value>,
    /// SGLang: regular expression that the response matches.
    pub regex: Option<String>,
    /// SGLang: EBNF grammar that the response matches.
    pub ebnf: Option<String>,
    /// SGLang, llama.cpp: JSON schema that the response matches, as an object or a string.
    #[schema(value_type = Option<Value>)]
    pub json_schema: Option<Value>,
    /// llama.cpp: GBNF grammar that the response matches.
    pub grammar: Option<String>,
    /// TGI: guideline for safety models.
    pub guideline: Option<String>,

    /// Variables of the model's chat template. Only these names are passed to an engine.
    pub chat_template_kwargs: Option<TemplateSwitches>,
    /// vLLM: maximum number of reasoning tokens.
    pub thinking_token_budget: Option<i64>,
    /// llama.cpp: maximum number of reasoning tokens.
    pub thinking_budget_tokens: Option<i64>,
    /// vLLM: include the model's reasoning in the response.
    pub include_reasoning: Option<bool>,
    /// SGLang: return the reasoning separately from the text.
    pub separate_reasoning: Option<bool>,
    /// SGLang: stream the reasoning instead of sending it complete.
    pub stream_reasoning: Option<bool>,
    /// llama.cpp: format of the reasoning, `none`, `auto` or `deepseek`.
    pub reasoning_format: Option<String>,
    /// llama.cpp: parse function calls in the text.
    pub parse_tool_calls: Option<bool>,
    /// vLLM, SGLang: continue the last message, which must be the assistant's.
    pub continue_final_message: Option<bool>,
    /// vLLM: end the prompt with the start of an assistant message. The default is true.
    pub add_generation_prompt: Option<bool>,
    /// vLLM, TensorRT-LLM: add special tokens to the prompt.
    pub add_special_tokens: Option<bool>,
    /// vLLM: documents for chat templates that support them.
    #[schema(value_type = Option<Vec<Object>>)]
    pub documents: Option<Vec<Value>>,
    /// vLLM, TensorRT-LLM: keep only this many last tokens of the prompt; -1 for the model's maximum.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    /// Omit special tokens from the response's text.
    pub skip_special_tokens: Option<bool>,
    /// vLLM, TensorRT-LLM: put spaces between special tokens.
    pub spaces_between_special_tokens: Option<bool>,
    /// Start the response with the prompt.
    pub echo: Option<bool>,
    /// vLLM: return the log probabilities of the prompt's tokens and of this many likeliest tokens.
    pub prompt_logprobs: Option<i64>,
    /// vLLM: return the token ids of the prompt and the response.
    pub return_token_ids: Option<bool>,
    /// vLLM: return token ids instead of text in log probabilities.
    pub return_tokens_as_token_ids: Option<bool>,
    /// vLLM: id of the request in the engine's log.
    pub request_id: Option<String>,
    /// vLLM: salt of the prompt cache. Requests with different salts do not share cached prompts.
    pub cache_salt: Option<String>,

    /// llama.cpp: reuse the cached prefix of the prompt.
    pub cache_prompt: Option<bool>,
    /// llama.cpp: strength of DRY sampling, which makes repeated sequences less likely; 0 is off.
    pub dry_multiplier: Option<f64>,
    /// llama.cpp: base of the DRY penalty, which grows with the length of a repetition.
    pub dry_base: Option<f64>,
    /// llama.cpp: longest repetition in tokens without a DRY penalty.
    pub dry_allowed_length: Option<i64>,
    /// llama.cpp: number of last tokens that DRY sampling considers.
    pub dry_penalty_last_n: Option<i64>,
    /// llama.cpp: strings that reset DRY sampling.
    pub dry_sequence_breakers: Option<Vec<String>>,
    /// llama.cpp: range of the dynamic temperature.
    pub dynatemp_range: Option<f64>,
    /// llama.cpp: exponent of the dynamic temperature.
    pub dynatemp_exponent: Option<f64>,
    /// llama.cpp: Mirostat sampling, 0 (off), 1 or 2.
    #[schema(minimum = 0, maximum = 2)]
    pub mirostat: Option<u32>,
    /// llama.cpp: target entropy of Mirostat.
    pub mirostat_tau: Option<f64>,
    /// llama.cpp: learning rate of Mirostat.
    pub mirostat_eta: Option<f64>,
    /// llama.cpp: probability of XTC sampling, which removes the likeliest tokens.
    pub xtc_probability: Option<f64>,
    /// llama.cpp: minimum probability of tokens that XTC removes.
    pub xtc_threshold: Option<f64>,
    /// llama.cpp: the samplers and their order.
    pub samplers: Option<Vec<String>>,
    /// llama.cpp: minimum number of tokens that samplers keep.
    pub min_keep: Option<i64>,
    /// llama.cpp: number of first prompt tokens to keep when the context is full.
    pub n_keep: Option<i64>,
    /// llama.cpp: minimum indentation of a line, in characters.
    pub n_indent: Option<i64>,
    /// llama.cpp: return the probabilities of this many likeliest tokens.
    pub n_probs: Option<i64>,
    /// llama.cpp: return probabilities after sampling.
    pub post_sampling_probs: Option<bool>,
    /// llama.cpp: return the token ids of the response.
    pub return_tokens: Option<bool>,
    /// llama.cpp: maximum time in milliseconds after the first line break of the response.
    pub t_max_predict_ms: Option<i64>,
    /// llama.cpp: return timings with each chunk.
    pub timings_per_token: Option<bool>,
}

/// A token id, or a sequence of token ids.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum StopTokens {
    One(u32),
    Row(Vec<u32>),
}

/// One or several regular expressions.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum StopExpression {
    One(String),
    Several(Vec<String>),
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecodingStrategy {
    Greedy,
    Multinomial,
    BeamSearch,
    ContrastiveSearch,
}

/// Variables of a chat template; their effect depends on the model.
#[derive(ToSchema)]
pub struct TemplateSwitches {
    pub enable_thinking: Option<bool>,
    pub thinking: Option<bool>,
    pub reasoning_effort: Option<String>,
    pub thinking_budget: Option<i64>,
}
