//! Embeddings.

use serde_json::Value;
use utoipa::ToSchema;

use super::completions::PromptElement;

/// An embeddings request.
///
/// The fields up to `user` are OpenAI's; the others are extensions of engines. An engine may accept fields that are not listed
/// here.
#[derive(ToSchema)]
pub struct EmbeddingRequest {
    /// The name of an embedding model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    pub input: EmbeddingInput,
    /// `float`: lists of numbers. `base64`: little-endian 32-bit floats.
    pub encoding_format: Option<EncodingFormat>,
    /// Shorten the vectors to this many numbers, if the engine supports it.
    #[schema(minimum = 1)]
    pub dimensions: Option<u64>,
    /// Id of your end user, for your records. Engines ignore it.
    pub user: Option<String>,
    /// Normalize each vector to length one. The default depends on the model.
    pub normalize: Option<bool>,
    /// Add special tokens to each text. The default is true.
    pub add_special_tokens: Option<bool>,
    /// Embedded engine: name of a prompt in the model's files that precedes each text.
    pub prompt_name: Option<String>,
    /// Truncate texts that are too long instead of refusing them.
    pub truncate: Option<bool>,
    /// Truncate texts to this many tokens; -1 for the model's maximum.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    pub truncation_direction: Option<TruncationDirection>,
    /// vLLM, SGLang: a conversation instead of `input`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<Value>>,
    /// llama.cpp: older name of `input`.
    #[schema(value_type = Option<Value>)]
    pub content: Option<Value>,
    /// llama.cpp: normalization of vectors, from -1 (none) to 2 (length one) and above.
    pub embd_normalize: Option<i64>,
    /// vLLM: apply the model's activation.
    pub activation: Option<bool>,
    /// vLLM's older name of `activation`.
    pub softmax: Option<bool>,
    /// vLLM's newer name of `activation`.
    pub use_activation: Option<bool>,
    /// TEI: return scores without a sigmoid.
    pub raw_scores: Option<bool>,
    /// TEI: include the texts in the response.
    pub return_text: Option<bool>,
    /// TEI's name of `documents` in a rerank.
    pub texts: Option<Vec<String>>,
}

/// A string, up to 2048 strings, or the token ids of one or up to 2048 strings.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum EmbeddingInput {
    #[schema(title = "EmbeddingText")]
    Text(String),
    #[schema(title = "EmbeddingTexts")]
    Texts(Vec<PromptElement>),
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncodingFormat {
    Float,
    Base64,
}

/// The end at which long texts are truncated. The default is `right`.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TruncationDirection {
    Left,
    Right,
}

/// Vectors in the order of the texts.
#[derive(ToSchema)]
pub struct EmbeddingList {
    /// `list`.
    #[schema(examples("list"))]
    pub object: String,
    pub data: Vec<Embedding>,
    /// The model's name.
    pub model: String,
    pub usage: Option<EmbeddingUsage>,
}

#[derive(ToSchema)]
pub struct Embedding {
    /// `embedding`.
    #[schema(examples("embedding"))]
    pub object: String,
    pub index: u32,
    pub embedding: EmbeddingVector,
}

/// Numbers, or base64 of little-endian 32-bit floats.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum EmbeddingVector {
    Numbers(Vec<f64>),
    Base64(String),
}

#[derive(ToSchema)]
pub struct EmbeddingUsage {
    pub prompt_tokens: u64,
    pub total_tokens: u64,
}
