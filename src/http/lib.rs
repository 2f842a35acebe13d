//! Assembles the service: listeners, the router, routes of older systems, the OpenAPI document, and the standby. Only
//! `api_types::error` defines status codes.

mod aliases;
mod compat;
mod documents;
mod front;
mod landing;
mod node_route;
mod openapi;
mod server;
mod shared_limits;
mod standby;

pub use api_types::reload::{Reload, ReloadError, Reloaded, Reloading};
pub use dialect::stored::StoredResponses;
pub use dialect::{Seal, SealError};
pub use edge::listener::{ListenError, Listener, SocketFile};
pub use edge::record::in_request_span;
pub use edge::trace::Traces;
pub use edge::{Edge, EdgeError, LastLines, TlsError, check_tls};
pub use gateway::background::run as run_background;
pub use gateway::batches::run as run_batches;
pub use gateway::credentials::keys::{Keys, KeysError};
pub use gateway::key_usage::KeyUsages;
pub use gateway::metrics::Metrics;
pub use gateway::state::App;
pub use gateway::virtual_models::preview::catalogue_warnings as virtual_model_warnings;
pub use server::Server;
pub use shared_limits::{SharedLimit, shared_limits};
pub use standby::Standby;
