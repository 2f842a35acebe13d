//! OpenAI's Responses API: translates its requests, responses and events. Stored items that a request refers to are looked up
//! before.

mod events;
mod items;
mod kept;
mod request;
mod response;
mod tools;

pub use kept::shown;
pub use request::{counted, read};
pub use response::Response;
