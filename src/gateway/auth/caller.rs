//! Reads the sender's credentials from the head of a request.

use axum::http::{HeaderMap, header};

use access::limits::place_of;
use edge::record;

/// Headers that contain only a key, in order of preference. Anthropic, Azure and Google clients send them.
pub const KEY_HEADERS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];

pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    let value = KEY_HEADERS.iter().find_map(|name| headers.get(*name))?;
    value.to_str().ok()
}

/// The address for which limits count the current request.
pub fn place() -> String {
    record::client().map_or_else(|| "unknown".to_owned(), |client| place_of(client.address))
}

/// Returns true if the client itself is on this machine and is not a proxy.
pub(crate) fn from_loopback() -> bool {
    record::client().is_some_and(|client| client.is_loopback())
}
