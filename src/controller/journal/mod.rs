//! Writes to the store, off the loop: wishes, history, usage, and the deletion of old rows.

pub(crate) mod keeper;
mod orders;
mod trimming;
mod unwritten_jobs;
mod used_rays;

pub(crate) use keeper::{Job, NamedWish};
pub(crate) use orders::Journal;
pub use used_rays::open_serve_writers;
