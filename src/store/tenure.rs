//! Whether this process still leads. On PostgreSQL the session that holds the lock is asked every second, and each answer
//! confirms the leadership as of the moment of the question. Where another process stands by, leadership that was not
//! confirmed for a while is over by itself: this process ends its orders before the other one may begin with its own (D4).
//!
//! ```text
//! one that leads    ─ confirmed ─┬─ the session is lost ─────── 4 s ──▶ it gives up
//! one that stands by             └─ it gets the lock ── waits ── 5 s ──▶ it leads
//! ```

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long leadership lasts without being confirmed, where another process stands by.
pub(super) const UNCONFIRMED_MAX: Duration = Duration::from_secs(4);
/// How long one that has got the lock of a leader that did not end in good order waits before it leads. The difference is for
/// clocks that do not run alike, and for an order that is on its way.
pub(super) const WAIT_FOR_FORMER: Duration = Duration::from_secs(5);

/// The leadership of one start of the program.
#[derive(Debug)]
pub(super) struct Tenure {
    pub generation: i64,
    /// How long it lasts unconfirmed; `None`: until it is known that another process leads.
    limit: Option<Duration>,
    inner: Mutex<Inner>,
    ended: Notify,
}

#[derive(Debug)]
struct Inner {
    confirmed: Instant,
    /// There is no session that holds the lock at the moment.
    is_without_session: bool,
    /// Another process has the database, or this one has given it up, in words.
    taken_over: Option<String>,
}

impl Tenure {
    /// `confirmed`: when the lock was held for certain.
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

    /// The lock was held at this moment. What was lost does not come back.
    pub fn confirm(&self, at: Instant) {
        let mut inner = self.lock();
        if self.why_over(&inner).is_none() {
            inner.confirmed = inner.confirmed.max(at);
            inner.is_without_session = false;
        }
    }

    /// The session that holds the lock has ended, or does not answer.
    pub fn lost_its_session(&self) {
        self.lock().is_without_session = true;
    }

    pub fn has_lost_its_session(&self) -> bool {
        self.lock().is_without_session
    }

    /// Another process stands by.
    pub fn is_watched(&self) -> bool {
        self.limit.is_some()
    }

    /// It is over: another process leads, or this one has given the lead up.
    pub fn end(&self, why: &str) {
        let mut inner = self.lock();
        inner.taken_over.get_or_insert_with(|| why.to_owned());
        drop(inner);
        self.ended.notify_waiters();
    }

    /// Whether orders of this process count. Cheap enough to be asked before each of them.
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
                "it has not been able to confirm for {} s that it leads, and another one may lead by now",
                limit.as_secs()
            )
        })
    }

    /// Returns when this process does not lead any more, with the reason.
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
                    // Whichever comes first is looked at above.
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
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn d4_leadership_that_is_not_confirmed_ends_before_another_may_begin() {
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
        assert!(tenure.over().await.contains("another one may lead"));
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
