//! Engine routes in addition to chats and completions: the routes of OpenAI's and vLLM's APIs, and engines that use other names for
//! them.

/// A route that only some engines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraRoute {
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

impl ExtraRoute {
    /// The path that clients use.
    pub fn path(self) -> &'static str {
        match self {
            ExtraRoute::Embeddings => "/v1/embeddings",
            ExtraRoute::Rerank => "/v1/rerank",
            ExtraRoute::Score => "/v1/score",
            ExtraRoute::Transcriptions => "/v1/audio/transcriptions",
            ExtraRoute::Translations => "/v1/audio/translations",
            ExtraRoute::Speech => "/v1/audio/speech",
            ExtraRoute::Voices => "/v1/audio/voices",
            ExtraRoute::Images => "/v1/images/generations",
            ExtraRoute::ImageEdits => "/v1/images/edits",
            ExtraRoute::ImageVariations => "/v1/images/variations",
            ExtraRoute::Infill => "/v1/infill",
            ExtraRoute::Completion => "/v1/completion",
            ExtraRoute::Tokenize => "/v1/tokenize",
            ExtraRoute::Detokenize => "/v1/detokenize",
        }
    }

    /// Returns the path of this route on the engine.
    pub fn engine_path(self) -> &'static str {
        match self {
            ExtraRoute::Infill => "/infill",
            ExtraRoute::Completion => "/completion",
            other => other.path(),
        }
    }
}
