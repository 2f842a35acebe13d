//! Text completions.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_response::Usage;
use super::engine_fields::EngineFields;
use super::generation::GenerationFields;

/// A text completion request.
///
/// An engine may accept fields that are not listed here. `null` is the same as a missing field.
#[derive(ToSchema)]
pub struct CompletionRequest {
    /// The model's name or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    pub prompt: Prompt,
    /// Return the log probabilities of each token and of this many likeliest tokens.
    #[schema(minimum = 0, maximum = 20)]
    pub logprobs: Option<u32>,
    /// Generate this many completions and return the `n` likeliest.
    #[schema(minimum = 1, maximum = 20)]
    pub best_of: Option<u32>,
    /// The text after the gap to fill, for models that support it.
    pub suffix: Option<String>,
    #[serde(flatten)]
    pub generation: GenerationFields,
    #[serde(flatten)]
    pub engine: EngineFields,
}

/// A string, several strings, or the token ids of one or several strings.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum Prompt {
    Text(String),
    Texts(Vec<PromptElement>),
}

/// A string, a token id, or the token ids of a string. All elements of a list have the same type.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum PromptElement {
    Text(String),
    Token(u32),
    Tokens(Vec<u32>),
}

/// A completion, or a chunk of a stream as the `data` of an event. The stream ends with `data: [DONE]`, or with an event whose
/// `data` is an error object.
#[derive(ToSchema)]
pub struct Completion {
    #[schema(examples("cmpl-41d0"))]
    pub id: String,
    /// `text_completion`.
    #[schema(examples("text_completion"))]
    pub object: String,
    /// Unix time in seconds.
    pub created: i64,
    /// The model's name.
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    pub usage: Option<Usage>,
    pub system_fingerprint: Option<String>,
}

/// One choice: `n` for each prompt, in the order of the prompts.
#[derive(ToSchema)]
pub struct CompletionChoice {
    pub index: u32,
    pub text: String,
    /// `stop`, `length` or `content_filter`. Null before the last chunk.
    #[schema(examples("stop"))]
    pub finish_reason: Option<String>,
    pub logprobs: Option<CompletionLogprobs>,
    /// The stop sequence or token that ended the response, if the engine reports it.
    #[schema(value_type = Option<Value>)]
    pub stop_reason: Option<Value>,
}

/// Log probabilities, with an element per token.
#[derive(ToSchema)]
pub struct CompletionLogprobs {
    pub tokens: Option<Vec<String>>,
    /// Null for the first token of a prompt.
    pub token_logprobs: Option<Vec<Option<f64>>>,
    /// The likeliest tokens at each position.
    pub top_logprobs: Option<Vec<Option<BTreeMap<String, f64>>>>,
    /// Offset of each token in the text, in characters.
    pub text_offset: Option<Vec<u64>>,
}
