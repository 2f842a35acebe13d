//! Determines a model's kind from the architecture its files name.

use model_files::families;

/// The kind of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads text from left to right and continues it, or provides hidden states for vectors or scores.
    Decoder,
    /// Turns a text into a vector.
    Encoder,
    /// Scores a text, or a pair of them.
    CrossEncoder,
}

impl Kind {
    /// Returns the kind of the first known architecture.
    ///
    /// # Errors
    /// If no architecture is known; the message lists the known ones.
    pub fn new(architectures: &[&str]) -> Result<Self, String> {
        architectures
            .iter()
            .find_map(|name| {
                if families::decoder(name).is_some() || families::library_decoder(name).is_some() {
                    Some(Self::Decoder)
                } else {
                    families::encoder(name).map(|(_, ranks)| {
                        if ranks {
                            Self::CrossEncoder
                        } else {
                            Self::Encoder
                        }
                    })
                }
            })
            .ok_or_else(|| unknown(architectures))
    }
}

/// The message for unknown architectures, with the known ones.
pub(super) fn unknown(found: &[&str]) -> String {
    let found = if found.is_empty() {
        "none".to_owned()
    } else {
        found.join(", ")
    };
    format!(
        "its architecture is {found}; this engine supports {}, for embeddings and scores {}, and for speech {}",
        families::known_decoders(),
        families::known_encoders(),
        families::WHISPER
    )
}
