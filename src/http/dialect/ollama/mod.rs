//! Ollama's API: translates its requests, responses and errors.

mod errors;
mod keep_alive;
mod marks;
mod messages;
mod names;
mod options;
mod request;
mod response;

pub(crate) use errors::{is_route, message_of, retold};
pub(crate) use keep_alive::{KeepAlive, read as keep_alive};
pub(crate) use marks::Marks;
pub(crate) use names::{bare_name, tagged};
pub(crate) use options::for_embeddings;
pub(crate) use request::{OllamaRequest, Work, name_of, read};
pub(crate) use response::{Answer, Ask, PAUSE, STREAM_TYPE};
