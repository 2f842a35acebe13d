//! A real vLLM that computes on the CPU, under the pool: `.ci/vllm` brings it; without it these tests print that they
//! were skipped. One start takes half a minute and more, so that each test asks one engine for many things. The same
//! script of requests goes to the double, in `tests/program/engines/script.rs`.

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
