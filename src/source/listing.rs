//! All files of a model in one state, and where they are read from.

use std::sync::Arc;

use super::bucket;
use super::hub::Hub;
use super::part::{Opened, Part, Trouble};

/// All files of a model in one state.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    /// Names the state: the hub's commit, or what the bucket's `hash` file says.
    pub commit: String,
    pub parts: Vec<Part>,
    pub origins: Origins,
}

/// Where files are read from.
#[derive(Clone, Debug)]
pub(super) enum Origins {
    Hub {
        hub: Arc<Hub>,
        id: String,
        commit: String,
    },
    Bucket(bucket::Store),
}

impl Origins {
    pub async fn open(&self, part: &Part, offset: u64) -> Result<Opened, Trouble> {
        match self {
            Origins::Hub { hub, id, commit } => hub.open(id, commit, part, offset).await,
            Origins::Bucket(store) => store.open(part, offset).await,
        }
    }

    /// For people: where the file is.
    pub fn describe(&self, part: &Part) -> String {
        match self {
            Origins::Hub { hub, id, .. } => format!("{}/{id}, {}", hub.shown(), part.path),
            Origins::Bucket(store) => format!("{}/{}", store.uri, part.path),
        }
    }
}
