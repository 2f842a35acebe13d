//! The key of a memory measurement, in addition to the device: how the engine is started. Two entries with equal arguments take the
//! same memory. The text reveals no values.

use sha2::{Digest, Sha256};

use super::entry::Entry;
use crate::documents::DeviceConstraint;
use config::DeviceKind;
use pool::NodeSpan;

const OF_REQUESTS: [&str; 3] = ["generation", "model_url", "model_description"];

/// Enough of the digest to tell documents apart.
const BYTES: usize = 8;

impl Entry {
    /// Returns the engine's kind and a digest of the settings behind its command line, including the number of requests it takes
    /// and whether it may sleep.
    pub fn arguments(&self) -> String {
        let mut document = self.to_document();
        let engine = &mut document["engine_config"];
        if let Some(keys) = engine.as_object_mut() {
            // These keys change the model's name or prompts, but not how it is started.
            keys.retain(|key, _| !OF_REQUESTS.contains(&key.as_str()));
            let adapters = keys
                .get_mut("lora_adapters")
                .and_then(|adapters| adapters.as_array_mut());
            for adapter in adapters.into_iter().flatten() {
                if let Some(keys) = adapter.as_object_mut() {
                    keys.shift_remove("generation");
                }
            }
        }
        let beside = format!("{} {}", self.seats_per_replica, self.parking.is_some());
        // The number of GPUs and the Ray cluster are outside `engine_config`, or outside this file.
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

    /// A hash of `arguments` and the other settings that a running replica cannot change: the number of its devices and which ones
    /// it may use.
    pub fn started_with(&self) -> u64 {
        let DeviceConstraint {
            names,
            indices,
            kinds,
            labels,
            accelerator,
        } = &self.devices;
        let maker = accelerator.map_or("", DeviceKind::name);
        let devices = format!(
            "{} DeviceConstraint {{ names: {names:?}, indices: {indices:?}, kinds: {kinds:?}, labels: {labels:?} }}{maker}",
            self.devices_per_replica
        );
        let nodes = match self.nodes {
            NodeSpan::Exactly(nodes) => format!(" {nodes} nodes"),
            NodeSpan::One | NodeSpan::AsNeeded => String::new(),
        };
        let rendered = format!("{} {devices}{nodes}", self.arguments());
        let digest = Sha256::digest(rendered.as_bytes());
        let first = digest.iter().take(BYTES);
        first.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
