//! Ranks and scores: how well documents answer a query.

use serde_json::Value;
use utoipa::ToSchema;

use super::chat_answer::Usage;
use super::embeddings::TruncationDirection;

/// A query and the documents that are ranked.
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
    /// Return only this many best documents. 0: all.
    #[schema(minimum = 0)]
    pub top_n: Option<u64>,
    /// Return the documents too.
    pub return_documents: Option<bool>,
    /// Cut documents to this many tokens.
    pub max_tokens_per_doc: Option<u64>,
    /// The fields of a document that are read, where documents are objects.
    pub rank_fields: Option<Vec<String>>,
    #[serde(flatten)]
    pub scoring: ScoringFields,
}

/// Two texts, one text with several, or pairs of texts. Give one of the three pairs of fields.
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
    /// SGLang: the query whose `items` are scored.
    pub query: Option<ScoreTexts>,
    /// SGLang: the texts that are scored.
    pub items: Option<ScoreTexts>,
    #[serde(flatten)]
    pub scoring: ScoringFields,
}

/// How scores are computed and texts are cut.
#[derive(ToSchema)]
pub struct ScoringFields {
    /// Your own user, for your own records. Engines do nothing with it.
    pub user: Option<String>,
    /// The embedded engine: the instruction in the prompt of a model that reads one.
    pub instruction: Option<String>,
    /// Return scores without a sigmoid.
    pub raw_scores: Option<bool>,
    /// vLLM: false is the same as `raw_scores: true`.
    pub use_activation: Option<bool>,
    /// vLLM's older name of `use_activation`.
    pub activation: Option<bool>,
    /// vLLM's oldest name of `use_activation`.
    pub softmax: Option<bool>,
    /// Cut texts that are too long. Without it, they are refused.
    pub truncate: Option<bool>,
    /// Cut texts to this many tokens. -1: to what the model takes.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    pub truncation_direction: Option<TruncationDirection>,
    /// vLLM: add special tokens to each text.
    pub add_special_tokens: Option<bool>,
    /// Make the length of vectors one, where scores are made of vectors.
    pub normalize: Option<bool>,
    /// TEI: the documents of a rerank.
    pub texts: Option<Vec<String>>,
    /// TEI: return the texts too.
    pub return_text: Option<bool>,
    /// vLLM, SGLang: a conversation for models that read one.
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<Value>>,
    /// llama.cpp: a text in its own form.
    #[schema(value_type = Option<Value>)]
    pub content: Option<Value>,
    /// llama.cpp: how vectors are normalised.
    pub embd_normalize: Option<i64>,
}

/// A text, or an object that has it as `text`.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum TextOrDocument {
    Text(String),
    #[schema(title = "Document")]
    Document {
        text: Option<String>,
    },
}

/// One text or several.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ScoreTexts {
    One(TextOrDocument),
    Several(Vec<TextOrDocument>),
}

/// The documents, best first.
#[derive(ToSchema)]
pub struct RerankAnswer {
    #[schema(examples("rerank-68f0-1"))]
    pub id: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    pub results: Vec<RerankResult>,
    pub usage: Option<RankUsage>,
}

#[derive(ToSchema)]
pub struct RerankResult {
    /// The document's place in the request, from 0.
    pub index: u32,
    /// Higher is better. Its range depends on the model.
    pub relevance_score: f64,
    /// The document, if `return_documents` is true.
    #[schema(value_type = Option<Value>)]
    pub document: Option<Value>,
}

/// Scores in the order of the pairs.
#[derive(ToSchema)]
pub struct ScoreAnswer {
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
    /// Higher is more alike. Its range depends on the model.
    pub score: f64,
}

/// The tokens of the texts.
#[derive(ToSchema)]
pub struct RankUsage {
    pub total_tokens: Option<u64>,
    pub prompt_tokens: Option<u64>,
}
