//! Reads what the head of a request says of its sender.

use axum::http::{HeaderMap, header};

use crate::edge::record;

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

/// The client itself is on this machine, and is no proxy.
pub(crate) fn from_loopback() -> bool {
    record::client().is_some_and(|it| it.is_loopback())
}
