//! Space of holders for files and batches. A reservation counts like a stored record until the record is stored, and the decisions
//! about a holder are made one after the other, so parallel requests of a holder do not exceed its limits together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Batches;
use super::figures::HolderTotals;
use super::service::store_failed;
use api_types::error::{ErrorKind, Failure};
use config::BatchSection;
use pool::Bytes;
use store::StoreError;

/// Batches of one holder that are not complete.
const OPEN_MAX: usize = 10_000;
/// Models of the batches of one holder that are not complete.
const OPEN_MODELS_MAX: usize = 20_000;

/// The reservations of all holders.
#[derive(Debug, Default)]
pub(super) struct Reservations(Mutex<BTreeMap<String, HolderSpace>>);

/// The reservations of a holder, while it has some.
#[derive(Debug, Default)]
struct HolderSpace {
    reservations: usize,
    reserved: HolderTotals,
    /// Held during a decision, and while a reservation becomes a record.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Reservations {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, HolderSpace>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Space of a holder, which is free again when it is dropped.
pub(crate) struct Reservation {
    batches: Arc<Batches>,
    holder: String,
    turn: Arc<tokio::sync::Mutex<()>>,
    space: HolderTotals,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("holder", &self.holder)
            .field("space", &self.space)
            .finish_non_exhaustive()
    }
}

/// The reason why space was not reserved.
#[derive(Debug)]
pub(crate) enum SpaceError {
    Full(Shortage),
    Store(StoreError),
}

/// A limit that a holder has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub limit: SpaceLimit,
    /// The present count, with reservations.
    pub count: u64,
    pub most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceLimit {
    OpenBatches,
    OpenModels,
    Files,
    Bytes,
}

impl Reservation {
    /// Reserves this space of a holder. Bytes are reserved with [`Reservation::reserve_bytes`].
    ///
    /// # Errors
    /// A limit of the holder leaves less space, or the store cannot be read.
    pub async fn new(
        batches: &Arc<Batches>,
        holder: &str,
        space: HolderTotals,
    ) -> Result<Reservation, SpaceError> {
        let turn = batches.reservations.with(|holders| {
            let known = holders.entry(holder.to_owned()).or_default();
            known.reservations += 1;
            Arc::clone(&known.turn)
        });
        let mut reservation = Reservation {
            batches: Arc::clone(batches),
            holder: holder.to_owned(),
            turn,
            space: HolderTotals::default(),
        };
        reservation.grow(space).await?;
        Ok(reservation)
    }

    /// Reserves more space.
    ///
    /// # Errors
    /// A limit of the holder leaves less space, or the store cannot be read. The reservation is as before then.
    pub async fn grow(&mut self, wanted: HolderTotals) -> Result<(), SpaceError> {
        let turn = Arc::clone(&self.turn);
        let _turn = turn.lock().await;
        let stored = self.batches.totals(&self.holder).await;
        let stored = stored.map_err(SpaceError::Store)?;
        let config = self.batches.config.get();
        match shortage(&stored, &self.reserved(), &wanted, &config.batch) {
            Some(shortage) => Err(SpaceError::Full(shortage)),
            None => {
                self.add(wanted);
                Ok(())
            }
        }
    }

