//! The records of batches, as they are stored and shown, and the batches that have not ended, which routes and the runner share. Knows
//! neither callers nor routes.

mod admin;
mod counts;
mod figures;
mod folder;
mod objects;
mod record;
mod reservations;
mod service;

pub(crate) use counts::Outcome;
pub(crate) use figures::{BatchFigures, FILES_OF_BATCH, HolderTotals, OpenState};
pub(crate) use objects::{ObjectError, PlacedObject};
pub(crate) use record::{
    ApiForm, BatchPerson, BatchRecord, BatchState, LearnedSpeed, MESSAGES, Running, Status,
};
pub(crate) use reservations::{Reservation, SpaceError};
pub use service::Batches;
pub(crate) use service::{OpenBatch, UPLOADS_PER_HOLDER, UploadSlot, read, store_failed};
