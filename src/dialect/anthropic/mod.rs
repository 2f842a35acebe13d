//! Anthropic's Messages API: translates its requests, responses, events and errors.

mod blocks;
mod errors;
mod models;
mod request;
mod response;

pub use errors::{error_of, is_route, retold};
pub use models::{is_models_route, model_info, page, speaks};
pub use request::{counted, read};
pub use response::Message;

/// An event that keeps a stream alive.
pub(crate) const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
