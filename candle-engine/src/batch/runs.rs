//! Runs the completions of one request: several prompts or choices, in parallel as far as seats allow.

use crate::api_error::ApiError;
use crate::batch::{Batch, GenerationRequest, ResponseEvent};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The completions of one request. Dropping it cancels the unfinished ones.
pub(crate) struct Runs {
    batch: Arc<Batch>,
    /// Requests that are not queued yet, each with the index of its first choice.
    waiting: VecDeque<(usize, GenerationRequest)>,
    /// Number of requests queued or running.
    running: usize,
    most_running: usize,
    events: UnboundedReceiver<ResponseEvent>,
    sender: UnboundedSender<ResponseEvent>,
}

impl Runs {
    /// Queues as many requests as there are seats; each of the others is queued when one ends. Requests that other clients queue in
    /// between get their turn.
    ///
    /// # Errors
    /// 429 if too many requests are waiting.
    pub fn start(
        batch: Arc<Batch>,
        seats: usize,
        requests: Vec<GenerationRequest>,
    ) -> Result<Self, ApiError> {
        let (sender, events) = unbounded_channel();
        let mut waiting = VecDeque::with_capacity(requests.len());
        let mut choice = 0;
        for request in requests {
            let responses = request.responses;
            waiting.push_back((choice, request));
            choice += responses;
        }
        let mut runs = Self {
            batch,
            waiting,
            running: 0,
            most_running: seats.max(1),
            events,
            sender,
        };
        runs.fill()?;
        Ok(runs)
    }

    /// Returns the next event, or `None` after all completions finished or one failed.
    pub async fn next(&mut self) -> Option<ResponseEvent> {
        while self.running > 0 {
            match self.events.recv().await? {
                ResponseEvent::Ended => {
                    self.running -= 1;
                    if let Err(error) = self.fill() {
                        return Some(self.fail(error));
                    }
                }
                ResponseEvent::Failed(error) => return Some(self.fail(error)),
                event => return Some(event),
            }
        }
        None
    }

    fn fail(&mut self, error: ApiError) -> ResponseEvent {
        self.waiting.clear();
        self.running = 0;
        self.events.close();
        ResponseEvent::Failed(error)
    }

    /// Queues as many requests as there are seats. A full queue is not an error while part of this request is running.
    fn fill(&mut self) -> Result<(), ApiError> {
        while self.running < self.most_running
            && let Some((choice, request)) = self.waiting.front()
        {
            let submitted = self
                .batch
                .submit(request.clone(), *choice, self.sender.clone());
            match submitted {
                Ok(()) => {
                    self.waiting.pop_front();
                    self.running += 1;
                }
                Err(error) if self.running == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }
}
