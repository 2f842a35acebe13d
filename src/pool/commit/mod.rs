//! Turns decisions into facts and actions. Makes no choices.

pub(crate) mod decisions;
pub(crate) mod loads;
pub(crate) mod record;
pub(crate) mod sleep;
pub(crate) mod together;
