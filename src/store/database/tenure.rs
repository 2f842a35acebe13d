//! The leadership of this process. On PostgreSQL the session that holds the lock is checked every second, and each response
//! confirms the leadership as of the time of the question. With standby processes, leadership that stays unconfirmed ends on its
//! own: this process stops giving orders before another one may start (D4).
//!
//! ```text
//! leader   ─ confirmed ─┬─ the session is lost ─────── 4 s ──▶ it gives up
//! standby               └─ it gets the lock ── waits ── 5 s ──▶ it leads
//! ```

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Time after which unconfirmed leadership ends, if there are standby processes.
pub(super) const UNCONFIRMED_MAX: Duration = Duration::from_secs(4);
/// Waiting time of a new leader, if the former one did not release the lock properly. Exceeds `UNCONFIRMED_MAX` to allow for clock
/// drift and for orders in transit.
pub(super) const WAIT_FOR_FORMER: Duration = Duration::from_secs(5);

/// The leadership of one run of the program.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub generation: i64,
    /// Time limit without confirmation; `None` if leadership only ends when another process leads.
    limit: Option<Duration>,
    inner: Mutex<Inner>,
    ended: Notify,
}

#[derive(Debug)]
struct Inner {
    confirmed: Instant,
    /// True while no session holds the lock.
    is_without_session: bool,
    /// The reason that leadership has ended: another process took over, or this one gave it up.
    taken_over: Option<String>,
}

impl Tenure {
    /// `confirmed` is a time at which the lock was certainly held.
    pub fn new(generation: i64, limit: Option<Duration>, confirmed: Instant) -> Tenure {
        Tenure {
            generation,
            limit,
            inner: Mutex::new(Inner {
                confirmed,
                is_without_session: false,
                taken_over: None,
            }),
            ended: Notify::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the lock was held at this time. Leadership that has ended does not come back.
    pub fn confirm(&self, at: Instant) {
        let mut inner = self.lock();
        if self.why_over(&inner).is_none() {
            inner.confirmed = inner.confirmed.max(at);
            inner.is_without_session = false;
        }
    }

    /// Records that the session that holds the lock has ended or does not respond.
    pub fn lost_its_session(&self) {
        self.lock().is_without_session = true;
    }

    pub fn has_lost_its_session(&self) -> bool {
        self.lock().is_without_session
    }

    /// Returns true if standby processes are possible.
    pub fn is_watched(&self) -> bool {
        self.limit.is_some()
    }

    /// Ends the leadership: another process leads, or this one has given it up.
    pub fn end(&self, why: &str) {
        let mut inner = self.lock();
        inner.taken_over.get_or_insert_with(|| why.to_owned());
        drop(inner);
        self.ended.notify_waiters();
    }

    /// Returns true if this process may give orders. Cheap enough to call before each order.
    pub fn is_certain(&self) -> bool {
        self.why_over(&self.lock()).is_none()
    }

    fn why_over(&self, inner: &Inner) -> Option<String> {
        if let Some(why) = &inner.taken_over {
            return Some(why.clone());
        }
        let limit = self.limit?;
        let is_late = now().saturating_duration_since(inner.confirmed) >= limit;
        is_late.then(|| {
            format!(
                "it could not confirm its leadership for {} s, and another process may be the leader",
                limit.as_secs()
            )
        })
    }

    /// Returns the reason once this process is no longer the leader.
    pub async fn over(&self) -> String {
        loop {
            let ended = self.ended.notified();
            let confirmed = {
                let inner = self.lock();
                if let Some(why) = self.why_over(&inner) {
                    return why;
                }
                inner.confirmed
            };
            match self.limit {
                None => ended.await,
                Some(limit) => {
                    // The loop checks which of the two came first.
                    let _ = tokio::time::timeout_at(confirmed + limit, ended).await;
                }
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long ago a server answered; no decision about models depends on it"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn d4_unconfirmed_leadership_ends_before_another_process_may_lead() {
        assert!(UNCONFIRMED_MAX < WAIT_FOR_FORMER);
        let tenure = Tenure::new(7, Some(UNCONFIRMED_MAX), now());
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(1)).await;
            tenure.confirm(now());
        }
        tokio::time::advance(UNCONFIRMED_MAX - Duration::from_millis(1)).await;
        assert!(tenure.is_certain());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!tenure.is_certain());
        tenure.confirm(now());
        assert!(!tenure.is_certain(), "what was lost does not come back");
        assert!(
            tenure
                .over()
                .await
                .contains("another process may be the leader")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn d4_without_a_standby_leadership_lasts_until_another_process_leads() {
        let tenure = Tenure::new(7, None, now());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(tenure.is_certain());
        let waiting = tenure.over();
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_secs(60), waiting.as_mut()).await;
        assert!(early.is_err());
        tenure.end("another one has it");
        assert_eq!(waiting.await, "another one has it");
        assert!(!tenure.is_certain());
    }
}
