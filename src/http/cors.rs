//! What web pages of other origins may call (`server.cors`). A reload may change it, so the layer is made for each
//! request of a page.

use axum::http::{HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use config::ServerSection;

/// Browsers may call from the configured origins. They send no cookies, and every caller needs a
/// key as anybody does.
pub(super) fn layer(server: &ServerSection) -> Option<CorsLayer> {
    let section = server.cors.as_ref()?;
    let is_any = section.origins.iter().any(|origin| origin == "*");
    let listed = section.origins.iter();
    let listed = listed.filter_map(|origin| HeaderValue::from_str(origin).ok());
    let origins = match is_any {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(listed),
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        // OpenAI's clients send a dozen headers of their own.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
        .max_age(section.max_age.duration());
    Some(layer)
}
