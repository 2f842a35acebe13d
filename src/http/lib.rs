//! The HTTP layer: decodes requests, hands them to the controller, and encodes responses. Loads and evictions are decided by the
//! pool, and only `error` defines status codes.

mod accepting;
mod admin;
mod aliases;
mod auth;
mod browser_sign_on;
mod compat;
mod cors;
mod credentials;
mod dashboard;
mod deployments;
mod direct;
mod documents;
mod front;
#[doc(hidden)]
pub mod fuzzing;
mod inference;
mod key_usage;
mod known_model;
mod landing;
mod live;
mod me;
mod metrics;
mod model_cards;
mod node_route;
mod openapi;
mod path_params;
mod rayllm_names;
mod reading;
mod request_ids;
mod server;
mod session;
mod shared_limits;
mod standby;
mod state;
mod upstream;
mod votes;

pub use api_types::reload::{Reload, ReloadError, Reloaded, Reloading};
pub use credentials::keys::{Keys, KeysError};
pub use dialect::stored::StoredResponses;
pub use dialect::{Seal, SealError};
pub use edge::listener::{ListenError, Listener, SocketFile};
pub use edge::record::in_request_span;
pub use edge::trace::Traces;
pub use edge::{Edge, EdgeError, LastLines, TlsError, check_tls};
pub use key_usage::KeyUsages;
pub use metrics::Metrics;
pub use server::Server;
pub use shared_limits::{SharedLimit, shared_limits};
pub use standby::Standby;
pub use state::App;
