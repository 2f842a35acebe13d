//! Anthropic's Messages API: its requests, answers, events and errors, from and to OpenAI's.

mod answer;
mod blocks;
mod errors;
mod models;
mod request;

pub(crate) use answer::Message;
pub(crate) use errors::{error_of, is_route, retold};
pub(crate) use models::{is_models_route, model_info, page, speaks};
pub(crate) use request::{counted, read};

/// An event that says nothing but that the stream lives.
pub(crate) const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
