//! The bounded queue in front of the batch, and the thread that computes.

use super::gauges::Gauges;
use super::network::Generator;
use super::request::{GenerationRequest, ResponseEvent, StatesRequest};
use super::run::Loop;
use super::schedule::Limits;
use super::work::{STACK_BYTES, States, Work};
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::exit_on_panic;
use crate::model::AdapterTensors;
use crate::options::WAITING_REQUESTS_MAX;
use crate::step::AdapterNumber;
use crate::tokenizer::ModelTokenizer;
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// The sending end of the queue. When it is dropped, the thread finishes its work and ends.
pub(crate) struct Batch {
    queue: Sender<Work>,
    gauges: Arc<Gauges>,
}

impl Batch {
    /// Starts the thread that computes with the network of `generator`.
    ///
    /// # Errors
    /// If the system cannot start a thread, or the network computes for another batch already.
    pub fn start(
        generator: &Generator,
        tokenizer: &Arc<ModelTokenizer>,
    ) -> Result<Self, EngineError> {
        Self::start_with(generator, tokenizer, generator.limits())
    }

    /// Starts a batch that only computes hidden states. Its requests need a single pass, so they are bounded by the rows of a step
    /// and the pages instead of seats.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_for_states(
        generator: &Generator,
        tokenizer: &Arc<ModelTokenizer>,
    ) -> Result<Self, EngineError> {
        let limits = generator.limits();
        let seats = limits.seats.max(limits.prompt_rows);
        Self::start_with(generator, tokenizer, Limits { seats, ..limits })
    }

    pub(super) fn start_with(
        generator: &Generator,
        tokenizer: &Arc<ModelTokenizer>,
        limits: Limits,
    ) -> Result<Self, EngineError> {
        let (queue, inbox) = channel();
        let batch = Loop::new(generator, tokenizer, limits, inbox)?;
        std::thread::Builder::new()
            .name("batch".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || exit_on_panic::or_end("batch", || batch.run()))
            .map_err(|error| EngineError::load(format!("cannot start a thread ({error})")))?;
        Ok(Self {
            queue,
            gauges: Arc::clone(&generator.gauges),
        })
    }

    /// Queues a request whose first choice has the index `first_choice`. Closing the receiver of `events` cancels the request, even
    /// while it waits.
    ///
    /// # Errors
    /// 429 if too many requests are waiting.
    pub fn submit(
        &self,
        request: GenerationRequest,
        first_choice: usize,
        events: UnboundedSender<ResponseEvent>,
    ) -> Result<(), ApiError> {
        self.send(Work::Answer {
            request: Box::new(request),
            first_choice,
            events,
        })
    }

    /// Requests the hidden states of tokens, after the last layer and its norm. Dropping the receiver cancels the request.
    ///
    /// # Errors
    /// 429 if too many requests are waiting.
    pub fn states(&self, request: StatesRequest) -> Result<oneshot::Receiver<States>, ApiError> {
        let (reply, states) = oneshot::channel();
        self.send(Work::States { request, reply })?;
        Ok(states)
    }

    /// Frees the network's memory, or allocates it again, and waits until that is done. No request may be running.
    ///
    /// # Errors
    /// If the network fails, or a request is still running.
    pub(super) fn rest(&self, asleep: bool) -> Result<(), EngineError> {
        let (reply, done) = channel();
        let ended = || EngineError::load("the engine's thread has ended");
        let sent = self.queue.send(Work::Rest { asleep, reply });
        sent.map_err(|_| ended())?;
        done.recv().map_err(|_| ended())?
    }

    /// Loads an adapter into the network, or, without tensors, unloads an adapter that no request uses. Blocks.
    ///
    /// # Errors
    /// The reason if the adapter does not fit the model.
    pub fn adapter(
        &self,
        number: AdapterNumber,
        put: Option<Arc<AdapterTensors>>,
    ) -> Result<(), String> {
        let (reply, done) = oneshot::channel();
        let ended = "the engine's thread has ended";
        let work = Work::Adapter { number, put, reply };
        self.queue.send(work).map_err(|_| ended.to_owned())?;
        done.blocking_recv().map_err(|_| ended.to_owned())?
    }

    fn send(&self, work: Work) -> Result<(), ApiError> {
        if !self.gauges.begin_waiting(WAITING_REQUESTS_MAX) {
            return Err(ApiError::with_status(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                format!(
                    "{WAITING_REQUESTS_MAX} requests are already waiting for this engine; try again later"
                ),
            ));
        }
        self.queue.send(work).map_err(|_| {
            self.gauges.end_waiting();
            ApiError::internal("the engine's thread has ended")
        })
    }
}
