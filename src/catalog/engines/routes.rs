//! Engine routes in addition to chats and completions: the routes of OpenAI's and vLLM's APIs, and engines that use other names for
//! them.

/// A route that only some engines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    Embeddings,
    Rerank,
    Score,
    Transcriptions,
    Translations,
    Speech,
    Voices,
    Images,
    ImageEdits,
    ImageVariations,
    /// llama.cpp: completes the text between two given texts.
    Infill,
    /// llama.cpp's own form of a completion.
    Completion,
    Tokenize,
    Detokenize,
}

/// The format of an engine's token routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenApi {
    /// `prompt` or `messages` in, `tokens`, `count` and `max_model_len` out; `tokens` in, `prompt` out.
    Vllm,
    /// The same, but only with a `prompt`, and `text` out.
    Sglang,
    /// `content` in and out; messages are first rendered with its `/apply-template`.
    LlamaCpp,
}

impl Extra {
    /// The path that clients use.
    pub fn path(self) -> &'static str {
        match self {
            Extra::Embeddings => "/v1/embeddings",
            Extra::Rerank => "/v1/rerank",
            Extra::Score => "/v1/score",
            Extra::Transcriptions => "/v1/audio/transcriptions",
            Extra::Translations => "/v1/audio/translations",
            Extra::Speech => "/v1/audio/speech",
            Extra::Voices => "/v1/audio/voices",
            Extra::Images => "/v1/images/generations",
            Extra::ImageEdits => "/v1/images/edits",
            Extra::ImageVariations => "/v1/images/variations",
            Extra::Infill => "/v1/infill",
            Extra::Completion => "/v1/completion",
            Extra::Tokenize => "/v1/tokenize",
            Extra::Detokenize => "/v1/detokenize",
        }
    }

    /// Returns the path of this route on the engine.
    pub fn engine_path(self) -> &'static str {
        match self {
            Extra::Infill => "/infill",
            Extra::Completion => "/completion",
            other => other.path(),
        }
    }
}
