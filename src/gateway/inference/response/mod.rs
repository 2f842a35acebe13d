//! Responses to clients: comments while they wait, streams, and non-streaming responses.

pub mod events;
pub(crate) mod first_event;
mod kept;
pub mod slow_reader;
pub mod stream;
pub mod tier;
pub(crate) mod usage_scan;
pub(crate) mod whole;
