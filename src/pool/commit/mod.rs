//! Decisions become facts and actions. Nothing here chooses.

pub(crate) mod decisions;
pub(crate) mod loads;
pub(crate) mod record;
pub(crate) mod sleep;
