//! What a model is for, by the architecture that its files name.

use model_files::families;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads texts from left to right: continues them, or gives its hidden states for vectors or scores.
    Decoder,
    /// Turns a text into a vector.
    Encoder,
    /// Scores a text, or a pair of them.
    CrossEncoder,
}

impl Kind {
    /// The kind of the first architecture that is known.
    ///
    /// # Errors
    /// When none is, with those that are.
    pub fn of(architectures: &[&str]) -> Result<Self, String> {
        architectures
            .iter()
            .find_map(|name| {
                if families::decoder(name).is_some() {
                    Some(Self::Decoder)
                } else {
                    families::encoder(name).map(|(_, ranks)| match ranks {
                        true => Self::CrossEncoder,
                        false => Self::Encoder,
                    })
                }
            })
            .ok_or_else(|| unknown(architectures))
    }
}

/// Names what was found and what would be known.
pub(super) fn unknown(found: &[&str]) -> String {
    let found = if found.is_empty() {
        "none".to_owned()
    } else {
        found.join(", ")
    };
    let decoders = families::DECODERS.map(|(name, _)| name).join(", ");
    format!(
        "its architecture is {found}, this engine supports {decoders}, and for embeddings and scores {}",
        families::known_encoders()
    )
}
