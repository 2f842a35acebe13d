//! What a client hears: while it waits, as a stream, or as one answer.

pub mod aggregate;
pub mod as_chat;
pub mod damaged;
mod deltas;
pub mod events;
pub mod first_event;
mod kept;
mod repeated;
pub mod stream;
pub mod usage_scan;
pub mod wait;
pub mod whole;
