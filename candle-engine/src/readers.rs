//! Workers that render chat templates and tokenize requests. Their number is limited and they are separate from the compute
//! threads: a burst of long prompts takes no cores from running generations, and a busy batch does not delay the parsing of
//! requests.

use crate::api_error::ApiError;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::sync::Semaphore;

pub(crate) struct Readers {
    count: usize,
    turns: Arc<Semaphore>,
    gauges: Arc<Gauges>,
}

#[derive(Debug, Default)]
struct Gauges {
    waiting: AtomicUsize,
    done: AtomicU64,
    worked_microseconds: AtomicU64,
}

/// Counts a waiting request until dropped.
struct WaitingGuard(Arc<Gauges>);

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Readers {
    /// `None` means half the number of cores, at least one; the other cores compute.
    pub fn new(count: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let count = count.unwrap_or_else(|| cores() / 2).max(1);
        Self {
            count,
            turns: Arc::new(Semaphore::new(count)),
            gauges: Arc::default(),
        }
    }

    /// Runs the work when a worker is free.
    ///
    /// # Errors
    /// The error of the work, or 500 if it panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.gauges.waiting.fetch_add(1, Relaxed);
        let waiting = WaitingGuard(Arc::clone(&self.gauges));
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        drop(waiting);
        let gauges = Arc::clone(&self.gauges);
        let worked = tokio::task::spawn_blocking(move || {
            #[expect(
                clippy::disallowed_methods,
                reason = "measures the duration for a metric; no decision depends on it"
            )]
            let begun = Instant::now();
            let worked = work();
            let microseconds = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            gauges.worked_microseconds.fetch_add(microseconds, Relaxed);
            gauges.done.fetch_add(1, Relaxed);
            drop(turn);
            worked
        });
        worked
            .await
            .unwrap_or_else(|_| Err(ApiError::internal("the engine failed on this request")))
    }

    /// Renders the figures in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut add = |name: &str, kind: &str, help: &str, value: f64| {
            let name = format!("candle_engine_tokenizer_{name}");
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            );
        };
        let busy = self.count - self.turns.available_permits().min(self.count);
        let seconds = self.gauges.worked_microseconds.load(Relaxed) as f64 / 1e6;
        add(
            "workers",
            "gauge",
            "Workers that tokenize requests.",
            self.count as f64,
        );
        add("workers_busy", "gauge", "Busy workers.", busy as f64);
        add(
            "waiting",
            "gauge",
            "Requests waiting for a worker.",
            self.gauges.waiting.load(Relaxed) as f64,
        );
        add(
            "requests_total",
            "counter",
            "Tokenized requests.",
            self.gauges.done.load(Relaxed) as f64,
        );
        add(
            "seconds_total",
            "counter",
            "Time spent on tokenizing, without waiting, in seconds.",
            seconds,
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    fn number(readers: &Readers, name: &str) -> f64 {
        let text = readers.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("candle_engine_tokenizer_{name} ")));
        line.and_then(|line| line.parse().ok()).expect("a number")
    }

    #[tokio::test]
    async fn as_many_jobs_run_as_there_are_workers_and_the_next_one_waits() {
        let readers = Readers::new(Some(2));
        let both = Arc::new(Barrier::new(2));
        let (hold, held) = channel::<()>();
        let other = Arc::clone(&both);
        let first = readers.run(move || {
            both.wait();
            // Returns an error once the last sender is dropped.
            let _ = held.recv();
            Ok(1)
        });
        let second = readers.run(move || {
            other.wait();
            Ok(2)
        });
        let watch = async {
            while number(&readers, "requests_total") < 1.0 {
                tokio::task::yield_now().await;
            }
            let late = readers.run(|| Ok(3)).await;
            drop(hold);
            late
        };
        let (first, second, late) = tokio::join!(first, second, watch);
        assert_eq!(
            (first.ok(), second.ok(), late.ok()),
            (Some(1), Some(2), Some(3))
        );
        assert_eq!(number(&readers, "workers"), 2.0);
        assert_eq!(number(&readers, "workers_busy"), 0.0);
        assert_eq!(number(&readers, "waiting"), 0.0);
        assert_eq!(number(&readers, "requests_total"), 3.0);
    }

    #[tokio::test]
    async fn a_panicking_job_returns_an_error_and_frees_its_worker() {
        let readers = Readers::new(Some(1));
        for _ in 0..2 {
            let worked = readers.run(|| -> Result<(), ApiError> { panic!("broken") });
            assert!(worked.await.is_err());
        }
        assert!(readers.run(|| Ok(())).await.is_ok());
        assert_eq!(number(&readers, "workers_busy"), 0.0);
    }
}
