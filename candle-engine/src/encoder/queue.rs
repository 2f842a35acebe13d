//! The queue of an encoder, and its compute thread. Waiting texts are computed together, within a token budget, with requests
//! taking turns.

use super::loaded_encoder::Encoder;
use super::network::Sequence;
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::exit_on_panic;
use crate::options::WAITING_REQUESTS_MAX;
use crate::step::PAGE_TOKENS;
use axum::http::StatusCode;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Minimum number of tokens that a text counts as: its keys and values take a page, however short it is. The pages of a batch then
/// hold at most four times its budget, which is the size the pool reserves.
const TEXT_TOKENS_MIN: usize = PAGE_TOKENS / 4;

/// The result of a request: a vector per text, or a vector of length one per pair.
pub(crate) type EncoderResult = Result<Vec<Vec<f32>>, ApiError>;

/// A request that is computed text by text, in one or more batches.
struct Job {
    sequences: Vec<Sequence>,
    /// The first text that has not been in a batch.
    next: usize,
    vectors: Vec<Vec<f32>>,
    reply: oneshot::Sender<EncoderResult>,
    _place: QueueSlot,
}

/// A place in the queue, released on drop.
struct QueueSlot(Arc<AtomicUsize>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sending end of the queue. When it is dropped, the thread finishes the waiting requests and ends.
pub(crate) struct Queue {
    sender: Sender<Job>,
    places: Arc<AtomicUsize>,
}

impl Queue {
    /// Starts the thread that computes with `encoder`.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(encoder: Arc<Encoder>) -> Result<Self, EngineError> {
        let (sender, jobs) = channel();
        std::thread::Builder::new()
            .name("encode".to_owned())
            .spawn(move || exit_on_panic::or_end("encode", || work(&encoder, &jobs)))
            .map_err(|error| EngineError::load(format!("cannot start a thread ({error})")))?;
        Ok(Self {
            sender,
            places: Arc::default(),
        })
    }

    /// Queues a request. Dropping the receiver cancels it.
    ///
    /// # Errors
    /// 429 if too many requests are waiting.
    pub fn submit(
        &self,
        sequences: Vec<Sequence>,
    ) -> Result<oneshot::Receiver<EncoderResult>, ApiError> {
        let before = self.places.fetch_add(1, Ordering::Relaxed);
        let place = QueueSlot(Arc::clone(&self.places));
        if before >= WAITING_REQUESTS_MAX {
            return Err(ApiError::with_status(
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                format!(
                    "{WAITING_REQUESTS_MAX} requests are already waiting for this engine; try again later"
                ),
            ));
        }
        let (reply, computed) = oneshot::channel();
        let job = Job {
            vectors: Vec::with_capacity(sequences.len()),
            sequences,
            next: 0,
            reply,
            _place: place,
        };
        self.sender
            .send(job)
            .map_err(|_| ApiError::internal("the engine's thread has ended"))?;
        Ok(computed)
    }
}

/// Texts to compute together: a number of texts per job, by its position in the line.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    takes: Vec<(usize, usize)>,
    /// The first job that did not get its next text in; it starts the next batch.
    next_first: usize,
}

/// A text's share of the batch budget, in tokens.
fn counted(sequence: &Sequence) -> usize {
    sequence.tokens.len().max(TEXT_TOKENS_MIN)
}

/// Selects the next texts of each job, in turns, until the budget is used. A text larger than the budget is computed alone.
///
/// `left` returns, per job, the token counts of its waiting texts.
fn next_batch<'a>(left: &[impl Fn(usize) -> Option<usize> + 'a], budget: usize) -> Batch {
    let mut counts = vec![0; left.len()];
    let (mut tokens, mut is_empty) = (0usize, true);
    let mut next_first = 0;
    'turns: loop {
        let mut took = false;
        for (job, tokens_of) in left.iter().enumerate() {
            let Some(more) = tokens_of(counts[job]) else {
                continue;
            };
            if !is_empty && tokens.saturating_add(more) > budget {
                next_first = job;
                break 'turns;
            }
            tokens = tokens.saturating_add(more);
            counts[job] += 1;
            (took, is_empty) = (true, false);
        }
        if !took {
            break;
        }
    }
    let takes = counts.into_iter().enumerate();
    Batch {
        takes: takes.filter(|(_, count)| *count > 0).collect(),
        next_first,
    }
}

fn work(encoder: &Encoder, jobs: &Receiver<Job>) {
    let mut line: VecDeque<Job> = VecDeque::new();
    loop {
        if line.is_empty() {
            let Ok(job) = jobs.recv() else { return };
            line.push_back(job);
        }
        while let Ok(job) = jobs.try_recv() {
            line.push_back(job);
        }
        line.retain(|job| !job.reply.is_closed());
        step(encoder, &mut line);
    }
}

