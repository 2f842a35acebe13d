//! OpenAI's Responses API: translates its requests, responses and events. Stored items that a request refers to are looked up
//! before.

mod background;
mod compaction;
mod continued;
mod events;
mod items;
mod kept;
mod request;
mod response;
mod tools;

pub use super::background_run::{BackgroundRun, RunFailure};
pub use background::{announcement, ended, last_event};
pub use compaction::{Compaction, compact};
pub use kept::{given_items, input_items, shown, shown_response};
pub use request::{counted, read};
pub use response::Response;
