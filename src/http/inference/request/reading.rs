//! Where requests are worked on before an engine has them, and long answers once it has written them: short bodies at
//! once, and long ones, texts under a model's rule and texts whose tokens are counted each by workers of their own, a few
//! at a time and with memory reserved for what is made of them. So no request keeps the others waiting, and no kind of work
//! another. It knows no body's meaning.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::edge::record;
use crate::error::Failure;
use crate::metrics::{Histogram, WORK};
use crate::shares::{Capacity, Class, Shares};
use config::ServerSection;
use pool::Time;

/// A shorter body is read in less than a millisecond.
pub(crate) const AT_ONCE_BYTES: usize = 64 << 10;
/// What is made of a body while it is read takes so many times its bytes at most.
const TIMES: u64 = 8;
/// Of `server.bodies_memory` parts of these sizes are there beside it: for what is made of bodies while they are read, and for
/// each of the other kinds of work.
const PART: u64 = 4;
const SMALL_PART: u64 = 8;

/// The workers of each kind.
#[derive(Debug)]
pub struct Reading {
    bodies: Workers,
    /// They hold texts to the rule of a model's file.
    pub validation: Workers,
    /// They count tokens for such a rule.
    pub tokens: Workers,
}

impl Reading {
    pub fn of(server: &ServerSection) -> Reading {
        let workers = |kind, count, part| Workers::new(kind, count, memory(server, part));
        Reading {
            bodies: workers("reading", server.reading_workers, PART),
            validation: workers("validation", server.validation_workers, SMALL_PART),
            tokens: workers("tokens", server.token_workers, SMALL_PART),
        }
    }

    /// Reads so many bytes: here if they are few.
    pub async fn run<T, F>(&self, bytes: usize, read: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        match bytes <= AT_ONCE_BYTES {
            true => read(),
            false => self.apart(bytes, read).await,
        }
    }

    /// The same, on another thread also where reading blocks.
    pub async fn run_apart_if<T, F>(
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

    /// The same on another thread, however few they are.
    pub async fn apart<T, F>(&self, bytes: usize, read: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.bodies.run(bytes, read).await
    }

    /// All kinds, for the metrics.
    pub fn workers(&self) -> [&Workers; 3] {
        [&self.bodies, &self.validation, &self.tokens]
    }
}

/// The memory of one kind of workers. The kinds do not wait for each other.
fn memory(server: &ServerSection, part: u64) -> u64 {
    (server.bodies_memory.0.0 / part).max(1)
}

/// Workers of one kind. Waiting callers take turns: a caller with many requests delays another only by the work that has begun.
#[derive(Debug)]
pub struct Workers {
    kind: &'static str,
    count: usize,
    memory: Arc<Shares>,
    memory_max: u64,
    turns: Arc<Shares>,
    waiting: Arc<AtomicUsize>,
    taken: Arc<Mutex<Histogram>>,
}

/// What workers do at this moment, and what they did.
#[derive(Clone, Debug)]
pub struct WorkersSnapshot {
    pub kind: &'static str,
    pub count: usize,
    pub busy: usize,
    pub waiting: usize,
    /// Seconds from being asked to the end.
    pub taken: Histogram,
}

/// One that waits, until it is dropped.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    fn new(kind: &'static str, count: Option<u32>, memory_max: u64) -> Workers {
        // The other cores are for everybody else.
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

    /// Works on so many bytes when a worker is free.
    pub async fn run<T, F>(&self, bytes: usize, work: F) -> Result<T, Failure>
    where
        F: FnOnce() -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is how long the work took, which nothing is decided by"
        )]
        let submitted = std::time::Instant::now();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(&self.waiting));
        let wanted = (bytes as u64).saturating_mul(TIMES);
        let wanted = wanted.clamp(1, self.memory_max);
        let (caller, _) = record::caller();
        // Nothing is evicted here, and the time does not matter.
        let now = Time(0);
        // A request with its memory waits for its turn alone: all make progress.
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
            let message = "the request could not be read; the service's log says why";
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
