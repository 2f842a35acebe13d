//! The purposes of names in the document's examples: a chat model, a model whose engine has a route, a device.

use catalog::{Entry, ExtraRoute, Prompt, Recipe};

/// The kind of name that an example needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A chat model.
    Chat,
    /// A model for text completion.
    Text,
    /// A model whose engine has a less common route.
    Route(ExtraRoute),
    /// A model that is loaded or unloaded.
    Order,
    /// A device that is taken out of service.
    Device,
    /// The address of the service.
    Server,
}

/// Routes, the field of their examples that holds a name, and the kind of that name.
const ROUTES: [(&str, &str, Purpose); 36] = [
    ("/v1/chat/completions", "model", Purpose::Chat),
    ("/v1/responses", "model", Purpose::Chat),
    ("/v1/responses/input_tokens", "model", Purpose::Chat),
    ("/v1/responses/compact", "model", Purpose::Chat),
    ("/v1/messages", "model", Purpose::Chat),
    ("/v1/messages/count_tokens", "model", Purpose::Chat),
    ("/v1/completions", "model", Purpose::Text),
    (
        "/v1/tokenize",
        "model",
        Purpose::Route(ExtraRoute::Tokenize),
    ),
    (
        "/v1/detokenize",
        "model",
        Purpose::Route(ExtraRoute::Detokenize),
    ),
    (
        "/v1/embeddings",
        "model",
        Purpose::Route(ExtraRoute::Embeddings),
    ),
    ("/v1/rerank", "model", Purpose::Route(ExtraRoute::Rerank)),
    ("/v1/score", "model", Purpose::Route(ExtraRoute::Score)),
    (
        "/v1/audio/transcriptions",
        "model",
        Purpose::Route(ExtraRoute::Transcriptions),
    ),
    (
        "/v1/audio/translations",
        "model",
        Purpose::Route(ExtraRoute::Translations),
    ),
    (
        "/v1/audio/speech",
        "model",
        Purpose::Route(ExtraRoute::Speech),
    ),
    (
        "/v1/audio/voices",
        "model",
        Purpose::Route(ExtraRoute::Voices),
    ),
    (
        "/v1/images/generations",
        "model",
        Purpose::Route(ExtraRoute::Images),
    ),
    (
        "/v1/images/edits",
        "model",
        Purpose::Route(ExtraRoute::ImageEdits),
    ),
    (
        "/v1/images/variations",
        "model",
        Purpose::Route(ExtraRoute::ImageVariations),
    ),
    ("/v1/infill", "model", Purpose::Route(ExtraRoute::Infill)),
    (
        "/v1/completion",
        "model",
        Purpose::Route(ExtraRoute::Completion),
    ),
    ("/v1/props", "model", Purpose::Chat),
    ("/v1/models/{model}", "model", Purpose::Chat),
    ("/api/chat", "model", Purpose::Chat),
    ("/api/generate", "model", Purpose::Chat),
    ("/api/show", "model", Purpose::Chat),
    (
        "/api/embed",
        "model",
        Purpose::Route(ExtraRoute::Embeddings),
    ),
    ("/run", "model", Purpose::Text),
    ("/admin/load", "model", Purpose::Order),
    ("/admin/unload", "model", Purpose::Order),
    ("/admin/plan", "model", Purpose::Order),
    ("/admin/logs", "model", Purpose::Chat),
    ("/admin/get_model", "model_name", Purpose::Order),
    ("/admin/load_model", "model_name", Purpose::Order),
    ("/admin/devices/cordon", "device", Purpose::Device),
    ("/admin/devices/uncordon", "device", Purpose::Device),
];

impl Purpose {
    /// Returns the field that holds a name in a route's examples, and the kind of that name.
    pub fn of_path(path: &str) -> Option<(&'static str, Purpose)> {
        let found = ROUTES.iter().find(|(known, _, _)| *known == path);
        found.map(|(_, field, purpose)| (*field, *purpose))
    }

    /// Rates a model for the purpose. 0 means that the model cannot serve it.
    pub fn rank(self, entry: &Entry) -> u8 {
        let generates = entry.recipe.generates();
        let chats = generates && !matches!(entry.generation.prompt, Prompt::Disabled);
        match self {
            Purpose::Chat => u8::from(chats),
            Purpose::Text => u8::from(generates),
            Purpose::Order => u8::from(!entry.recipe.is_remote()),
            Purpose::Device | Purpose::Server => 0,
            Purpose::Route(ExtraRoute::Tokenize | ExtraRoute::Detokenize) => {
                u8::from(generates && entry.recipe.has(ExtraRoute::Tokenize))
            }
            Purpose::Route(extra) if !entry.recipe.has(extra) => 0,
            // An engine that has the route may still run a model that only generates.
            Purpose::Route(_) => match (&entry.recipe, generates) {
                (Recipe::Candle(_), _) | (_, false) => 2,
                (
                    Recipe::Server(_)
                    | Recipe::Command(_)
                    | Recipe::Remote(_)
                    | Recipe::RayServe(_),
                    true,
                ) => 1,
            },
        }
    }
}
