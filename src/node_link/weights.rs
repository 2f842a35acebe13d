//! What a controller tells a node of a model's weights, and what a node says of its own: so that a node gets them from
//! others of the pool.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use catalog::{Fetch, WeightsListing};

/// The weights of a launch, for a node that may have to fetch them.
#[derive(Debug, Serialize, Deserialize)]
pub struct WeightsForm {
    /// As the controller fetched them, with its own folders.
    pub fetch: Fetch,
    /// The files that it has, with the digests that copies must have.
    pub listing: WeightsListing,
    /// Nodes that have them, the best first.
    pub peers: Vec<PeerForm>,
}

/// A node that gives weights to another one.
#[derive(Clone, Serialize, Deserialize)]
pub struct PeerForm {
    pub node: String,
    /// Its listener.
    pub address: SocketAddr,
    /// Of its certificate; `None`: plain TCP.
    pub fingerprint: Option<String>,
    /// For this model and for some minutes.
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

/// What a node has in its cache, and how busy it is with giving it to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsReport {
    /// Models that are complete, by `WeightsListing::id`.
    pub complete: Vec<String>,
    /// Models that it could read where the controller has them, when one was last loaded.
    pub readable: Vec<String>,
    /// Files that it sends now.
    pub serving: u32,
    /// Files that it sends at most; 0: it gives none.
    pub at_once: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeReadings;

    #[test]
    fn readings_of_a_node_that_says_nothing_of_weights_are_read() {
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
