//! The HTTP surface: decode, hand over, encode. Nothing here decides what is loaded or evicted, and
//! only `error` knows status codes.

mod admin;
mod aggregate;
mod as_chat;
mod auth;
mod body;
mod conversation;
mod dto;
mod error;
pub(crate) mod fuzzing;
mod gateway;
mod hot_models;
mod ignored;
mod listing;
mod metrics;
mod newcomer;
mod openapi;
mod outgoing;
mod passing;
mod proxy;
mod remote;
mod server;
mod state;
mod stream;
mod wait;

pub use auth::{Keys, KeysError};
pub use metrics::Metrics;
pub use server::{ListenError, Server};
pub use state::App;
