//! Security headers of every response: no content sniffing, no framing, and no caching of administrators' data.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};

/// For Swagger UI's files and the styles that it injects. It only connects to this service.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const NOTHING_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// Keeps headers that the route has set.
pub(super) fn dress(path: &str, base: &str, headers: &mut HeaderMap) {
    let mut set = |name: HeaderName, value: &'static str| {
        headers
            .entry(name)
            .or_insert_with(|| HeaderValue::from_static(value));
    };
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    let below = path.strip_prefix(base).unwrap_or_default();
    let is_below = |folder: &str| {
        below
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let policy = match (is_below("/docs"), is_below("/admin")) {
        (true, _) => DOCS_POLICY,
        (_, true) => NOTHING_POLICY,
        _ => return,
    };
    set(CONTENT_SECURITY_POLICY, policy);
    set(REFERRER_POLICY, "no-referrer");
    set(X_FRAME_OPTIONS, "DENY");
    if policy == NOTHING_POLICY {
        set(CACHE_CONTROL, "no-store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_responses_are_not_cached_and_docs_run_only_their_own_scripts() {
        let dressed = |path: &str| {
            let mut headers = HeaderMap::new();
            dress(path, "/llm", &mut headers);
            headers
        };
        let admin = dressed("/llm/admin/keys");
        assert_eq!(admin[CACHE_CONTROL], "no-store");
        assert_eq!(admin[CONTENT_SECURITY_POLICY], NOTHING_POLICY);
        let docs = dressed("/llm/docs/");
        assert_eq!(docs[CONTENT_SECURITY_POLICY], DOCS_POLICY);
        assert!(!docs.contains_key(CACHE_CONTROL));
        let plain = dressed("/llm/administrator");
        assert_eq!(plain.len(), 1);
        assert_eq!(plain[X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}
