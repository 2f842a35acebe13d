//! Errors that keep an engine from starting, and the causes of an engine's end, with advice.

pub(crate) mod cuda_trouble;
mod error;
pub(crate) mod explain;
pub(crate) mod failure;
mod missing_program;

pub use cuda_trouble::CudaTrouble;
pub use error::EngineError;
pub use failure::Failure;
pub use missing_program::missing_program;
