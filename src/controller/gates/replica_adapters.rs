//! The adapters of one replica, shared by all requests with a seat there: decides which request enters, and which loads an adapter
//! in place of another. [`ResidentAdapters`] of the pool holds the rules. A request that loads an adapter reports the result, or
//! leaves the state uncertain if it is dropped before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, watch};

use pool::{AdapterAccess, FilesFingerprint, ResidentAdapters};

/// Shared by all requests with a seat at the replica.
#[derive(Debug)]
pub struct ReplicaAdapters {
    resident_adapters: Mutex<ResidentAdapters>,
    /// Changes whenever a waiting request may try again.
    changed: watch::Sender<u64>,
    /// Set after the engine has been queried for the adapters it has already.
    pub listed_by_engine: OnceCell<()>,
}

/// The next step of a request for an adapter.
#[derive(Debug)]
pub enum AdapterTurn {
    Enter(AdapterSeat),
    Load(AdapterLoad),
    Wait,
}

impl ReplicaAdapters {
    pub(crate) fn new(most: u32) -> ReplicaAdapters {
        ReplicaAdapters {
            resident_adapters: Mutex::new(ResidentAdapters::new(most)),
            changed: watch::Sender::new(0),
            listed_by_engine: OnceCell::new(),
        }
    }

    /// Records the adapters that the engine has already.
    pub fn found(&self, names: impl IntoIterator<Item = String>) {
        let mut resident_adapters = self.resident_adapters();
        names
            .into_iter()
            .for_each(|name| resident_adapters.found(name));
    }

    pub fn has(&self, name: &str) -> bool {
        self.resident_adapters().has(name)
    }

    /// The number of loaded adapters, and how many of them have requests inside.
    pub fn counts(&self) -> (usize, usize) {
        let resident_adapters = self.resident_adapters();
        let here = resident_adapters.here();
        here.fold((0, 0), |(all, used), (_, inside)| {
            (all + 1, used + usize::from(inside > 0))
        })
    }

    /// The names of the loaded adapters.
    pub fn names(&self) -> Vec<String> {
        let resident_adapters = self.resident_adapters();
        resident_adapters
            .here()
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// Call before [`Self::request`] to miss no change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn request(
        self: &Arc<Self>,
        name: &str,
        mark: FilesFingerprint,
        has_guests: bool,
    ) -> AdapterTurn {
        let turn = self.resident_adapters().request(name, mark, has_guests);
        match turn {
            AdapterAccess::Enter => AdapterTurn::Enter(self.seat(name)),
            AdapterAccess::Wait => AdapterTurn::Wait,
            AdapterAccess::Load { leaves } => AdapterTurn::Load(AdapterLoad {
                adapters: Arc::clone(self),
                name: name.to_owned(),
                mark,
                step: match leaves {
                    Some(victim) => Step::Unloading(victim),
                    None => Step::Loading,
                },
            }),
        }
    }

    fn seat(self: &Arc<Self>, name: &str) -> AdapterSeat {
        AdapterSeat {
            adapters: Arc::clone(self),
            name: name.to_owned(),
        }
    }

    fn changed(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn resident_adapters(&self) -> MutexGuard<'_, ResidentAdapters> {
        self.resident_adapters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request inside an adapter. Leaves it when dropped.
#[derive(Debug)]
pub struct AdapterSeat {
    adapters: Arc<ReplicaAdapters>,
    name: String,
}

impl Drop for AdapterSeat {
    fn drop(&mut self) {
        self.adapters.resident_adapters().leave(&self.name);
        self.adapters.changed();
    }
}

#[derive(Debug)]
enum Step {
    /// This adapter has to be unloaded first.
    Unloading(String),
    Loading,
    Over,
}

/// An order to load an adapter.
#[derive(Debug)]
pub struct AdapterLoad {
    adapters: Arc<ReplicaAdapters>,
    pub name: String,
    mark: FilesFingerprint,
    step: Step,
}

impl AdapterLoad {
    /// The adapter that the engine has to unload first.
    pub fn leaves(&self) -> Option<&str> {
        match &self.step {
            Step::Unloading(victim) => Some(victim),
            Step::Loading | Step::Over => None,
        }
    }

    /// Records that the engine has unloaded the adapter, or did not have it.
    pub fn unloaded(&mut self) {
        if let Step::Unloading(victim) = std::mem::replace(&mut self.step, Step::Loading) {
            self.adapters.resident_adapters().unloaded(&victim);
        }
    }

    /// Records that the engine has loaded the adapter.
    pub fn loaded(mut self) -> AdapterSeat {
        self.step = Step::Over;
        self.adapters
            .resident_adapters()
            .loaded(&self.name, self.mark);
        self.adapters.seat(&self.name)
    }

    /// Records that the engine refused to load the adapter.
    pub fn refused(mut self) {
        self.step = Step::Over;
        self.adapters.resident_adapters().refused(&self.name);
    }
}

impl Drop for AdapterLoad {
    fn drop(&mut self) {
        let mut resident_adapters = self.adapters.resident_adapters();
        match &self.step {
            Step::Unloading(victim) => {
                resident_adapters.doubt(victim);
                resident_adapters.refused(&self.name);
            }
            Step::Loading => resident_adapters.doubt(&self.name),
            Step::Over => {}
        }
        drop(resident_adapters);
        self.adapters.changed();
    }
}
