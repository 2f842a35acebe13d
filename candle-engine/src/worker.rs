//! Owns the threads that compute and the queue before them: first come, first served, within the budgets of tokens. Never
//! decides which request matters more.

use crate::api_error::ApiError;
use crate::budget::{Budget, Part};
use crate::decoding::Strategy;
use crate::error::EngineError;
use crate::generate::{GenerationRequest, Outcome};
use crate::loading::LoadedModel;
use crate::options::WAITING_REQUESTS_MAX;
use crate::pieces::Piece;
use axum::http::StatusCode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// Address space; the steps of a deep grammar go down as many levels as it has.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// What a client hears of its answers, each with the index of its choice.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    /// A piece that is not empty.
    Piece(usize, Piece),
    Finished(usize, Outcome),
    /// One request is over, and another may be queued in its place.
    Ended,
    Failed(ApiError),
}

struct Job {
    request: GenerationRequest,
    /// Choice of its first answer.
    first_choice: usize,
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
                .stack_size(STACK_BYTES)
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

    /// Queues a request, whose first answer is `first_choice`. Closing the receiver of `events` cancels it, also while it waits.
    ///
    /// # Errors
    /// 429 when too many wait already.
    pub fn submit(
        &self,
        request: GenerationRequest,
        first_choice: usize,
        events: UnboundedSender<AnswerEvent>,
    ) -> Result<(), ApiError> {
        let job = Job {
            request,
            first_choice,
            events,
        };
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => ApiError::with_status(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                format!(
                    "{WAITING_REQUESTS_MAX} requests wait for this engine already; try again later"
                ),
            ),
            TrySendError::Disconnected(_) => ApiError::internal("the engine's workers have ended"),
        })
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
        let beams = match job.request.strategy {
            Strategy::Beams(settings) => settings.beams,
            Strategy::Sampling | Strategy::Contrastive(_) => 1,
        };
        let most = prompt.saturating_add(job.request.max_tokens.saturating_mul(beams));
        let Some(total) = budgets.total.take(most, is_wanted) else {
            continue;
        };
        if let Some(prefill) = budgets.prefill.take(prompt, is_wanted) {
            return Some((job, total, prefill));
        }
    }
}

fn work(model: &LoadedModel, jobs: &Mutex<Receiver<Job>>, budgets: &Budgets) {
    while let Some((job, total, prefill)) = next(jobs, budgets) {
        // A panic below would take a worker away from all later requests; it is this request's failure only.
        let result = catch_unwind(AssertUnwindSafe(|| answer(model, &job, prefill)));
        let last = match result {
            Ok(Ok(Some(()))) => AnswerEvent::Ended,
            Ok(Ok(None)) => continue,
            Ok(Err(error)) => AnswerEvent::Failed(error),
            Err(_) => AnswerEvent::Failed(ApiError::internal(
                "the engine failed while computing this answer",
            )),
        };
        // A client that left between the last token and now does not miss it.
        let _ = job.events.send(last);
        drop(total);
    }
}

/// Computes a job's answers. `None` when nobody wants them any more.
fn answer(model: &LoadedModel, job: &Job, prefill: Part<'_>) -> Result<Option<()>, ApiError> {
    let (events, first) = (&job.events, job.first_choice);
    let (generator, tokenizer) = (&model.generator, &model.tokenizer);
    if let Strategy::Beams(settings) = job.request.strategy {
        let is_wanted = || !events.is_closed();
        let answers = generator.search(&job.request, settings, tokenizer, is_wanted)?;
        drop(prefill);
        for (choice, (text, outcome)) in (first..).zip(answers.into_iter().flatten()) {
            let piece = Piece {
                text,
                ..Piece::default()
            };
            let _ = events.send(AnswerEvent::Piece(choice, piece));
            let _ = events.send(AnswerEvent::Finished(choice, outcome));
        }
        return Ok((!events.is_closed()).then_some(()));
    }
    let mut prefill = Some(prefill);
    let give = |piece: Piece| {
        if piece.is_empty() {
            !events.is_closed()
        } else {
            // The prompt is computed once there is a text.
            prefill.take();
            events.send(AnswerEvent::Piece(first, piece)).is_ok()
        }
    };
    let outcome = generator.generate(&job.request, tokenizer, give)?;
    let finished = |outcome| events.send(AnswerEvent::Finished(first, outcome)).ok();
    Ok(outcome.and_then(finished))
}
