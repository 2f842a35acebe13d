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

use Purpose::{Chat, Device, Order, Route, Text};

/// Routes, the field of their examples that holds a name, and the kind of that name.
const ROUTES: [(&str, &str, Purpose); 36] = [
    ("/v1/chat/completions", "model", Chat),
    ("/v1/responses", "model", Chat),
    ("/v1/responses/input_tokens", "model", Chat),
    ("/v1/responses/compact", "model", Chat),
    ("/v1/messages", "model", Chat),
    ("/v1/messages/count_tokens", "model", Chat),
    ("/v1/completions", "model", Text),
    ("/v1/tokenize", "model", Route(ExtraRoute::Tokenize)),
    ("/v1/detokenize", "model", Route(ExtraRoute::Detokenize)),
    ("/v1/embeddings", "model", Route(ExtraRoute::Embeddings)),
    ("/v1/rerank", "model", Route(ExtraRoute::Rerank)),
    ("/v1/score", "model", Route(ExtraRoute::Score)),
    (
        "/v1/audio/transcriptions",
        "model",
        Route(ExtraRoute::Transcriptions),
    ),
    (
        "/v1/audio/translations",
        "model",
        Route(ExtraRoute::Translations),
    ),
    ("/v1/audio/speech", "model", Route(ExtraRoute::Speech)),
    ("/v1/audio/voices", "model", Route(ExtraRoute::Voices)),
    ("/v1/images/generations", "model", Route(ExtraRoute::Images)),
    ("/v1/images/edits", "model", Route(ExtraRoute::ImageEdits)),
    (
        "/v1/images/variations",
        "model",
        Route(ExtraRoute::ImageVariations),
    ),
    ("/v1/infill", "model", Route(ExtraRoute::Infill)),
    ("/v1/completion", "model", Route(ExtraRoute::Completion)),
    ("/v1/props", "model", Chat),
    ("/v1/models/{model}", "model", Chat),
    ("/api/chat", "model", Chat),
    ("/api/generate", "model", Chat),
    ("/api/show", "model", Chat),
    ("/api/embed", "model", Route(ExtraRoute::Embeddings)),
    ("/run", "model", Text),
    ("/admin/load", "model", Order),
    ("/admin/unload", "model", Order),
    ("/admin/plan", "model", Order),
    ("/admin/logs", "model", Chat),
    ("/admin/get_model", "model_name", Order),
    ("/admin/load_model", "model_name", Order),
    ("/admin/devices/cordon", "device", Device),
    ("/admin/devices/uncordon", "device", Device),
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
