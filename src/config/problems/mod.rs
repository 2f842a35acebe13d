//! Invalid values, their position in the file, and the error of a configuration that cannot be loaded.

mod error;
pub mod positions;
mod problem;

pub use error::ConfigError;
pub(crate) use positions::Positions;
pub(crate) use problem::Origins;
pub use problem::{PlacedProblem, Problem};
