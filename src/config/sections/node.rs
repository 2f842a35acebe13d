//! The section `node`: communication between nodes and their controller. A node reads `listen`, `plain`, `peers_at_once` and
//! `copy_shared`; a controller reads the other keys and sends them to its nodes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::server::Network;
use crate::problems::Problem;
use crate::values::{Length, ListenAddress};

/// A higher number would take disk and network bandwidth from the node's own engines.
const PEERS_AT_ONCE_MAX: u32 = 64;

/// Machines that join the pool (`model-pool node`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSection {
    /// Time that a node keeps its engines without its controller before it drains and ends; 1s or more.
    pub orphan_after: Length,
    /// Time without a message after which a node counts as silent and receives no placements; 2s or more.
    pub silent_after: Length,
    /// On the controller: a file with a join token of at least 32 characters, such as a mounted Secret. Nodes can join with it as
    /// long as it is in the file, in addition to tokens from `admin-client nodes token`.
    pub join_token_file: Option<PathBuf>,
    /// On the controller: networks in which nodes' listeners may be, in addition to the address from which a node connects. For
    /// nodes with several addresses, or behind a proxy or address translation.
    pub listen_networks: Vec<Network>,
    /// On the node: the address at which the gateway reaches its engines. null: a free port on every address, or on loopback if the
    /// controller is on the same machine.
    pub listen: Option<ListenAddress>,
    /// On the node: accept plain TCP from the gateway instead of TLS. On loopback it is always plain.
    pub plain: bool,
    /// On the node: files of its cache that it sends to other nodes simultaneously, 0 to 64. 0: it sends none.
    pub peers_at_once: u32,
    /// On the node: copy weights to its own cache even if it can read them at the controller's path, as on NFS.
    pub copy_shared: bool,
}

impl Default for NodeSection {
    fn default() -> NodeSection {
        NodeSection {
            orphan_after: Length::from_secs(600),
            // A lost node is detected within 5 s: heartbeats come every second, and are checked every quarter of a second.
            silent_after: Length::from_secs(4),
            join_token_file: None,
            listen_networks: Vec::new(),
            listen: None,
            plain: false,
            peers_at_once: 2,
            copy_shared: false,
        }
    }
}

impl NodeSection {
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut at_least = |key: &str, is: Length, least: Length| {
            if is.0 < least.0 {
                let message = format!("is {is}; allowed: {least} and more");
                problems.push(Problem::new(format!("node.{key}"), message));
            }
        };
        at_least("orphan_after", self.orphan_after, Length::from_secs(1));
        at_least("silent_after", self.silent_after, Length::from_secs(2));
        if self.peers_at_once > PEERS_AT_ONCE_MAX {
            let message = format!(
                "is {}; allowed: 0 to {PEERS_AT_ONCE_MAX}",
                self.peers_at_once
            );
            problems.push(Problem::new("node.peers_at_once".to_owned(), message));
        }
        problems
    }
}
