//! Continuous batching: requests join and leave at every step, and one thread computes all of them together.
//!
//! ```text
//!   queue ──> run (one thread) ──plan──> schedule (whose rows, on which pages)
//!               │                            ▲
//!               ├──step──> network           │ goes on with these tokens, or has ended
//!               └──rows──> write (one of each request: chooses tokens, gives pieces out)
//! ```
//!
//! `schedule`, `pages` and `room` are pure, `write` sees the logits of its own request alone, and the network computes the rows
//! of a sequence the same whatever else is in the step. So an answer does not depend on what else is computed.
//!
//! That holds for the rows of one sequence too: a token may be proposed before it is chosen, and its row is computed with the one that
//! it is chosen by. The writer sees the same logits in the same order as without proposals, and none after a token that was proposed
//! wrongly; so an answer does not depend on what is proposed either.

mod decide;
mod gauges;
mod guard;
mod network;
mod pages;
mod queue;
mod request;
mod rest;
mod room;
mod run;
mod runs;
mod schedule;
#[cfg(test)]
mod tests;
mod work;
mod write;

pub(crate) use network::{Generator, Weights};
pub(crate) use queue::Batch;
pub(crate) use request::{AnswerEvent, Ending, GenerationRequest, Outcome, Scores, StatesRequest};
pub(crate) use rest::Rest;
pub(crate) use room::{answer_room, page_count};
pub(crate) use runs::Runs;
