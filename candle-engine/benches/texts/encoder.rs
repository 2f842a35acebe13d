//! The parts of the encoder that the benchmark compares with.

#[allow(
    dead_code,
    reason = "a benchmark uses only some of the engine's internals"
)]
#[path = "../../src/encoder/operations.rs"]
pub mod operations;
#[allow(
    dead_code,
    reason = "a benchmark uses only some of the engine's internals"
)]
#[path = "../../src/encoder/spec.rs"]
pub mod spec;
