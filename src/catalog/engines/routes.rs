//! The routes of engines beside chats and completions: those of OpenAI's and vLLM's APIs, which engine has which, and
//! where one uses names of its own.

/// A route that not every engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    Embeddings,
    Rerank,
    Score,
    Transcriptions,
    Translations,
    Speech,
    Tokenize,
    Detokenize,
}

/// How an engine wants to be asked for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenApi {
    /// `prompt` or `messages` in, `tokens`, `count` and `max_model_len` out; `tokens` in, `prompt` out.
    Vllm,
    /// The same of a `prompt` alone, and `text` out.
    Sglang,
    /// `content` in and out; messages are written by its `/apply-template` first.
    LlamaCpp,
}

impl Extra {
    /// Where clients ask for it.
    pub fn path(self) -> &'static str {
        match self {
            Extra::Embeddings => "/v1/embeddings",
            Extra::Rerank => "/v1/rerank",
            Extra::Score => "/v1/score",
            Extra::Transcriptions => "/v1/audio/transcriptions",
            Extra::Translations => "/v1/audio/translations",
            Extra::Speech => "/v1/audio/speech",
            Extra::Tokenize => "/v1/tokenize",
            Extra::Detokenize => "/v1/detokenize",
        }
    }
}
