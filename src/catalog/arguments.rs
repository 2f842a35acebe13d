//! What a measurement of memory belongs to beside the device: the way the engine is started. Two
//! entries with the same words take the same memory; the words do not show any value.

use sha2::{Digest, Sha256};

use super::entry::Entry;

const OF_REQUESTS: [&str; 3] = ["generation", "model_url", "model_description"];

/// So many bytes of the digest tell documents apart.
const BYTES: usize = 8;

impl Entry {
    /// The engine's kind and a digest of what its command line is made of. How many requests it takes and
    /// whether it is to sleep are on it too.
    pub fn arguments(&self) -> String {
        let mut document = self.to_document();
        let engine = &mut document["engine_config"];
        if let Some(keys) = engine.as_object_mut() {
            // They change the name of the model or its prompts, and not how it is started.
            keys.retain(|key, _| !OF_REQUESTS.contains(&key.as_str()));
            let adapters = keys
                .get_mut("lora_adapters")
                .and_then(|it| it.as_array_mut());
            for adapter in adapters.into_iter().flatten() {
                if let Some(keys) = adapter.as_object_mut() {
                    keys.shift_remove("generation");
                }
            }
        }
        let beside = format!("{} {}", self.seats_per_replica, self.parking.is_some());
        // The number of GPUs and the Ray are not in `engine_config`, or not in this file.
        let beside = match self.recipe.ray_serve() {
            None => beside,
            Some(serve) => format!("{beside} {} {:?}", serve.place.address, serve.application),
        };
        let digest = Sha256::digest(format!("{engine} {beside}").as_bytes());
        let hex: String = digest
            .iter()
            .take(BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{} {hex}", self.recipe.engine())
    }

    /// The same as a number, with what else a running replica cannot change: how many devices it has, and
    /// which it may have.
    pub fn started_with(&self) -> u64 {
        let devices = format!("{} {:?}", self.devices_per_replica, self.devices);
        let rendered = format!("{} {devices}", self.arguments());
        let digest = Sha256::digest(rendered.as_bytes());
        let first = digest.iter().take(BYTES);
        first.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
