//! The kind of a model and its context length, for lists of models shown to clients.

use super::entry::Entry;
use super::model_card::ModelCard;
use crate::documents::Prompt;
use crate::engines::EngineKind;
use crate::recipes::{ModelTask, Recipe};

/// The label that lists a model's capabilities, separated by commas or spaces.
const CAPABILITIES: &str = "capabilities";
/// Words of that label, and the kinds they stand for.
const NAMED: [(&str, ModelKind); 8] = [
    ("embedding", ModelKind::Embedding),
    ("embeddings", ModelKind::Embedding),
    ("rerank", ModelKind::Rerank),
    ("audio", ModelKind::Audio),
    ("transcription", ModelKind::Audio),
    ("speech", ModelKind::Audio),
    ("image", ModelKind::Image),
    ("chat", ModelKind::Chat),
];

/// The task of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Conversations.
    Chat,
    /// Text completion, without conversations.
    Completion,
    Embedding,
    Rerank,
    Audio,
    Image,
}

impl ModelKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ModelKind::Chat => "chat",
            ModelKind::Completion => "completion",
            ModelKind::Embedding => "embedding",
            ModelKind::Rerank => "rerank",
            ModelKind::Audio => "audio",
            ModelKind::Image => "image",
        }
    }
}

impl Entry {
    /// The words of the `capabilities` label.
    pub fn capabilities(&self) -> impl Iterator<Item = &str> {
        let listed = self.labels.get(CAPABILITIES).map_or("", String::as_str);
        listed.split([',', ' ']).filter(|word| !word.is_empty())
    }

    /// The kind of the model, from the label `capabilities`, then its engine, then its files. `None` if unknown.
    pub fn kind(&self, card: &ModelCard) -> Option<ModelKind> {
        let named = |word: &str| NAMED.iter().find(|(known, _)| *known == word);
        if let Some((_, kind)) = self.capabilities().find_map(named) {
            return Some(*kind);
        }
        let text = match self.generation.prompt {
            Prompt::Disabled => ModelKind::Completion,
            Prompt::ChatTemplate | Prompt::Format(_) => ModelKind::Chat,
        };
        match &self.recipe {
            Recipe::Candle(candle) => match candle.serves? {
                ModelTask::Texts => Some(text),
                ModelTask::Embeddings => Some(ModelKind::Embedding),
                ModelTask::Ranks => Some(ModelKind::Rerank),
                ModelTask::Speech => Some(ModelKind::Audio),
            },
            Recipe::Server(server) if server.engine.kind == EngineKind::Tei => {
                Some(ModelKind::Embedding)
            }
            Recipe::Server(_) if card.family.as_deref() == Some("whisper") => {
                Some(ModelKind::Audio)
            }
            Recipe::Server(_) => Some(text),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }

    /// Returns the maximum sequence length in tokens: the configured limit, or else the limit in the model's card.
    pub fn context(&self, card: &ModelCard) -> Option<u64> {
        self.recipe.context().map(u64::from).or(card.context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Source;
    use crate::entries::reference::Reference;
    use config::Config;
    use serde_json::{Value, json};

    fn entry(document: Value) -> Entry {
        let (config, reference) = (Config::default(), Reference::default());
        let read = Entry::from_document(&document, Source::Registered, &config, &reference);
        read.unwrap().0
    }

    fn kind(kind: &str, family: Option<&str>, labels: Value) -> Option<&'static str> {
        let document = json!({"engine_config": {"model_id": "m", "type": kind, "model_path": "/m"},
            "pool_config": {"labels": labels}});
        let card = ModelCard {
            family: family.map(str::to_owned),
            ..ModelCard::default()
        };
        entry(document).kind(&card).map(ModelKind::as_str)
    }

    #[test]
    fn the_kind_of_a_model_is_read_from_its_labels_its_engine_or_its_files() {
        assert_eq!(kind("VLLMEngine", None, json!({})), Some("chat"));
        assert_eq!(
            kind("VLLMEngine", Some("whisper"), json!({})),
            Some("audio")
        );
        assert_eq!(kind("EmbeddingEngine", None, json!({})), Some("embedding"));
        let labels = json!({"capabilities": "vision, rerank"});
        assert_eq!(kind("VLLMEngine", None, labels), Some("rerank"));
        let labels = json!({"capabilities": "vision"});
        assert_eq!(kind("VLLMEngine", None, labels), Some("chat"));
        let command = json!({"engine_config": {"model_id": "m", "type": "CommandEngine", "command": ["x", "{{ port }}"]},
            "pool_config": {"memory_gib": 1}});
        assert_eq!(entry(command).kind(&ModelCard::default()), None);
    }

    #[test]
    fn the_configured_context_overrides_that_of_the_model() {
        let card = ModelCard {
            context: Some(8192),
            ..ModelCard::default()
        };
        let mut document =
            json!({"engine_config": {"model_id": "m", "type": "VLLMEngine", "model_path": "/m"}});
        assert_eq!(entry(document.clone()).context(&card), Some(8192));
        document["engine_config"]["max_total_tokens"] = json!(4096);
        assert_eq!(entry(document).context(&card), Some(4096));
    }
}