    /// Reserves this many bytes, or the bytes that are left if these are fewer. Returns the bytes.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn reserve_bytes(&mut self, most: Bytes) -> Result<Bytes, StoreError> {
        let turn = Arc::clone(&self.turn);
        let _turn = turn.lock().await;
        let stored = self.batches.totals(&self.holder).await?;
        let limit = self.batches.config.get().batch.per_key_size.0.0;
        let left = limit.saturating_sub(stored.bytes.0);
        let left = left.saturating_sub(self.reserved().bytes.0);
        let bytes = Bytes(most.0.min(left));
        self.add(HolderTotals {
            bytes,
            ..HolderTotals::default()
        });
        Ok(bytes)
    }

    /// Stores the records that take this space, and frees the reservation. No decision sees both or neither.
    pub async fn store<T>(self, save: impl Future<Output = T>) -> T {
        let turn = Arc::clone(&self.turn);
        let turn = turn.lock().await;
        let saved = save.await;
        drop(self);
        drop(turn);
        saved
    }

    /// The reservations of the holder.
    fn reserved(&self) -> HolderTotals {
        self.batches.reservations.with(|holders| {
            let known = holders.get(&self.holder);
            known.map_or_else(HolderTotals::default, |known| known.reserved)
        })
    }

    fn add(&mut self, space: HolderTotals) {
        self.space = self.space.plus(&space);
        self.batches.reservations.with(|holders| {
            if let Some(known) = holders.get_mut(&self.holder) {
                known.reserved = known.reserved.plus(&space);
            }
        });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.batches.reservations.with(|holders| {
            let Some(known) = holders.get_mut(&self.holder) else {
                return;
            };
            known.reserved = known.reserved.minus(&self.space);
            known.reservations -= 1;
            if known.reservations == 0 {
                holders.remove(&self.holder);
            }
        });
    }
}

/// The limit that leaves less space than `wanted`.
fn shortage(
    stored: &HolderTotals,
    reserved: &HolderTotals,
    wanted: &HolderTotals,
    section: &BatchSection,
) -> Option<Shortage> {
    let used = stored.plus(reserved);
    let full = |limit, count: u64, wanted: u64, most: u64| {
        let is_full = wanted > 0 && count.saturating_add(wanted) > most;
        is_full.then_some(Shortage { limit, count, most })
    };
    let batches = (used.open_batches as u64, wanted.open_batches as u64);
    let models = (used.open_models as u64, wanted.open_models as u64);
    // The results of a batch take space later. Uploads in progress may take less than they have reserved.
    let (bytes, bytes_max) = (stored.bytes.0, section.per_key_size.0.0);
    let has_bytes = wanted.open_batches == 0 || bytes < bytes_max;
    full(
        SpaceLimit::OpenBatches,
        batches.0,
        batches.1,
        OPEN_MAX as u64,
    )
    .or_else(|| {
        full(
            SpaceLimit::OpenModels,
            models.0,
            models.1,
            OPEN_MODELS_MAX as u64,
        )
    })
    .or_else(|| {
        let most = u64::from(section.per_key);
        full(SpaceLimit::Files, used.files, wanted.files, most)
    })
    .or_else(|| {
        (!has_bytes).then_some(Shortage {
            limit: SpaceLimit::Bytes,
            count: bytes,
            most: bytes_max,
        })
    })
}

impl SpaceError {
    /// The error for a client that creates a batch.
    pub fn for_batch(self) -> Failure {
        let Shortage { limit, count, most } = match self {
            SpaceError::Full(shortage) => shortage,
            SpaceError::Store(fault) => return store_failed(fault),
        };
        let what = match limit {
            SpaceLimit::OpenBatches => "batches that have not ended",
            SpaceLimit::OpenModels => "models in batches that have not ended",
            SpaceLimit::Files => {
                "files, with those of its batches, and a batch may add two (batch.per_key)"
            }
            SpaceLimit::Bytes => {
                "bytes of files, with the results of its batches (batch.per_key_size)"
            }
        };
        let message = format!(
            "this key has {count} {what}; allowed: {most}; wait for batches to end, or delete files"
        );
        Failure::new(ErrorKind::TooMany, "too_many_batches", message)
    }

    /// The error for a client that uploads a file.
    pub fn for_upload(self) -> Failure {
        let Shortage { count, most, .. } = match self {
            SpaceError::Full(shortage) => shortage,
            SpaceError::Store(fault) => return store_failed(fault),
        };
        let message = format!(
            "this key has {count} files, with the results of its batches and uploads in progress; allowed: {most} (batch.per_key); delete some with DELETE /v1/files/ID, or wait for batches to end"
        );
        Failure::new(ErrorKind::TooMany, "too_many_files", message)
    }
}

#[cfg(test)]
mod tests;
