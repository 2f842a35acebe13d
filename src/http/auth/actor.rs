//! The sender of a request that changes something, for the audit: set where the sender is known, read where
//! the change is written down.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderValue;
use axum::http::request::Parts;

use pool::KeyId;

/// Who asks, as soon as the door knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub key: Option<KeyId>,
    /// Of a token of the single sign-on.
    pub subject: Option<String>,
    pub name: String,
    pub is_admin: bool,
}

/// Put into a request whose change is written down.
#[derive(Clone, Default)]
pub struct ActorSlot(pub Arc<OnceLock<Actor>>);

/// The id of a request, as its answer will carry it.
#[derive(Clone)]
pub struct RequestId(pub HeaderValue);

/// For the door: who it is, before it is decided whether they may.
pub fn tell(parts: &Parts, actor: impl FnOnce() -> Actor) {
    if let Some(slot) = parts.extensions.get::<ActorSlot>() {
        // One request has one sender; who was first was right.
        let _ = slot.0.set(actor());
    }
}
