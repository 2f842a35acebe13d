//! Fields of generating requests that OpenAI does not have. Which engine has which is the catalogue's to know; a test
//! holds this list against the catalogue's.

use serde_json::Value;
use utoipa::ToSchema;

/// Extensions of engines. docs/engines.md says which engine has which; a request with a field that the engine of its
/// model does not have gets a 400 that names the field.
#[derive(ToSchema)]
pub struct EngineFields {
    /// Sample from this many likeliest tokens. 0 and -1: from all.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// Leave out tokens that are less likely than this share of the likeliest one.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f64>,
    /// Sample from tokens whose probability is close to what is expected.
    #[schema(minimum = 0, maximum = 1)]
    pub typical_p: Option<f64>,
    /// TensorRT-LLM: the least value of a `top_p` that decays.
    pub top_p_min: Option<f64>,
    /// llama.cpp: sample from tokens within this many standard deviations of the likeliest.
    pub top_n_sigma: Option<f64>,
    /// Above 1: tokens that the text contains become less likely.
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f64>,
    /// llama.cpp's name of `repetition_penalty`.
    pub repeat_penalty: Option<f64>,
    /// llama.cpp: how many last tokens the penalties look at.
    pub repeat_last_n: Option<i64>,
    /// The answer has at least this many tokens.
    #[schema(minimum = 0)]
    pub min_tokens: Option<u64>,
    /// llama.cpp's name of `max_tokens`.
    pub n_predict: Option<i64>,
    /// The answer ends with any of these token ids. The embedded engine also accepts lists of ids.
    pub stop_token_ids: Option<Vec<StopTokens>>,
    /// SGLang: the answer ends where this expression matches, or any of these.
    pub stop_regex: Option<StopExpression>,
    /// Do not end the answer at the model's end token.
    pub ignore_eos: Option<bool>,
    /// vLLM, TensorRT-LLM: the answer contains the text that ended it.
    pub include_stop_str_in_output: Option<bool>,
    /// SGLang: the answer contains the text that ended it.
    pub no_stop_trim: Option<bool>,
    /// vLLM: texts that the answer must not contain.
    pub bad_words: Option<Vec<String>>,
    /// vLLM: the only token ids that the answer may have.
    pub allowed_token_ids: Option<Vec<u32>>,

    /// The embedded engine: how tokens are chosen. docs/engines.md describes the strategies.
    pub decoding_strategy: Option<DecodingStrategy>,
    /// The embedded engine: the number of beams of a beam search.
    #[schema(minimum = 2, maximum = 8)]
    pub num_beams: Option<u32>,
    /// vLLM, TensorRT-LLM: search with `n` beams.
    pub use_beam_search: Option<bool>,
    /// Above 0, a beam search prefers longer answers; below 0, shorter ones.
    pub length_penalty: Option<f64>,
    /// When a beam search ends: true, false, or for the embedded engine `never`.
    #[schema(value_type = Option<Value>)]
    pub early_stopping: Option<Value>,
    /// The embedded engine: how much a contrastive search avoids repetition.
    #[schema(minimum = 0, maximum = 1)]
    pub penalty_alpha: Option<f64>,

    /// The answer is JSON that matches this schema.
    #[schema(value_type = Option<Value>)]
    pub guided_json: Option<Value>,
    /// The answer matches this regular expression.
    pub guided_regex: Option<String>,
    /// The answer is one of these texts.
    pub guided_choice: Option<Vec<String>>,
    /// The answer matches this grammar.
    pub guided_grammar: Option<String>,
    /// vLLM: the white space that is allowed in JSON, as a regular expression.
    pub guided_whitespace_pattern: Option<String>,
    /// vLLM's newer name of the `guided_` fields: an object with `json`, `regex`, `choice` or `grammar`.
    #[schema(value_type = Option<Object>)]
    pub structured_outputs: Option<Value>,
    /// vLLM: text with structured parts.
    #[schema(value_type = Option<Value>)]
    pub structural_tag: Option<Value>,
    /// SGLang: the answer matches this regular expression.
    pub regex: Option<String>,
    /// SGLang: the answer matches this grammar in EBNF.
    pub ebnf: Option<String>,
    /// SGLang, llama.cpp: the answer is JSON that matches this schema, as an object or as text.
    #[schema(value_type = Option<Value>)]
    pub json_schema: Option<Value>,
    /// llama.cpp: the answer matches this grammar in GBNF.
    pub grammar: Option<String>,
    /// TGI: a guideline for models that judge safety.
    pub guideline: Option<String>,

