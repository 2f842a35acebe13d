//! Formats responses as text. Every function is pure: it takes a response, a style and the time, and
//! returns text.

pub mod audit;
pub mod bars;
pub mod batches;
pub mod cordon;
pub mod events;
pub mod groups;
pub mod leaderboard;
pub mod models;
pub mod nodes;
pub mod outcome;
pub mod plan;
pub mod progress;
pub mod quantity;
pub mod queue;
pub mod report;
pub mod usage;
pub mod what_if;
pub mod why;
pub use terminal::{fold, table};

#[cfg(test)]
mod hostile;
