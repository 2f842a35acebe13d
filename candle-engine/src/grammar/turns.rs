//! Limits how many grammars are tried and compiled simultaneously, and how long requests wait for their turn. A compilation that
//! timed out keeps its turn until it really ends, so no more can run than there are turns.

use crate::api_error::ApiError;
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Turns of each kind. Grammars without a trial do not wait for grammars with a trial.
const AT_ONCE: usize = 2;
/// Maximum time a request waits for a turn.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(super) struct Turns {
    trials: Arc<Semaphore>,
    compilations: Arc<Semaphore>,
    waiting: AtomicUsize,
    pub tried: AtomicU64,
    pub refused: AtomicU64,
    pub given_up: AtomicU64,
}

/// Counts a waiting request until dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Turns {
    pub fn new() -> Self {
        Self {
            trials: Arc::new(Semaphore::new(AT_ONCE)),
            compilations: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: AtomicUsize::new(0),
            tried: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    /// # Errors
    /// 503 if no turn comes in time.
    pub async fn trial(&self, param: &str) -> Result<OwnedSemaphorePermit, ApiError> {
        self.turn(&self.trials, param).await
    }

    /// # Errors
    /// 503 if no turn comes in time.
    pub async fn compilation(&self, param: &str) -> Result<OwnedSemaphorePermit, ApiError> {
        self.turn(&self.compilations, param).await
    }

    async fn turn(
        &self,
        turns: &Arc<Semaphore>,
        param: &str,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        self.waiting.fetch_add(1, Relaxed);
        let _waiting = WaitingGuard(&self.waiting);
        match timeout(WAIT_MAX, Arc::clone(turns).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(ApiError {
                param: Some(param.to_owned()),
                ..ApiError::with_status(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "grammars_busy",
                    format!(
                        "`{param}` waited {} s for other grammars to be compiled; try again in a moment",
                        WAIT_MAX.as_secs()
                    ),
                )
            }),
        }
    }

    /// The figures for Prometheus: name, type, help text and value of each.
    pub fn gauges(&self) -> [(&'static str, &'static str, &'static str, u64); 6] {
        let taken = |turns: &Semaphore| AT_ONCE.saturating_sub(turns.available_permits()) as u64;
        [
            (
                "compiling",
                "gauge",
                "Grammars being compiled, including those that timed out.",
                taken(&self.compilations),
            ),
            (
                "in_trial",
                "gauge",
                "Grammars being tried in another process.",
                taken(&self.trials),
            ),
            (
                "waiting",
                "gauge",
                "Requests waiting for their grammar to be tried or compiled.",
                self.waiting.load(Relaxed) as u64,
            ),
            (
                "tried_total",
                "counter",
                "Grammars that were tried in another process.",
                self.tried.load(Relaxed),
            ),
            (
                "refused_total",
                "counter",
                "Grammars that were refused because a trial took too much time or memory.",
                self.refused.load(Relaxed),
            ),
            (
                "given_up_total",
                "counter",
                "Compilations that timed out; they continue until they end.",
                self.given_up.load(Relaxed),
            ),
        ]
    }
}
