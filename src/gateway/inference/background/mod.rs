//! Background responses (`background: true`): accepted on disk, run one after the other through the route of ordinary requests with
//! the present rights of their holder, and read later by their id.
//!
//! ```text
//!  accepted ─▶ ready ─▶ running ─▶ result ─▶ stored response
//!   on disk      ▲         │      in memory, until the disk takes it
//!                └─ paused ◀┘  no seat in time, or the engine ended
//! ```

pub(crate) mod accept;
mod holder;
mod run;
mod runner;
pub(crate) mod service;
mod settle;
mod stored_ends;

pub use runner::run;
