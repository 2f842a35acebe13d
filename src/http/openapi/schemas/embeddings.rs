//! Embeddings: texts as vectors.

use serde_json::Value;
use utoipa::ToSchema;

use super::completions::PromptElement;

/// Texts that become vectors.
///
/// The fields up to `user` are OpenAI's, the others extensions of engines. An engine may accept fields that are not
/// listed here.
#[derive(ToSchema)]
pub struct EmbeddingRequest {
    /// The name of an embedding model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    pub input: EmbeddingInput,
    /// `float`: lists of numbers. `base64`: little-endian 32-bit floats.
    pub encoding_format: Option<EncodingFormat>,
    /// Shorten the vectors to this many numbers. Not every engine can.
    #[schema(minimum = 1)]
    pub dimensions: Option<u64>,
    /// Your own user, for your own records. Engines do nothing with it.
    pub user: Option<String>,
    /// Make the length of each vector one. The default is the model's own.
    pub normalize: Option<bool>,
    /// Add special tokens to each text. The default is true.
    pub add_special_tokens: Option<bool>,
    /// The embedded engine: the prompt of the model's files that goes before each text.
    pub prompt_name: Option<String>,
    /// Cut texts that are too long. Without it, they are refused.
    pub truncate: Option<bool>,
    /// Cut texts to this many tokens. -1: to what the model takes.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    pub truncation_direction: Option<TruncationDirection>,
    /// vLLM, SGLang: a conversation in place of `input`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<Value>>,
    /// llama.cpp: the older name of `input`.
    #[schema(value_type = Option<Value>)]
    pub content: Option<Value>,
    /// llama.cpp: how vectors are normalised, -1 (not at all) to 2 (to length one) and above.
    pub embd_normalize: Option<i64>,
    /// vLLM: apply the model's activation.
    pub activation: Option<bool>,
    /// vLLM's older name of `activation`.
    pub softmax: Option<bool>,
    /// vLLM's newer name of `activation`.
    pub use_activation: Option<bool>,
    /// TEI: return scores without a sigmoid.
    pub raw_scores: Option<bool>,
    /// TEI: return the texts too.
    pub return_text: Option<bool>,
    /// TEI's name of `documents` in a rerank.
    pub texts: Option<Vec<String>>,
}

/// A text, up to 2048 texts, the token ids of a text, or those of up to 2048 texts.
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

/// Which end of a long text is cut off. The default is `right`.
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
