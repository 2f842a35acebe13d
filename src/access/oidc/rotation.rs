//! The issuer's keys: read in the background, kept while the issuer cannot be reached, and requested at most every 10 s, however
//! many tokens name unknown keys.
//!
//! ```text
//!  verify ──needs a key──▶ read_soon ──at most one in 10 s──▶ task: describe, keys ──▶ known
//!     ▲                        │ the same attempt for all                               │
//!     └── waits for its end ◀──┘◀───────────────────────────────────────────────────────┘
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use reqwest::Url;
use tokio::sync::watch;

use super::error::IssuerError;
use super::issuer::Issuer;
use super::keys::KeySet;
use pool::{Span, Time};

/// Time between two attempts to read the keys.
pub(super) const PAUSE: Span = Span::from_secs(10);
/// Keys that could not be refreshed for this long are no longer trusted.
const TRUSTED_FOR: Span = Span::from_secs(24 * 3600);

pub(super) struct Rotation {
    issuer: Arc<Issuer>,
    refresh: Span,
    known: ArcSwapOption<KnownKeys>,
    attempt: Mutex<Option<Attempt>>,
    /// The address of the keys, and the time since which it is known. Dropped when it does not work.
    address: Mutex<Option<(Url, Time)>>,
}

#[derive(Debug)]
pub(super) struct KnownKeys {
    pub keys: KeySet,
    /// Changes when the keys change.
    pub generation: u64,
    read: Time,
}

struct Attempt {
    began: Time,
    over: watch::Receiver<bool>,
}

/// The wall clock may be set back, so a time in the future counts as past.
fn between(one: Time, other: Time) -> Span {
    Span(one.0.abs_diff(other.0))
}

impl Rotation {
    pub fn new(issuer: Arc<Issuer>, refresh: Span) -> Rotation {
        Rotation {
            issuer,
            refresh,
            known: ArcSwapOption::empty(),
            attempt: Mutex::new(None),
            address: Mutex::new(None),
        }
    }

    /// The keys, if they may still be trusted. Old keys are refreshed in the background.
    pub fn known(self: &Arc<Rotation>, now: Time) -> Option<Arc<KnownKeys>> {
        let known = self.known.load_full()?;
        let age = between(now, known.read);
        if age >= self.refresh {
            self.read_soon(now);
        }
        (age < TRUSTED_FOR).then_some(known)
    }

    /// The keys after an attempt to read them that is not older than the pause.
    pub async fn newest(self: &Arc<Rotation>, now: Time) -> Option<Arc<KnownKeys>> {
        let mut over = self.read_soon(now);
        // An attempt that was dropped is over too.
        let _ = over.wait_for(|over| *over).await;
        self.known(now)
    }

    /// Time until the next request to the issuer is allowed.
    pub fn pause_left(&self, now: Time) -> Span {
        let attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = attempt.as_ref().map(|attempt| between(now, attempt.began));
        Span(
            PAUSE
                .0
                .saturating_sub(waited.map_or(0, |waited| waited.0))
                .max(1000),
        )
    }

    /// Starts to read the keys, or joins the attempt that runs or has just ended. The attempt continues when its client leaves,
    /// because other requests also wait for it.
    #[expect(
        clippy::disallowed_methods,
        reason = "one at a time, and it ends by its own timeouts"
    )]
    pub fn read_soon(self: &Arc<Rotation>, now: Time) -> watch::Receiver<bool> {
        let mut attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = attempt.as_ref() {
            let runs = !*last.over.borrow() && last.over.has_changed().is_ok();
            if runs || between(now, last.began) < PAUSE {
                return last.over.clone();
            }
        }
        let (tell, over) = watch::channel(false);
        *attempt = Some(Attempt {
            began: now,
            over: over.clone(),
        });
        let rotation = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = rotation.read(now).await {
                tracing::warn!(%error, "the keys for single sign-on could not be read");
            }
            tell.send_replace(true);
        });
        over
    }

    async fn read(&self, now: Time) -> Result<(), IssuerError> {
        let place = self.address_lock().take();
        let place = place.filter(|(_, since)| between(now, *since) < self.refresh);
        let (address, since) = match place {
            Some(place) => place,
            None => (self.issuer.describe().await?, now),
        };
        let keys = self.issuer.keys(&address).await?;
        *self.address_lock() = Some((address, since));
        let before = self.known.load_full();
        let generation = match &before {
            Some(before) if before.keys == keys => before.generation,
            Some(before) => before.generation + 1,
            None => 0,
        };
        if before.is_none_or(|before| before.generation != generation) {
            tracing::info!(keys = keys.len(), "the keys for single sign-on were read");
        }
        let read = now;
        self.known.store(Some(Arc::new(KnownKeys {
            keys,
            generation,
            read,
        })));
        Ok(())
    }

    fn address_lock(&self) -> std::sync::MutexGuard<'_, Option<(Url, Time)>> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
