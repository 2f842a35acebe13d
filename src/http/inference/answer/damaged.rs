//! What makes an engine's stream no answer: events that cannot be read, and more of something than was requested.

use thiserror::Error;

use crate::inference::answer::events::TooLong;

/// Tool calls of one answer. Models make a few; each costs many times the bytes by which an engine begins one.
pub(crate) const CALLS_MAX: usize = 1024;

/// Why a stream is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Damaged {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("it sent more answers than the {0} that were requested")]
    TooManyAnswers(usize),
    #[error("it sent more than {} tool calls in one answer", CALLS_MAX)]
    TooManyCalls,
    #[error("it sent an event that is no JSON object")]
    NotJson,
    #[error("it sent a JSON object without `choices`")]
    NoChoices,
}
