//! The HTTP surface: decode, hand over, encode. Nothing here decides what is loaded or evicted, and
//! only `error` knows status codes.

mod accepting;
mod admin;
mod aliases;
mod auth;
mod browser_sign_on;
mod compat;
mod cors;
mod dashboard;
mod deployments;
mod dialect;
mod direct;
mod dto;
mod edge;
mod error;
mod front;
#[doc(hidden)]
pub mod fuzzing;
mod header_text;
mod inference;
mod key_usage;
mod landing;
mod listener;
mod live;
mod me;
mod metrics;
mod model_cards;
mod node_route;
mod openapi;
mod path_params;
mod paths;
mod reload;
mod request_ids;
mod seldom;
mod server;
mod session;
mod shares;
mod standby;
mod state;
mod stored;
mod trace;
mod votes;

pub use auth::keys::{Keys, KeysError};
pub use dialect::{Seal, SealError};
pub use edge::record::in_request_span;
pub use edge::{Edge, EdgeError, LastLines, TlsError, check_tls};
pub use key_usage::KeyUsages;
pub use listener::{ListenError, Listener, SocketFile};
pub use metrics::Metrics;
pub use reload::{Reload, ReloadError, Reloaded, Reloading};
pub use server::Server;
pub use standby::Standby;
pub use state::App;
pub use stored::StoredResponses;
pub use trace::Traces;
