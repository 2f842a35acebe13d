//! What comes into the batch: requests for answers and for hidden states, and orders to rest.

use super::request::{AnswerEvent, GenerationRequest, StatesRequest};
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::model::AdapterTensors;
use crate::step::AdapterNumber;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Address space; the steps of a deep grammar go down as many levels as it has.
pub(super) const STACK_BYTES: usize = 64 * 1024 * 1024;

/// What comes into the batch.
pub(super) enum Work {
    Answer {
        request: Box<GenerationRequest>,
        /// Choice of its first answer.
        first_choice: usize,
        /// Unbounded, because an answer is bounded by its tokens and a slow reader must not hold the others. Its receiver is
        /// the client: when that is dropped the work stops at the next step.
        events: UnboundedSender<AnswerEvent>,
    },
    States {
        request: StatesRequest,
        reply: oneshot::Sender<States>,
    },
    /// Take an adapter, or without tensors forget one that no request names; the answer is why it does not fit.
    Adapter {
        number: AdapterNumber,
        put: Option<Arc<AdapterTensors>>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Give the memory of the cache back, or take it again.
    Rest {
        asleep: bool,
        reply: Sender<Result<(), EngineError>>,
    },
}

/// The states of the tokens, or why there are none.
pub(crate) type States = Result<Vec<Vec<f32>>, ApiError>;
