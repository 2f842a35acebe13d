//! Applications of Ray Serve: their names and configurations, and the only writer of each Ray cluster.

pub(crate) mod application;
pub(crate) mod program;
mod silence;
#[cfg(test)]
pub(crate) mod testing;
mod unadopted_engine;

pub(crate) use application::{ARGUMENTS, MODEL};
pub(crate) use program::{PendingApplication, Streaming};
pub use program::{ServeProgram, ServeWriters};
pub use unadopted_engine::{Fate, UnadoptedEngine};
