//! OpenAI's Responses API: its requests, answers and events, from and to a chat's. Nothing is kept, so that what
//! refers to an earlier response is refused.

mod answer;
mod events;
mod items;
mod request;
mod tools;

pub(crate) use answer::Response;
pub(crate) use request::read;
