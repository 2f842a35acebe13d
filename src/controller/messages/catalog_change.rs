//! The types of a catalogue change: its input, purpose, result, and the reasons for a refusal.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::oneshot;

use crate::view::snapshot::measured_as;
use catalog::{
    Catalog, CatalogError, Changes, Entry, EstimateError, MeasuredNeed, MemorySplit, NeedSource,
    Warning, WeightsListing,
};
use config::Config;
use inventory::DeviceInfo;
use pool::{Bytes, KindId, ModelId, ModelSpec};
use store::Measurements;

/// Labels that record who registered a model and the size of its weights on disk.
pub(crate) const LABEL: &str = "registered_by";
pub(crate) const BYTES_LABEL: &str = "registered_bytes";

/// Figures of models by name, or the reason they could not be computed.
pub(crate) type Specs = Vec<(String, Result<Figures, EstimateError>)>;

/// Figures reported for one model.
#[derive(Debug)]
pub(crate) struct Figures {
    pub spec: ModelSpec,
    pub source: NeedSource,
    /// Per device, without any measurement; 0 if unknown.
    pub estimated: Bytes,
    /// The estimate by place.
    pub split: Option<MemorySplit>,
    /// Identifies the weights on disk.
    pub weights: Option<u64>,
    /// The fetched files, if all exist.
    pub listing: Option<Arc<WeightsListing>>,
}

/// Figures computed for a catalogue off the loop.
#[derive(Debug)]
pub(crate) struct CatalogFigures {
    pub change: Change,
    pub catalog: Catalog,
    pub specs: Specs,
}

/// The purpose of a new catalogue, with the caller that waits for it.
#[derive(Debug)]
pub(crate) enum Change {
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
    /// Figures of a single model. No caller waits for them.
    Figure,
    /// Figures of a single model whose weights have arrived.
    Fetched {
        model: ModelId,
    },
    /// Figures of a single model, for a caller that has seen a program come or go.
    Looked {
        reply: oneshot::Sender<()>,
    },
    /// Changes nothing. The caller has already received the reason.
    Failed,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ChangeError>>;

/// The reason a change of the catalogue was refused.
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
    #[error("a model called {name} already exists")]
    Taken { name: String },
    #[error(
        "users have registered {limit} models, as many as catalog.unknown_limit allows; an administrator can remove some or raise it"
    )]
    Full { limit: u32 },
    #[error(
        "the model's weights take {bytes}, and models registered by users already take {held} of the {room} that catalog.unknown_size allows; an administrator can remove some or raise it"
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

/// Origin of a model's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registrar {
    Administrator,
    User,
}

impl Registrar {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Registrar::Administrator => "administrator",
            Registrar::User => "user",
        }
    }
}

/// Condition that the catalogue must meet when a model is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Terms {
    /// None; an existing registration of the name is replaced.
    Any,
    /// The name is not taken.
    NewName,
    /// The name is not taken, users have registered fewer models than `limit`, and these weights fit into `room` together with
    /// theirs.
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
        let word = Registrar::User.word();
        let of_users = |entry: &&Entry| {
            entry
                .labels
                .get(LABEL)
                .is_some_and(|registered_by| registered_by == word)
        };
        let of_users: Vec<&Entry> = catalog.entries().values().filter(of_users).collect();
        if of_users.len() >= limit as usize {
            return Err(ChangeError::Full { limit });
        }
        let taken = |entry: &&Entry| entry.labels.get(BYTES_LABEL)?.parse().ok();
        let held: Bytes = of_users.iter().filter_map(taken).map(Bytes).sum();
        if held + bytes > room {
            Err(ChangeError::TooLarge { bytes, held, room })
        } else {
            Ok(())
        }
    }
}

/// Input of the figures, also available off the loop.
#[derive(Clone, Debug)]
pub(crate) struct FigureInputs {
    pub measurements: Measurements,
    pub kinds: BTreeMap<String, KindId>,
    /// All existing devices, for engines that fill a share of a device.
    pub devices: Vec<DeviceInfo>,
    /// Fingerprints of the files that figures were computed from, by model name.
    pub files: BTreeMap<String, u64>,
}

impl FigureInputs {
    /// The measurement of an entry as it would be started now, on the devices it asks for: the maximum over all kinds of device
    /// that exist.
    pub fn measured(&self, entry: &Entry, weights: Option<u64>) -> Option<MeasuredNeed> {
        let arguments = measured_as(entry, weights);
        let fits = self.measurements.iter().filter(|(of, _)| {
            of.model == entry.name
                && of.arguments == arguments
                && of.devices == entry.devices_per_replica
                && self.kinds.contains_key(&of.kind)
        });
        let (_, worst) = fits.max_by_key(|(_, measured)| measured.peak_bytes_per_device)?;
        Some(MeasuredNeed {
            bytes_per_device: worst.peak_bytes_per_device,
            reload_ms: worst.reload.0,
        })
    }
}
