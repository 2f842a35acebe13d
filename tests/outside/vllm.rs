//! A real vLLM on the CPU, under the pool. `.ci/vllm` installs it; without it these tests report that they were skipped. A start
//! takes half a minute or more, so each test sends many requests to one engine. `tests/program/engines/script.rs` runs the same
//! script of requests with the double.

mod adapters;
mod clients;
mod faults;
pub mod flags;
mod installs;
mod pooling;
mod requests;
pub mod rig;
mod serving;
mod start_failures;
mod two_models;
