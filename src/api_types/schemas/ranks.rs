//! Reranking and scoring.

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_response::Usage;
use super::embeddings::TruncationDirection;

/// A query and the documents to rank.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct RerankRequest {
    /// The name of a ranking model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    pub query: TextOrDocument,
    /// The documents. TEI's name of this field is `texts`.
    pub documents: Option<Vec<TextOrDocument>>,
    /// Return only this many best documents; 0 for all.
    #[schema(minimum = 0)]
    pub top_n: Option<u64>,
    /// Include the documents in the response.
    pub return_documents: Option<bool>,
    /// Truncate documents to this many tokens.
    pub max_tokens_per_doc: Option<u64>,
    /// Fields to read, if documents are objects.
    pub rank_fields: Option<Vec<String>>,
    #[serde(flatten)]
    pub scoring: ScoringFields,
}

/// Two texts, one text and several others, or pairs of texts. The three pairs of fields are alternatives.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct ScoreRequest {
    /// The name of a ranking or embedding model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// One text, or as many as `text_2` has.
    pub text_1: Option<ScoreTexts>,
    pub text_2: Option<ScoreTexts>,
    /// vLLM's newer name of `text_1`.
    pub queries: Option<ScoreTexts>,
    /// vLLM's newer name of `text_2`.
    pub documents: Option<ScoreTexts>,
    /// Another name of `text_1`.
    pub data_1: Option<ScoreTexts>,
    /// Another name of `text_2`.
    pub data_2: Option<ScoreTexts>,
    /// SGLang: the query for `items`.
    pub query: Option<ScoreTexts>,
    /// SGLang: the texts to score.
    pub items: Option<ScoreTexts>,
    #[serde(flatten)]
    pub scoring: ScoringFields,
}

/// Scoring and truncation options.
#[derive(ToSchema)]
pub struct ScoringFields {
    /// Id of your end user, for your records. Engines ignore it.
    pub user: Option<String>,
    /// Embedded engine: instruction for models that support one.
    pub instruction: Option<String>,
    /// Return scores without a sigmoid.
    pub raw_scores: Option<bool>,
    /// vLLM: false has the effect of `raw_scores: true`.
    pub use_activation: Option<bool>,
    /// vLLM's older name of `use_activation`.
    pub activation: Option<bool>,
    /// vLLM's oldest name of `use_activation`.
    pub softmax: Option<bool>,
    /// Truncate texts that are too long instead of refusing them.
    pub truncate: Option<bool>,
    /// Truncate texts to this many tokens; -1 for the model's maximum.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    pub truncation_direction: Option<TruncationDirection>,
    /// vLLM: add special tokens to each text.
    pub add_special_tokens: Option<bool>,
    /// Normalize vectors to length one, if scores are computed from vectors.
    pub normalize: Option<bool>,
    /// TEI: the documents of a rerank.
    pub texts: Option<Vec<String>>,
    /// TEI: include the texts in the response.
    pub return_text: Option<bool>,
    /// vLLM, SGLang: a conversation, for models that support it.
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<Value>>,
    /// llama.cpp: text in its own form.
    #[schema(value_type = Option<Value>)]
    pub content: Option<Value>,
    /// llama.cpp: normalization of vectors.
    pub embd_normalize: Option<i64>,
}

/// A string, or an object with a `text` field.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum TextOrDocument {
    Text(String),
    #[schema(title = "Document")]
    Document {
        text: Option<String>,
    },
}

/// A string or a list of strings.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ScoreTexts {
    One(TextOrDocument),
    Several(Vec<TextOrDocument>),
}

/// The documents, best first.
#[derive(ToSchema)]
pub struct RerankResponse {
    #[schema(examples("rerank-68f0-1"))]
    pub id: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    pub results: Vec<RerankResult>,
    pub usage: Option<RankUsage>,
}

#[derive(ToSchema)]
pub struct RerankResult {
    /// Index of the document in the request, from 0.
    pub index: u32,
    /// Score; higher is better. The range depends on the model.
    pub relevance_score: f64,
    /// The document, if `return_documents` is true.
    #[schema(value_type = Option<Value>)]
    pub document: Option<Value>,
}

/// Scores in the order of the pairs.
#[derive(ToSchema)]
pub struct ScoreResponse {
    #[schema(examples("score-68f0-1"))]
    pub id: Option<String>,
    /// `list`.
    #[schema(examples("list"))]
    pub object: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    pub data: Option<Vec<Score>>,
    /// SGLang: scores of the items.
    #[schema(value_type = Option<Vec<Value>>)]
    pub scores: Option<Vec<Value>>,
    pub usage: Option<Usage>,
}

#[derive(ToSchema)]
pub struct Score {
    pub index: u32,
    /// `score`.
    #[schema(examples("score"))]
    pub object: Option<String>,
    /// Score; higher means more similar. The range depends on the model.
    pub score: f64,
}

/// Token usage.
#[derive(ToSchema)]
pub struct RankUsage {
    pub total_tokens: Option<u64>,
    pub prompt_tokens: Option<u64>,
}
