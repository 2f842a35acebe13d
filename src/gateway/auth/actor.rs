//! The sender of a request that changes something, for the audit log: set where the sender is authenticated, read where the change
//! is recorded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::HeaderValue;
use axum::http::request::Parts;

use pool::KeyId;

/// The sender of a request, once authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub key: Option<KeyId>,
    /// The id of the key or person, for its group.
    pub caller: KeyId,
    /// The subject of a single sign-on token.
    pub subject: Option<String>,
    pub name: String,
    pub is_admin: bool,
}

/// Added to requests whose change is recorded.
#[derive(Clone, Default)]
pub struct ActorSlot(Arc<Recorded>);

#[derive(Default)]
struct Recorded {
    actor: OnceLock<Actor>,
    administers: AtomicBool,
}

impl ActorSlot {
    pub fn actor(&self) -> Option<&Actor> {
        self.0.actor.get()
    }

    /// Returns true if the sender is an administrator, of the pool or, on a route for them, of a group.
    pub fn is_admin(&self) -> bool {
        let is_admin = self.actor().is_some_and(|actor| actor.is_admin);
        is_admin || self.0.administers.load(Ordering::Relaxed)
    }
}

/// The id of a request, as returned in its response.
#[derive(Clone)]
pub struct RequestId(pub HeaderValue);

/// Records the sender for the audit log, before authorization.
pub(crate) fn tell(parts: &Parts, actor: impl FnOnce() -> Actor) {
    if let Some(slot) = parts.extensions.get::<ActorSlot>() {
        // A request has one sender, so the first call wins.
        let _ = slot.0.actor.set(actor());
    }
}

/// Records that the sender may administer a group on this route.
pub(crate) fn administers(parts: &Parts) {
    if let Some(slot) = parts.extensions.get::<ActorSlot>() {
        slot.0.administers.store(true, Ordering::Relaxed);
    }
}
