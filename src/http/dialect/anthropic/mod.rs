//! Anthropic's Messages API: its requests, answers, events and errors, from and to OpenAI's.

mod answer;
mod blocks;
mod errors;
mod request;

pub(in crate::http) use answer::Message;
pub(in crate::http) use errors::{error_of, is_route, retold};
pub(in crate::http) use request::{counted, read};
