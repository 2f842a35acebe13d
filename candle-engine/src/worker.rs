//! Owns the threads that compute and the queue before them: first come, first served. Never decides which request matters more.

use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::generate::{GenerationRequest, Outcome};
use crate::loading::LoadedModel;
use crate::options::WAITING_REQUESTS_MAX;
use axum::http::StatusCode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What a client hears of its answer. Nothing comes after `Finished` or `Failed`.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    /// A piece of text that is not empty.
    Text(String),
    Finished(Outcome),
    Failed(ApiError),
}

struct Job {
    request: GenerationRequest,
    /// Unbounded, because an answer is bounded by its tokens and a slow reader must not hold a worker. Its receiver's end is the
    /// client: when that is dropped the work stops at the next token.
    events: UnboundedSender<AnswerEvent>,
}

/// The way into the queue. When it is dropped the threads end after their jobs.
pub(crate) struct Workers {
    queue: SyncSender<Job>,
}

impl Workers {
    /// Starts `count` threads that compute with `model`.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(model: &Arc<LoadedModel>, count: usize) -> Result<Self, EngineError> {
        let (queue, jobs) = sync_channel::<Job>(WAITING_REQUESTS_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..count {
            let (model, jobs) = (Arc::clone(model), Arc::clone(&jobs));
            std::thread::Builder::new()
                .name(format!("generate-{index}"))
                .spawn(move || work(&model, &jobs))
                .map_err(|error| {
                    EngineError::option(
                        "concurrency",
                        format!("the system gives no {count} threads ({error}); use fewer"),
                    )
                })?;
        }
        Ok(Self { queue })
    }

    /// Queues a request. Dropping the receiver cancels it, also while it waits.
    ///
    /// # Errors
    /// 429 when too many wait already.
    pub fn submit(
        &self,
        request: GenerationRequest,
    ) -> Result<UnboundedReceiver<AnswerEvent>, ApiError> {
        let (events, receiver) = unbounded_channel();
        self.queue.try_send(Job { request, events }).map_err(|error| match error {
            TrySendError::Full(_) => ApiError::with_status(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                format!("{WAITING_REQUESTS_MAX} requests wait for this engine already; try again later"),
            ),
            TrySendError::Disconnected(_) => ApiError::internal("the engine's workers have ended"),
        })?;
        Ok(receiver)
    }
}

fn work(model: &LoadedModel, jobs: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting: one idle worker waits for the job, the others for the lock.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { request, events }) = job else {
            return;
        };
        if events.is_closed() {
            continue;
        }
        let give = |text: String| {
            if text.is_empty() {
                !events.is_closed()
            } else {
                events.send(AnswerEvent::Text(text)).is_ok()
            }
        };
        // A panic below would take a worker away from all later requests; it is this request's failure only.
        let result = catch_unwind(AssertUnwindSafe(|| {
            model.generator.generate(&request, &model.tokenizer, give)
        }));
        let last = match result {
            Ok(Ok(Some(outcome))) => AnswerEvent::Finished(outcome),
            Ok(Ok(None)) => continue,
            Ok(Err(error)) => AnswerEvent::Failed(error),
            Err(_) => AnswerEvent::Failed(ApiError::internal(
                "the engine failed while computing this answer",
            )),
        };
        // A client that left between the last token and now does not miss it.
        let _ = events.send(last);
    }
}
