//! The background responses that have not ended, shared by the routes and the runner.

mod entries;
mod event_file;
mod event_log;
mod service;
mod turns;

pub(crate) use entries::{Entry, Pause};
pub(crate) use event_file::{KeptEvents, load as load_events};
pub(crate) use event_log::EventLog;
pub use service::{BACKGROUND_MAX, Backgrounds};
