//! OpenAI's Responses API: its requests, answers and events, from and to a chat's. What a request refers to has been
//! found before it is read here.

mod answer;
mod events;
mod items;
mod kept;
mod request;
mod tools;

pub(crate) use answer::Response;
pub(crate) use kept::shown;
pub(crate) use request::{counted, read};
