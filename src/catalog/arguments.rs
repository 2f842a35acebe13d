//! What a measurement of memory belongs to beside the device: the way the engine is started. Two
//! entries with the same words take the same memory; the words do not show any value.

use sha2::{Digest, Sha256};

use super::entry::Entry;

/// So many bytes of the digest tell documents apart.
const BYTES: usize = 8;

impl Entry {
    /// The engine's kind and a digest of its section of the document.
    pub fn arguments(&self) -> String {
        let document = self.to_document();
        let digest = Sha256::digest(document["engine_config"].to_string().as_bytes());
        let hex: String = digest
            .iter()
            .take(BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{} {hex}", self.recipe.engine())
    }
}
