//! Continuous batching: requests join and leave at every step, and one thread computes all of them together.
//!
//! ```text
//!   queue ──> run (one thread) ──plan──> schedule (whose rows, on which pages)
//!               │                            ▲
//!               ├──step──> network           │ continues with these tokens, or has ended
//!               └──rows──> write (one per request: chooses tokens, sends pieces)
//! ```
//!
//! `schedule`, `pages` and `room` are pure, `write` sees only its own request's logits, and the network computes the rows of a
//! sequence identically whatever else is in the step. A completion therefore does not depend on what else is computed.
//!
//! The same holds within a sequence: a token may be proposed before it is chosen, and its row is computed together with the row
//! that chooses it. The writer sees the same logits in the same order as without proposals, and none after a wrongly proposed
//! token, so a completion does not depend on proposals either.

mod decision;
mod gauges;
mod guard;
mod network;
mod pages;
mod queue;
mod request;
mod room;
mod run;
mod runs;
mod schedule;
mod sleeper;
#[cfg(test)]
mod tests;
mod work;
mod write;

pub(crate) use network::{Generator, Network, Weights};
pub(crate) use queue::Batch;
pub(crate) use request::{
    Ending, GenerationRequest, Outcome, ResponseEvent, Scores, StatesRequest,
};
pub(crate) use room::{page_count, response_room};
pub(crate) use runs::Runs;
pub(crate) use sleeper::BatchSleeper;
