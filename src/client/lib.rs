//! HTTP client of a pool for its command lines, `admin-client` and `model-pool chat`, `run`, `evaluate` and `batch`. It finds the
//! server and the key, sends requests and files, reads event streams, and explains errors with advice.

mod error;
mod events;
mod files;
mod http;
mod response;
mod settings;
mod stream;
mod trust;
mod urls;

pub use error::{ClientError, Refusal, error_of, root_cause};
pub use events::{Event, Message};
pub use http::Client;
pub use reqwest::Method;
pub use response::{ApiResponse, Patience};
pub use settings::{Key, KeyKind, LOCAL_KEY_FILE, ServerOptions, Settings, key_in};
pub use stream::Stream;
