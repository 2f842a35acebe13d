//! The adapters of one replica, as those see them who have a seat at it: who enters, who loads what in whose place. The pool's
//! [`ResidentAdapters`] decide; the request that loads reports how it ended, or leaves a doubt when it is dropped before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, watch};

use pool::{AdapterAccess, FilesFingerprint, ResidentAdapters};

/// Shared by all who have a seat at the replica.
#[derive(Debug)]
pub struct ReplicaAdapters {
    resident_adapters: Mutex<ResidentAdapters>,
    /// Changes whenever a waiting request may try again.
    changed: watch::Sender<u64>,
    /// Set once the engine was asked what it has already.
    pub listed_by_engine: OnceCell<()>,
}

/// What a request for an adapter does next.
#[derive(Debug)]
pub enum AdapterTurn {
    Enter(AdapterSeat),
    Load(AdapterLoad),
    Wait,
}

impl ReplicaAdapters {
    pub(super) fn new(most: u32) -> ReplicaAdapters {
        ReplicaAdapters {
            resident_adapters: Mutex::new(ResidentAdapters::new(most)),
            changed: watch::Sender::new(0),
            listed_by_engine: OnceCell::new(),
        }
    }

    /// What the engine was found with.
    pub fn found(&self, names: impl IntoIterator<Item = String>) {
        let mut resident_adapters = self.resident_adapters();
        names
            .into_iter()
            .for_each(|name| resident_adapters.found(name));
    }

    pub fn has(&self, name: &str) -> bool {
        self.resident_adapters().has(name)
    }

    /// How many are here, and how many of them have requests inside.
    pub fn counts(&self) -> (usize, usize) {
        let resident_adapters = self.resident_adapters();
        let here = resident_adapters.here();
        here.fold((0, 0), |(all, used), (_, inside)| {
            (all + 1, used + usize::from(inside > 0))
        })
    }

    /// The names of those that are here.
    pub fn names(&self) -> Vec<String> {
        let resident_adapters = self.resident_adapters();
        resident_adapters
            .here()
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// To be taken before [`Self::request`], so that no change is missed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn request(
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

/// A request inside an adapter, until it is dropped.
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
    /// This one has to go first.
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
    /// What the engine has to unload before.
    pub fn leaves(&self) -> Option<&str> {
        match &self.step {
            Step::Unloading(victim) => Some(victim),
            Step::Loading | Step::Over => None,
        }
    }

    /// The engine has unloaded it, or did not have it.
    pub fn unloaded(&mut self) {
        if let Step::Unloading(victim) = std::mem::replace(&mut self.step, Step::Loading) {
            self.adapters.resident_adapters().unloaded(&victim);
        }
    }

    /// The engine has loaded it.
    pub fn loaded(mut self) -> AdapterSeat {
        self.step = Step::Over;
        self.adapters
            .resident_adapters()
            .loaded(&self.name, self.mark);
        self.adapters.seat(&self.name)
    }

    /// The engine does not load it.
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
