//! The messages to the batch: requests for completions and hidden states, adapter changes, and sleep requests.

use super::request::{GenerationRequest, ResponseEvent, StatesRequest};
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::model::AdapterTensors;
use crate::step::AdapterNumber;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Address space only; the recursion of a deep grammar is as deep as its nesting.
pub(super) const STACK_BYTES: usize = 64 * 1024 * 1024;

/// A message to the batch.
pub(super) enum Work {
    Answer {
        request: Box<GenerationRequest>,
        /// Index of its first choice.
        first_choice: usize,
        /// Unbounded, because a completion is bounded by its tokens and a slow reader must not delay the others. Dropping the
        /// receiver stops the work at the next step.
        events: UnboundedSender<ResponseEvent>,
    },
    States {
        request: StatesRequest,
        reply: oneshot::Sender<States>,
    },
    /// Loads an adapter, or, without tensors, unloads an adapter that no request uses. The reply is the reason if it does not fit.
    Adapter {
        number: AdapterNumber,
        put: Option<Arc<AdapterTensors>>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Frees the memory of the cache, or allocates it again.
    Rest {
        asleep: bool,
        reply: Sender<Result<(), EngineError>>,
    },
}

/// The hidden states, or the reason there are none.
pub(crate) type States = Result<Vec<Vec<f32>>, ApiError>;
