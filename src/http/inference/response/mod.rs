//! Responses to clients: comments while they wait, streams, and non-streaming responses.

pub mod as_chat;
mod as_stream;
pub mod assembler;
pub mod damaged;
pub mod events;
pub mod first_event;
mod kept;
mod repeated;
pub mod slow_reader;
pub mod stream;
pub mod usage;
pub mod usage_scan;
pub mod wait;
pub mod whole;
