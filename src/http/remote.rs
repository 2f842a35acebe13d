//! What is different about answers of an endpoint that somebody else runs: its refusal of the pool's
//! key is not the client's, a redirect is not followed, and nothing that it repeats of the key is
//! passed on. It sends nothing itself.

use axum::body::Bytes;
use axum::http::StatusCode;

use super::error::Failure;
use crate::controller::{Endpoint, Lease, Remote};

pub(super) fn of(lease: &Lease) -> Option<&Remote> {
    match lease.endpoint() {
        Endpoint::Remote(remote) => Some(remote),
        Endpoint::Unix(_) | Endpoint::Tcp(_) => None,
    }
}

/// An answer that must not reach the client as it is.
pub(super) fn misplaced(lease: &Lease, model: &str, status: StatusCode) -> Option<Failure> {
    let remote = of(lease)?;
    let number = status.as_u16();
    let why = match number {
        401 | 403 => format!(
            "{remote} answered {number} to the pool's own key; an administrator has to look at the key of this model"
        ),
        300..=399 => format!(
            "{remote} answered {number}, a redirect, and the pool follows none; an administrator has to correct engine_config.url"
        ),
        _ => return None,
    };
    Some(Failure::engine(model, why))
}

/// Nobody was reached; the lease's own engine is asked for the reason otherwise.
pub(super) fn unreached(
    lease: &Lease,
    model: &str,
    error: &(dyn std::error::Error + 'static),
) -> Option<Failure> {
    let remote = of(lease)?;
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(Failure::engine(model, format!("{remote}: {cause}")))
}

/// An error's body without what it repeats of the key.
pub(super) fn masked(lease: &Lease, body: Bytes) -> Bytes {
    match of(lease) {
        None => body,
        Some(remote) => remote.masked(&String::from_utf8_lossy(&body)).into(),
    }
}
