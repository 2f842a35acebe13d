//! Reads what the head of a request says of its sender.

use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use crate::edge::ClientAddress;

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

/// The client itself is on this machine, and is no proxy.
pub(crate) fn from_loopback(parts: &Parts) -> bool {
    let client = parts.extensions.get::<ClientAddress>();
    client.is_some_and(ClientAddress::is_loopback)
}
