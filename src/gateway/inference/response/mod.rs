//! Responses to clients: comments while they wait, streams, and non-streaming responses.

pub mod first_event;
mod kept;
pub mod slow_reader;
pub mod stream;
pub mod usage_scan;
pub mod wait;
pub mod whole;
