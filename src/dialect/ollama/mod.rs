//! Ollama's API: translates its requests, responses and errors.

mod errors;
mod keep_alive;
mod marks;
mod messages;
mod names;
mod options;
mod request;
mod response;

pub use errors::{is_route, message_of, retold};
pub use keep_alive::{KeepAlive, read as keep_alive};
pub use marks::Marks;
pub use names::{bare_name, tagged};
pub use options::for_embeddings;
pub use request::{OllamaRequest, Work, name_of, read};
pub use response::{Answer, Ask, PAUSE, STREAM_TYPE};
