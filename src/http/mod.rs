//! The HTTP surface: decode, hand over, encode. Nothing here decides what is loaded or evicted, and
//! only `error` knows status codes.

mod admin;
mod admission;
mod aggregate;
mod as_chat;
mod audio;
mod audit;
mod auth;
mod body;
mod compat;
mod completions;
mod conversation;
mod dialect;
mod dto;
mod edge;
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
mod request_fields;
mod responses;
mod served;
mod server;
mod sign_on;
mod state;
mod stream;
mod tokens;
mod validation;
mod wait;

pub use auth::{Keys, KeysError};
pub use edge::{Edge, EdgeError, LastLines};
pub use metrics::Metrics;
pub use server::{ListenError, Server};
pub use state::App;
