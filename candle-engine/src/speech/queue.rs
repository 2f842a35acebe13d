//! The queue of a speech model, and its compute thread. The first requests in the line take turns, a window each; the others wait for
//! a place among them.

use super::job::Job;
use super::loaded_model::SpeechModel;
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::exit_on_panic;
use axum::http::StatusCode;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of requests in the engine. Each holds a recording.
const REQUESTS_MAX: usize = 256;

/// A place in the queue, released on drop.
pub(super) struct QueueSlot(Arc<AtomicUsize>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct QueuedJob {
    job: Job,
    _place: QueueSlot,
}

/// The sending end of the queue. When it is dropped, the thread finishes the waiting requests and ends.
pub(super) struct Queue {
    sender: Sender<QueuedJob>,
    places: Arc<AtomicUsize>,
}

impl Queue {
    /// Starts the thread that computes with `model`.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(model: Arc<SpeechModel>) -> Result<Self, EngineError> {
        let (sender, jobs) = channel();
        std::thread::Builder::new()
            .name("speech".to_owned())
            .spawn(move || exit_on_panic::or_end("speech", || work(&model, &jobs)))
            .map_err(|error| EngineError::load(format!("cannot start a thread ({error})")))?;
        Ok(Self {
            sender,
            places: Arc::default(),
        })
    }

    /// Takes a place, before the request's body is read.
    ///
    /// # Errors
    /// 429 if too many requests are in the engine.
    pub fn place(&self) -> Result<QueueSlot, ApiError> {
        let before = self.places.fetch_add(1, Ordering::Relaxed);
        let place = QueueSlot(Arc::clone(&self.places));
        if before < REQUESTS_MAX {
            return Ok(place);
        }
        Err(ApiError::with_status(
            StatusCode::TOO_MANY_REQUESTS,
            "queue_full",
            format!("{REQUESTS_MAX} recordings are already in this engine; try again later"),
        ))
    }

    /// Queues a request.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn submit(&self, job: Job, place: QueueSlot) -> Result<(), ApiError> {
        let job = QueuedJob { job, _place: place };
        let sent = self.sender.send(job);
        sent.map_err(|_| ApiError::internal("the engine's thread has ended"))
    }
}

fn work(model: &SpeechModel, jobs: &Receiver<QueuedJob>) {
    let mut line: VecDeque<QueuedJob> = VecDeque::new();
    loop {
        if line.is_empty() {
            let Ok(job) = jobs.recv() else { return };
            line.push_back(job);
        }
        line.extend(jobs.try_iter());
        line.retain(|queued| queued.job.is_wanted());
        take_turn(&mut line, model.concurrency, |queued| {
            // A panic would end the thread for all later requests; it is turned into an error of this request.
            let step = catch_unwind(AssertUnwindSafe(|| queued.job.step(model)));
            step.unwrap_or_else(|_| {
                let message = "the engine failed while computing this response";
                queued.job.fail(ApiError::internal(message));
                false
            })
        });
    }
}

/// Runs a step of the first in the line. If it has more, it goes behind the others that take turns.
fn take_turn<T>(line: &mut VecDeque<T>, turns: usize, step: impl FnOnce(&mut T) -> bool) {
    let Some(mut first) = line.pop_front() else {
        return;
    };
    if step(&mut first) {
        let place = (turns.max(1) - 1).min(line.len());
        line.insert(place, first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;
    use axum::response::IntoResponse;

    #[test]
    fn a_full_queue_refuses_a_request_until_another_ends() {
        let (sender, _jobs) = channel();
        let queue = Queue {
            sender,
            places: Arc::default(),
        };
        let place = || queue.place().unwrap_or_else(|_| panic!("no place"));
        let mut places: Vec<QueueSlot> = (0..REQUESTS_MAX).map(|_| place()).collect();
        for _ in 0..2 {
            let error = queue.place().err().expect("no place");
            assert_eq!(error.code, Some("queue_full"));
            assert!(error.message.contains("256"), "{}", error.message);
            let response = error.into_response();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            assert!(response.headers().contains_key(header::RETRY_AFTER));
        }
        places.pop();
        places.push(place());
        drop(places);
        assert_eq!(queue.places.load(Ordering::Relaxed), 0);
    }

    /// The names of the steps when each request has this number of windows.
    fn order(windows: &[(&'static str, usize)], turns: usize) -> String {
        let mut line: VecDeque<(&str, usize)> = windows.iter().copied().collect();
        let mut order = String::new();
        while !line.is_empty() {
            take_turn(&mut line, turns, |(name, left)| {
                order += name;
                *left -= 1;
                *left > 0
            });
        }
        order
    }

    #[test]
    fn as_many_requests_as_there_are_turns_alternate_and_the_others_wait() {
        let requests = [("a", 3), ("b", 2), ("c", 2), ("d", 1)];
        assert_eq!(order(&requests, 1), "aaabbccd");
        assert_eq!(order(&requests, 2), "ababacdc");
        assert_eq!(order(&requests, 8), "abcdabca");
    }
}
