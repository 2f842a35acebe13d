//! Messages about weights: a controller's description of a model's weights, and a node's report of the weights it has. Nodes use
//! them to download weights from each other.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use catalog::{Fetch, WeightsListing};

/// The weights of a launch, for a node that may have to fetch them.
#[derive(Debug, Serialize, Deserialize)]
pub struct WeightsForm {
    /// The fetch of the controller, with its own folders.
    pub fetch: Fetch,
    /// The controller's files, with the digests that copies must have.
    pub listing: WeightsListing,
    /// Nodes that have the weights, best first.
    pub peers: Vec<PeerForm>,
}

/// A node that serves weights to others.
#[derive(Clone, Serialize, Deserialize)]
pub struct PeerForm {
    pub node: String,
    /// Address of its listener.
    pub address: SocketAddr,
    /// Fingerprint of the listener's certificate; `None` for plain TCP.
    pub fingerprint: Option<String>,
    /// Valid for this model and for some minutes.
    pub token: String,
}

impl fmt::Debug for PeerForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerForm")
            .field("node", &self.node)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The models in a node's cache, and its current transfers to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsReport {
    /// Complete models, by `WeightsListing::id`.
    pub complete: Vec<String>,
    /// Models that the node could read at the controller's path when they were last loaded.
    pub readable: Vec<String>,
    /// Number of files it is sending.
    pub serving: u32,
    /// Maximum number of files it sends simultaneously; 0 if it sends none.
    pub at_once: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeReadings;

    #[test]
    fn readings_of_a_node_without_weights_are_parsed() {
        let old = r#"{"since_beat": 1, "devices": [], "faults": [], "machine": null}"#;
        let read: NodeReadings = serde_json::from_str(old).expect("readings");
        assert_eq!(read.weights, None);
        let text = serde_json::to_string(&read).expect("JSON");
        assert!(!text.contains("weights"), "{text}");
    }

    #[test]
    fn a_token_is_not_shown() {
        let peer = PeerForm {
            node: "gpu-1".to_owned(),
            address: ([10, 0, 0, 1], 7000).into(),
            fingerprint: None,
            token: "topsecret".to_owned(),
        };
        assert!(!format!("{peer:?}").contains("topsecret"));
    }
}
