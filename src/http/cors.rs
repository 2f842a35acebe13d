//! Cross-origin access of web pages (`server.cors`). The layer is built per request, because a reload may change the configuration.

use axum::http::Method;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use config::{ServerSection, WebOrigin};

/// Allows browsers on pages of the configured origins. They send no cookies, so every caller needs a key as usual.
pub(super) fn layer(server: &ServerSection) -> Option<CorsLayer> {
    let section = server.cors.as_ref()?;
    let origins = if section.origins.iter().any(WebOrigin::is_any) {
        AllowOrigin::any()
    } else {
        let section = section.clone();
        AllowOrigin::predicate(move |origin, _| {
            origin.to_str().is_ok_and(|origin| section.allows(origin))
        })
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
        // OpenAI's clients send a dozen custom headers.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
        .max_age(section.max_age.duration());
    Some(layer)
}
