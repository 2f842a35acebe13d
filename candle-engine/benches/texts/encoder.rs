//! The parts of the encoder that the benchmark compares with.

#[allow(dead_code, reason = "a bench uses a part of the engine's inside")]
#[path = "../../src/encoder/operations.rs"]
pub mod operations;
#[allow(dead_code, reason = "a bench uses a part of the engine's inside")]
#[path = "../../src/encoder/spec.rs"]
pub mod spec;