    /// Switches of the model's chat template. Only these names are passed to an engine.
    pub chat_template_kwargs: Option<TemplateSwitches>,
    /// vLLM: the most tokens of reasoning.
    pub thinking_token_budget: Option<i64>,
    /// llama.cpp: the most tokens of reasoning.
    pub thinking_budget_tokens: Option<i64>,
    /// vLLM: whether the answer has the model's reasoning.
    pub include_reasoning: Option<bool>,
    /// SGLang: return the reasoning apart from the answer.
    pub separate_reasoning: Option<bool>,
    /// SGLang: stream the reasoning in pieces, or send it in one piece.
    pub stream_reasoning: Option<bool>,
    /// llama.cpp: how reasoning is recognised, `none`, `auto` or `deepseek`.
    pub reasoning_format: Option<String>,
    /// llama.cpp: recognise calls of functions in the text.
    pub parse_tool_calls: Option<bool>,
    /// vLLM, SGLang: the model continues the last message, which is the assistant's.
    pub continue_final_message: Option<bool>,
    /// vLLM: end the prompt with the beginning of an answer. The default is true.
    pub add_generation_prompt: Option<bool>,
    /// vLLM, TensorRT-LLM: add special tokens to the prompt.
    pub add_special_tokens: Option<bool>,
    /// vLLM: documents for a chat template that has a place for them.
    #[schema(value_type = Option<Vec<Object>>)]
    pub documents: Option<Vec<Value>>,
    /// vLLM, TensorRT-LLM: keep only this many last tokens of the prompt. -1: as many as the model takes.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    /// Leave special tokens out of the answer's text.
    pub skip_special_tokens: Option<bool>,
    /// vLLM, TensorRT-LLM: put spaces between special tokens.
    pub spaces_between_special_tokens: Option<bool>,
    /// The answer begins with the prompt.
    pub echo: Option<bool>,
    /// vLLM: return the log probabilities of the prompt's tokens, and of this many likeliest ones.
    pub prompt_logprobs: Option<i64>,
    /// vLLM: return the token ids of prompt and answer.
    pub return_token_ids: Option<bool>,
    /// vLLM: show tokens in log probabilities by their ids.
    pub return_tokens_as_token_ids: Option<bool>,
    /// vLLM: the request's id in the engine's log.
    pub request_id: Option<String>,
    /// vLLM: requests with different salts share no cached prompts.
    pub cache_salt: Option<String>,

    /// llama.cpp: reuse the cached beginning of the prompt.
    pub cache_prompt: Option<bool>,
    /// llama.cpp: the strength of DRY sampling, which makes repeated sequences less likely. 0 is off.
    pub dry_multiplier: Option<f64>,
    /// llama.cpp: how fast the penalty of DRY sampling grows with the length of a repetition.
    pub dry_base: Option<f64>,
    /// llama.cpp: repetitions up to this many tokens cost nothing in DRY sampling.
    pub dry_allowed_length: Option<i64>,
    /// llama.cpp: how many last tokens DRY sampling looks at.
    pub dry_penalty_last_n: Option<i64>,
    /// llama.cpp: texts at which DRY sampling starts anew.
    pub dry_sequence_breakers: Option<Vec<String>>,
    /// llama.cpp: how far the temperature moves with the uncertainty.
    pub dynatemp_range: Option<f64>,
    /// llama.cpp: the exponent of a temperature that moves.
    pub dynatemp_exponent: Option<f64>,
    /// llama.cpp: Mirostat sampling, 0 (off), 1 or 2.
    #[schema(minimum = 0, maximum = 2)]
    pub mirostat: Option<u32>,
    /// llama.cpp: the target entropy of Mirostat.
    pub mirostat_tau: Option<f64>,
    /// llama.cpp: the learning rate of Mirostat.
    pub mirostat_eta: Option<f64>,
    /// llama.cpp: the chance of XTC sampling, which removes the likeliest tokens.
    pub xtc_probability: Option<f64>,
    /// llama.cpp: the least probability of tokens that XTC removes.
    pub xtc_threshold: Option<f64>,
    /// llama.cpp: the samplers and their order.
    pub samplers: Option<Vec<String>>,
    /// llama.cpp: samplers leave at least this many tokens.
    pub min_keep: Option<i64>,
    /// llama.cpp: keep this many first tokens of the prompt when the context is full.
    pub n_keep: Option<i64>,
    /// llama.cpp: the least indentation of a line, in characters.
    pub n_indent: Option<i64>,
    /// llama.cpp: return the probabilities of this many likeliest tokens.
    pub n_probs: Option<i64>,
    /// llama.cpp: return probabilities after sampling.
    pub post_sampling_probs: Option<bool>,
    /// llama.cpp: return the token ids of the answer.
    pub return_tokens: Option<bool>,
    /// llama.cpp: the most milliseconds that the answer may take after its first line break.
    pub t_max_predict_ms: Option<i64>,
    /// llama.cpp: return timings with each piece.
    pub timings_per_token: Option<bool>,
}

/// One token id, or several in a row.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum StopTokens {
    One(u32),
    Row(Vec<u32>),
}

/// One expression or several.
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

/// Switches of a chat template; which ones have an effect depends on the model.
#[derive(ToSchema)]
pub struct TemplateSwitches {
    pub enable_thinking: Option<bool>,
    pub thinking: Option<bool>,
    pub reasoning_effort: Option<String>,
    pub thinking_budget: Option<i64>,
}
