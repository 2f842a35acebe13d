//! Anthropic's Messages API: its requests, answers, events and errors, from and to OpenAI's.

mod answer;
mod blocks;
mod errors;
mod request;

pub(crate) use answer::Message;
pub(crate) use errors::{error_of, is_route, retold};
pub(crate) use request::{counted, read};
