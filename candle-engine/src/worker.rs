//! Owns the threads that compute and the queue before them: first come, first served, within the budgets of tokens. Never
//! decides which request matters more.

use crate::api_error::ApiError;
use crate::budget::{Budget, Part};
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
        let budgets = Arc::new(Budgets {
            prefill: Budget::new(model.generator.budgets.prefill),
            total: Budget::new(model.generator.budgets.total),
        });
        for index in 0..count {
            let (model, jobs) = (Arc::clone(model), Arc::clone(&jobs));
            let budgets = Arc::clone(&budgets);
            std::thread::Builder::new()
                .name(format!("generate-{index}"))
                .spawn(move || work(&model, &jobs, &budgets))
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

/// What the running requests share.
struct Budgets {
    prefill: Budget,
    total: Budget,
}

/// The next job with its parts of the budgets. The lock is held while it waits for them, and while an idle worker waits for
/// a job: others wait for the lock, so that nobody overtakes.
fn next<'a>(
    jobs: &Mutex<Receiver<Job>>,
    budgets: &'a Budgets,
) -> Option<(Job, Part<'a>, Part<'a>)> {
    let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let job = jobs.recv().ok()?;
        if job.events.is_closed() {
            continue;
        }
        let prompt = job.request.prompt.len();
        let is_wanted = || !job.events.is_closed();
        let most = prompt.saturating_add(job.request.max_tokens);
        let Some(total) = budgets.total.take(most, is_wanted) else {
            continue;
        };
        if let Some(prefill) = budgets.prefill.take(prompt, is_wanted) {
            return Some((job, total, prefill));
        }
    }
}

fn work(model: &LoadedModel, jobs: &Mutex<Receiver<Job>>, budgets: &Budgets) {
    while let Some((Job { request, events }, total, prefill)) = next(jobs, budgets) {
        let mut prefill = Some(prefill);
        let give = |text: String| {
            if text.is_empty() {
                !events.is_closed()
            } else {
                // The prompt is computed once there is a text.
                prefill.take();
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
        drop(total);
    }
}
