//! Owns the answers of one request: several prompts or choices run one after the other. Never writes JSON.

use crate::api_error::ApiError;
use crate::generate::{GenerationRequest, Outcome};
use crate::worker::{AnswerEvent, Workers};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// What happened in one of the answers; `index` is the choice's.
#[derive(Debug)]
pub(crate) enum RunEvent {
    /// A worker took it up or gave a piece of text, which is not empty.
    Text {
        index: usize,
        text: String,
    },
    Finished {
        index: usize,
        outcome: Outcome,
    },
    /// Nothing comes after this.
    Failed(ApiError),
}

/// The answers of one request. Dropping it cancels what is left.
pub(crate) struct Runs {
    workers: Arc<Workers>,
    waiting: VecDeque<GenerationRequest>,
    current: Option<UnboundedReceiver<AnswerEvent>>,
    next_index: usize,
}

impl Runs {
    /// Queues the first answer; the others follow when their turn comes, so that one client never holds several workers.
    ///
    /// # Errors
    /// 429 when too many wait already.
    pub fn start(
        workers: Arc<Workers>,
        requests: Vec<GenerationRequest>,
    ) -> Result<Self, ApiError> {
        let mut runs = Self {
            workers,
            waiting: requests.into(),
            current: None,
            next_index: 0,
        };
        runs.submit_next()?;
        Ok(runs)
    }

    /// The next event; `None` after all answers finished or one failed.
    pub async fn next(&mut self) -> Option<RunEvent> {
        let index = self.next_index.checked_sub(1)?;
        let event = match self.current.as_mut()?.recv().await {
            Some(AnswerEvent::Text(text)) => return Some(RunEvent::Text { index, text }),
            Some(AnswerEvent::Finished(outcome)) => match self.submit_next() {
                Ok(()) => return Some(RunEvent::Finished { index, outcome }),
                Err(error) => error,
            },
            Some(AnswerEvent::Failed(error)) => error,
            None => ApiError::internal("the engine stopped before the answer was finished"),
        };
        self.current = None;
        self.waiting.clear();
        Some(RunEvent::Failed(event))
    }

    fn submit_next(&mut self) -> Result<(), ApiError> {
        self.current = None;
        if let Some(request) = self.waiting.pop_front() {
            self.current = Some(self.workers.submit(request)?);
            self.next_index += 1;
        }
        Ok(())
    }
}
