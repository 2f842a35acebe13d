//! The files of a model at one revision, and their source.

use std::sync::Arc;

use super::bucket;
use super::hub::Hub;
use super::oci::Registry;
use super::part::{ListedParts, OpenedPart, Part, PartProblem};
use super::peer::PeerSource;

/// All files of a model at one revision.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    /// The revision: the hub's commit, or the content of the bucket's `hash` file.
    pub commit: String,
    pub parts: Vec<Part>,
    pub origins: Origins,
}

impl Listing {
    pub fn new(listed: ListedParts, origins: Origins) -> Listing {
        let ListedParts { commit, parts } = listed;
        Listing {
            commit,
            parts,
            origins,
        }
    }

    /// The files of the repository `id` on a hub.
    pub fn of_hub(hub: Hub, id: &str, listed: ListedParts) -> Listing {
        let origins = Origins::Hub {
            hub: Arc::new(hub),
            id: id.to_owned(),
            commit: listed.commit.clone(),
        };
        Listing::new(listed, origins)
    }
}

/// The source of the files.
#[derive(Clone, Debug)]
pub(super) enum Origins {
    Hub {
        hub: Arc<Hub>,
        id: String,
        commit: String,
    },
    Bucket(bucket::Store),
    Registry(Arc<Registry>),
    /// Another machine of the pool.
    Peer(Arc<PeerSource>),
}

impl Origins {
    pub async fn open(&self, part: &Part, offset: u64) -> Result<OpenedPart, PartProblem> {
        match self {
            Origins::Hub { hub, id, commit } => hub.open(id, commit, part, offset).await,
            Origins::Bucket(store) => store.open(part, offset).await,
            Origins::Registry(registry) => registry.open(part, offset).await,
            Origins::Peer(peer) => peer.open(part, offset).await,
        }
    }

    /// The file's location, for display.
    pub fn describe(&self, part: &Part) -> String {
        match self {
            Origins::Hub { hub, id, .. } => format!("{}/{id}, {}", hub.shown(), part.path),
            Origins::Bucket(store) => format!("{}/{}", store.uri, part.path),
            Origins::Registry(registry) => format!("{}, {}", registry.shown(), part.path),
            Origins::Peer(peer) => format!("node {}, {}", peer.node(), part.path),
        }
    }

    /// The peer, if the source is one; other sources then have the same file.
    pub fn peer(&self) -> Option<&PeerSource> {
        match self {
            Origins::Peer(peer) => Some(peer),
            Origins::Hub { .. } | Origins::Bucket(_) | Origins::Registry(_) => None,
        }
    }
}
