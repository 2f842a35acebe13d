//! Fast path for the two most frequent routes, which bypasses the router, because the router allocates more than everything else
//! for a request. Responses are the same.

use std::pin::pin;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Method, Response, Uri};
use axum::response::IntoResponse;

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::request::failed::Failed;
use crate::inference::request::receiving::mended;
use crate::inference::stages::complete_read;
use crate::state::App;
use dialect::Dialect;
use dialect::{CHAT, COMPLETIONS};
use edge::PlainBody;
use edge::record::Record;

/// The engine's route for the request, if the fast path handles it.
pub fn route(parts: &Parts, base: &str) -> Option<&'static str> {
    let path = parts.uri.path();
    let below = path.strip_prefix(base).unwrap_or(path);
    let mut usual = [CHAT, COMPLETIONS].into_iter();
    usual.find(|route| *route == below && parts.method == Method::POST)
}

/// Does the same as the route's handler.
pub async fn respond(
    app: App,
    mut parts: Parts,
    body: &mut PlainBody,
    record: &Record,
    route: &'static str,
) -> Response<Body> {
    // Permissions refer to routes without the base path.
    parts.uri = Uri::from_static(route);
    match User::from_request_parts(&mut parts, &app).await {
        Err(failure) => failure.into_response(),
        Ok(user) => {
            let headers = std::mem::take(&mut parts.headers);
            drop(parts);
            let context = RequestContext::taking(&app, user, headers);
            let work = pin!(async {
                let read = app.edge.read(body, record).await;
                let body = read.map_err(|failure| -> Failed { (None, failure) })?;
                let body = mended(&app, body).await?;
                complete_read(&app, &context, body, route, Dialect::OpenAi).await
            });
            context.end(&app, work).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    #[test]
    fn chats_and_texts_go_past_the_table_below_the_base_path_and_at_the_root() {
        let route = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            route(&parts, "/llm")
        };
        assert_eq!(route("POST", "/llm/v1/chat/completions"), Some(CHAT));
        assert_eq!(route("POST", "/v1/chat/completions?a=b"), Some(CHAT));
        assert_eq!(route("POST", "/v1/completions"), Some(COMPLETIONS));
        for (method, path) in [
            ("GET", "/v1/completions"),
            ("OPTIONS", "/v1/completions"),
            ("POST", "/v1/completions/"),
            ("POST", "/llm/llm/v1/completions"),
            ("POST", "/v1/messages"),
        ] {
            assert_eq!(route(method, path), None, "{method} {path}");
        }
    }
}
