//! A change of the catalogue: its input, its purpose, its result, and why it may be refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::oneshot;

use super::snapshot::measured_as;
use catalog::{
    Catalog, CatalogError, Changes, Entry, EstimateError, Measured, NeedSource, Warning,
    WeightsListing,
};
use config::Config;
use inventory::DeviceInfo;
use pool::{Bytes, KindId, ModelId, ModelSpec};
use store::Measurements;

/// The labels that tell who brought a model in, and what its weights take on the disk.
pub(super) const LABEL: &str = "registered_by";
pub(super) const BYTES_LABEL: &str = "registered_bytes";

/// Figures of models, by name; or why there are none.
pub(super) type Specs = Vec<(String, Result<Figures, EstimateError>)>;

/// What is reported of one model.
#[derive(Debug)]
pub(super) struct Figures {
    pub spec: ModelSpec,
    pub source: NeedSource,
    /// On each device, without any measurement; 0: nothing tells.
    pub estimated: Bytes,
    /// Which weights there are.
    pub weights: Option<u64>,
    /// The files that were fetched, if all are there.
    pub listing: Option<Arc<WeightsListing>>,
}

/// What was computed of a model off the loop: headers read, figures chosen.
#[derive(Debug)]
pub(super) struct Figured {
    pub change: Change,
    pub catalog: Catalog,
    pub specs: Specs,
}

/// What a new catalogue is for, and who waits for it.
#[derive(Debug)]
pub(super) enum Change {
    Register {
        warnings: Vec<Warning>,
        reply: Reply<Vec<Warning>>,
    },
    Remove {
        reply: Reply<()>,
    },
    Reload {
        config: Arc<Config>,
        changes: Changes,
        warnings: Vec<Warning>,
        reply: Reply<(Changes, Vec<Warning>)>,
    },
    /// One model's figures alone; no request waits for it.
    Figure,
    /// The same, for weights that have come.
    Fetched {
        model: ModelId,
    },
    /// The same, for a caller that has seen a program come or go.
    Looked {
        reply: oneshot::Sender<()>,
    },
    /// Nothing changes; the caller has the reason.
    Failed,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, ChangeError>>;

/// Why the catalogue stays as it was.
#[derive(Debug, Error)]
pub enum ChangeError {
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("{name} cannot be registered: {source}")]
    Estimate { name: String, source: EstimateError },
    #[error("no model is called {name}")]
    Unknown { name: String },
    #[error("{name} comes from {origin}; remove the file and reload instead")]
    FromFile { name: String, origin: String },
    #[error("there is a model called {name} by now")]
    Taken { name: String },
    #[error(
        "users have brought in {limit} models, as many as catalog.unknown_limit allows; an administrator removes some, or raises it"
    )]
    Full { limit: u32 },
    #[error(
        "the model's weights take {bytes}, and those of the models that users have brought in take {held} of the {room} that catalog.unknown_size allows; an administrator removes some, or raises it"
    )]
    TooLarge {
        bytes: Bytes,
        held: Bytes,
        room: Bytes,
    },
    #[error("the store could not keep the change, so nothing was changed: {message}")]
    NotSaved { message: String },
    #[error("the pool is shutting down")]
    Gone,
}

/// Who names the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    Administrator,
    User,
}

impl NamedBy {
    pub(super) fn word(self) -> &'static str {
        match self {
            NamedBy::Administrator => "administrator",
            NamedBy::User => "user",
        }
    }
}

/// What must hold of the catalogue at the moment in which a model is registered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Terms {
    /// One that was registered before is replaced.
    Any,
    /// Nothing has the name.
    NewName,
    /// The same, and users have brought in fewer than the limit, and this one's weights find room
    /// beside theirs.
    OneMoreOfUsers {
        limit: u32,
        bytes: Bytes,
        room: Bytes,
    },
}

impl Terms {
    pub fn allow(self, catalog: &Catalog, name: &str) -> Result<(), ChangeError> {
        let is_taken = !matches!(self, Terms::Any) && catalog.get(name).is_some();
        if is_taken {
            let name = name.to_owned();
            return Err(ChangeError::Taken { name });
        }
        let Terms::OneMoreOfUsers { limit, bytes, room } = self else {
            return Ok(());
        };
        let word = NamedBy::User.word();
        let of_users = |entry: &&Entry| entry.labels.get(LABEL).is_some_and(|it| it == word);
        let of_users: Vec<&Entry> = catalog.entries().values().filter(of_users).collect();
        if of_users.len() >= limit as usize {
            return Err(ChangeError::Full { limit });
        }
        let taken = |entry: &&Entry| entry.labels.get(BYTES_LABEL)?.parse().ok();
        let held: Bytes = of_users.iter().filter_map(taken).map(Bytes).sum();
        match held + bytes > room {
            true => Err(ChangeError::TooLarge { bytes, held, room }),
            false => Ok(()),
        }
    }
}

/// What is known when figures are chosen, off the loop too.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub measurements: Measurements,
    pub kinds: BTreeMap<String, KindId>,
    /// Those that are there, for engines that fill a share of one.
    pub devices: Vec<DeviceInfo>,
    /// Marks of the files that models were figured from, by name.
    pub files: BTreeMap<String, u64>,
}

impl Known {
    /// What was measured of an entry as it would be started now, over the devices it asks for: the
    /// most on any kind of device that is there.
    pub fn of(&self, entry: &Entry, weights: Option<u64>) -> Option<Measured> {
        let arguments = measured_as(entry, weights);
        let fits = self.measurements.iter().filter(|(of, _)| {
            of.model == entry.name
                && of.arguments == arguments
                && of.devices == entry.devices_per_replica
                && self.kinds.contains_key(&of.kind)
        });
        let (_, worst) = fits.max_by_key(|(_, it)| it.peak_bytes_per_device)?;
        Some(Measured {
            bytes_per_device: worst.peak_bytes_per_device,
            reload_ms: worst.reload.0,
        })
    }
}
