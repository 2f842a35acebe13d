//! Turns decisions, and orders once they are stored, into facts and actions. Makes no choices.

pub(crate) mod actions;
pub(crate) mod decisions;
pub(crate) mod fetching;
pub(crate) mod gangs;
pub(crate) mod leaving;
pub(crate) mod loads;
pub(crate) mod nodes;
pub(crate) mod order_intake;
pub(crate) mod order_start;
pub(crate) mod refusals;
pub(crate) mod sleep;
pub(crate) mod together;
pub(crate) mod wishes;