/// Computes one batch and sends the results of completed jobs.
fn step(encoder: &Encoder, line: &mut VecDeque<Job>) {
    let left: Vec<_> = line
        .iter()
        .map(|job| |taken: usize| job.sequences.get(job.next + taken).map(counted))
        .collect();
    let batch = next_batch(&left, encoder.batch_tokens);
    drop(left);
    if batch.takes.is_empty() {
        // Jobs without texts are complete already.
        line.drain(..).for_each(finish);
        return;
    }
    let sequences: Vec<&Sequence> = batch
        .takes
        .iter()
        .flat_map(|(job, count)| {
            let job = &line[*job];
            &job.sequences[job.next..job.next + count]
        })
        .collect();
    let is_wanted = || {
        let mut jobs = batch.takes.iter();
        jobs.any(|(job, _)| !line[*job].reply.is_closed())
    };
    // A panic would end the thread for all later requests; it is turned into an error of this batch.
    let computed = catch_unwind(AssertUnwindSafe(|| encoder.compute(&sequences, is_wanted)));
    let failure = match computed {
        Ok(Ok(Some(vectors))) => {
            let mut vectors = vectors.into_iter();
            for (job, count) in &batch.takes {
                let job = &mut line[*job];
                job.vectors.extend(vectors.by_ref().take(*count));
                job.next += count;
            }
            None
        }
        Ok(Ok(None)) => None,
        Ok(Err(error)) => Some(ApiError::internal(format!(
            "the device failed: {}",
            crate::error::one_line(error)
        ))),
        Err(_) => Some(ApiError::internal(
            "the engine failed while computing this response",
        )),
    };
    let mut rest = VecDeque::with_capacity(line.len());
    let mut before = 0;
    for (index, job) in line.drain(..).enumerate() {
        let is_in_batch = batch.takes.iter().any(|(job, _)| *job == index);
        if let (Some(error), true) = (&failure, is_in_batch) {
            let _ = job.reply.send(Err(error.clone()));
        } else if job.next == job.sequences.len() {
            finish(job);
        } else {
            before += usize::from(index < batch.next_first);
            rest.push_back(job);
        }
    }
    rest.rotate_left(before);
    *line = rest;
}

fn finish(job: Job) {
    // The client may have disconnected.
    let _ = job.reply.send(finite(job.vectors));
}

/// # Errors
/// If a number is not finite.
pub(super) fn finite(vectors: Vec<Vec<f32>>) -> EncoderResult {
    if vectors.iter().flatten().all(|number| number.is_finite()) {
        Ok(vectors)
    } else {
        Err(ApiError::internal(
            "the model's results for these texts are outside the range of 32-bit floats",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Selects the batch for jobs whose texts have these token counts.
    fn batch(jobs: &[&[usize]], budget: usize) -> Batch {
        let left: Vec<_> = jobs
            .iter()
            .map(|job| |taken: usize| job.get(taken).copied())
            .collect();
        next_batch(&left, budget)
    }

    #[test]
    fn small_requests_are_computed_together() {
        let batch = batch(&[&[3], &[4, 4], &[5]], 100);
        assert_eq!(batch.takes, [(0, 1), (1, 2), (2, 1)]);
    }

    #[test]
    fn requests_share_an_encoder_batch_in_round_robin_order() {
        let many = [10; 50];
        let first = batch(&[&many, &[10, 10], &[10]], 50);
        assert_eq!(first.takes, [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(first.next_first, 0);
        let second = batch(&[&many, &many, &many], 40);
        assert_eq!(second.takes, [(0, 2), (1, 1), (2, 1)]);
        assert_eq!(second.next_first, 1, "who is next in turn is first then");
    }

    #[test]
    fn the_pages_of_a_text_hold_at_most_four_times_its_counted_tokens() {
        for length in 1..200 {
            let sequence = Sequence {
                tokens: vec![0; length],
                ..Sequence::default()
            };
            let counted = counted(&sequence);
            assert!(counted >= length);
            assert!(
                length.next_multiple_of(PAGE_TOKENS) <= 4 * counted,
                "{length}"
            );
        }
    }

    #[test]
    fn a_text_larger_than_the_budget_forms_its_own_batch() {
        let alone = batch(&[&[500, 3], &[3]], 50);
        assert_eq!(alone.takes, [(0, 1)]);
        assert_eq!(alone.next_first, 1);
        assert!(batch(&[&[], &[]], 50).takes.is_empty());
    }
}
