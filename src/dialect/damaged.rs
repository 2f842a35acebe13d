//! Errors of an engine's stream: malformed events and exceeded limits.

use thiserror::Error;

use crate::events::TooLong;

/// Largest number of tool calls in a response. Models make a few; each costs far more memory than the bytes with which an engine
/// can begin one.
pub const CALLS_MAX: usize = 1024;

/// An engine's stream that is not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damaged {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("it sent more choices than the {0} requested")]
    TooManyResponses(usize),
    #[error("it sent more than {} tool calls in one response", CALLS_MAX)]
    TooManyCalls,
    #[error("it sent an event that is not a JSON object")]
    NotJson,
    #[error("it sent a JSON object without `choices`")]
    NoChoices,
}
