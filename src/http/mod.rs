//! The HTTP surface: decode, hand over, encode. Nothing here decides what is loaded or evicted, and
//! only `error` knows status codes.

mod admin;
mod aggregate;
mod as_chat;
mod audio;
mod auth;
mod body;
mod completions;
mod conversation;
mod dialect;
mod dto;
mod embeddings;
mod error;
mod form;
mod gateway;
mod hot_models;
mod ignored;
mod listing;
mod messages;
mod metrics;
mod newcomer;
mod openapi;
mod outgoing;
mod passing;
mod proxy;
mod remote;
mod responses;
mod server;
mod state;
mod stream;
mod tokens;
mod wait;

pub use auth::{Keys, KeysError};
pub use metrics::Metrics;
pub use server::{ListenError, Server};
pub use state::App;
