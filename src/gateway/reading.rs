//! Processes request bodies, and long responses. Short bodies are processed inline. Long bodies, text validation and token counting
//! each have their own workers and a memory limit, so no request and no kind of work delays the others. This module does not
//! interpret bodies.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::metrics::Histogram;
use api_types::error::Failure;
use config::ServerSection;
use edge::record;
use edge::shares::{Capacity, Class, Shares};
use pool::Time;

/// Bodies up to this size are read in less than a millisecond.
pub(crate) const AT_ONCE_BYTES: usize = 64 << 10;
/// Largest ratio of the memory used while reading to the size of the body.
const TIMES: u64 = 8;
/// Divisors of `server.bodies_memory`, for memory in addition to the bodies: `PART` for reading them, `SMALL_PART` for each other
/// kind of work.
const PART: u64 = 4;
const SMALL_PART: u64 = 8;
/// Buckets for work before an engine receives a request: from a tenth of a millisecond.
const WORK: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// The workers of each kind.
#[derive(Debug)]
pub struct Reading {
    bodies: Workers,
    /// Workers that validate texts against the rule of a model's file.
    pub(crate) validation: Workers,
    /// Workers that count tokens for such a rule.
    pub(crate) tokens: Workers,
}

impl Reading {
    pub fn from_config(server: &ServerSection) -> Reading {
        let workers = |kind, count, part| Workers::new(kind, count, memory(server, part));
        Reading {
            bodies: workers("reading", server.reading_workers, PART),
            validation: workers("validation", server.validation_workers, SMALL_PART),
            tokens: workers("tokens", server.token_workers, SMALL_PART),
        }
    }

    /// Runs `read` over `bytes` bytes: inline if they are few, otherwise in a worker.
    pub async fn run<T, F>(&self, bytes: usize, read: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        if bytes <= AT_ONCE_BYTES {
            read()
        } else {
            self.apart(bytes, read).await
        }
    }

    /// Like [`Reading::run`], but always uses a worker if `blocks`.
    pub(crate) async fn run_apart_if<T, F>(
        &self,
        blocks: bool,
        bytes: usize,
        read: F,
    ) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        if blocks || bytes > AT_ONCE_BYTES {
            return self.apart(bytes, read).await;
        }
        read()
    }

    /// Like [`Reading::run`], but always uses a worker.
    pub(crate) async fn apart<T, F>(&self, bytes: usize, read: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.bodies.run(bytes, read).await
    }

    /// The workers of all kinds, for the metrics.
    pub(crate) fn workers(&self) -> [&Workers; 3] {
        [&self.bodies, &self.validation, &self.tokens]
    }
}

/// The memory limit of one kind of workers. Kinds do not wait for each other.
fn memory(server: &ServerSection, part: u64) -> u64 {
    (server.bodies_memory.0.0 / part).max(1)
}

/// Workers of one kind. Callers take turns: a caller with many requests delays another only by work that has already begun.
#[derive(Debug)]
pub(crate) struct Workers {
    kind: &'static str,
    count: usize,
    memory: Arc<Shares>,
    memory_max: u64,
    turns: Arc<Shares>,
    waiting: Arc<AtomicUsize>,
    taken: Arc<Mutex<Histogram>>,
}

/// Current state and totals of the workers.
#[derive(Clone, Debug)]
pub(crate) struct WorkersSnapshot {
    pub kind: &'static str,
    pub count: usize,
    pub busy: usize,
    pub waiting: usize,
    /// Seconds from submission to completion.
    pub taken: Histogram,
}

/// Counts a waiting request until it is dropped.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    fn new(kind: &'static str, count: Option<u32>, memory_max: u64) -> Workers {
        // Leaves half of the cores to other work.
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = match count {
            Some(count) => count as usize,
            None => cores() / 2,
        };
        let count = count.max(1);
        Workers {
            kind,
            count,
            memory: Shares::new(Capacity::in_turns(memory_max)),
            memory_max,
            turns: Shares::new(Capacity::in_turns(count as u64)),
            waiting: Arc::default(),
            taken: Arc::new(Mutex::new(Histogram::new(WORK))),
        }
    }

    /// Runs `work` over `bytes` bytes as soon as a worker is free.
    pub async fn run<T, F>(&self, bytes: usize, work: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        #[expect(
            clippy::disallowed_methods,
            reason = "measures the work for a metric; no decision depends on it"
        )]
        let submitted = std::time::Instant::now();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(&self.waiting));
        let wanted = (bytes as u64).saturating_mul(TIMES);
        let wanted = wanted.clamp(1, self.memory_max);
        let (caller, _) = record::caller();
        // The time only matters for evictions, and this pool has none.
        let now = Time(0);
        // A request that holds its memory waits only for its turn, which cannot deadlock.
        let memory = self.memory.hold(caller, Class::Small, wanted, now).await;
        let turn = self.turns.hold(caller, Class::Small, 1, now).await;
        drop(waiting);
        let taken = Arc::clone(&self.taken);
        let work = move || {
            let worked = work();
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.observe(submitted.elapsed().as_secs_f64());
            drop((turn, memory));
            worked
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.unwrap_or_else(|error| {
            tracing::error!(%error, "a request's body could not be read");
            let message = "the request could not be read; see the server log";
            Err(Failure::internal(message))
        })
    }

    pub fn snapshot(&self) -> WorkersSnapshot {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        WorkersSnapshot {
            kind: self.kind,
            count: self.count,
            busy: usize::try_from(self.turns.held())
                .unwrap_or(usize::MAX)
                .min(self.count),
            waiting: self.waiting.load(Ordering::Relaxed),
            taken: taken.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
