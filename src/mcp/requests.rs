//! Requests to the routes of the admin API on behalf of the caller, with the caller's own headers. The routes check its rights, read
//! the fields strictly, and record changes in the audit log.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, Uri, header};
use serde_json::{Map, Value};
use tower::ServiceExt;
use url::form_urlencoded::Serializer;

use admin::order_origin::OrderOrigin;
use api_types::error::{ErrorKind, Failure};
use gateway::auth::actor::RequestId;
use pool::OrderEffect;

/// Largest response of a tool. The text is in the result twice.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// The response of a route.
#[derive(Debug)]
pub(crate) struct RouteResponse {
    pub is_success: bool,
    pub body: Value,
}

/// A request to a route.
pub(crate) struct RouteRequest {
    pub method: Method,
    /// The path, with the query.
    pub target: String,
    /// `None` sends no body.
    pub body: Option<Map<String, Value>>,
    /// The planned effect of a change.
    pub effect: Option<OrderEffect>,
}

impl RouteRequest {
    pub fn get(path: &str, arguments: &Map<String, Value>) -> Result<RouteRequest, Failure> {
        Ok(RouteRequest {
            method: Method::GET,
            target: with_query(path, arguments)?,
            body: None,
            effect: None,
        })
    }

    pub fn post(path: &str, body: Map<String, Value>) -> RouteRequest {
        RouteRequest {
            method: Method::POST,
            target: path.to_owned(),
            body: Some(body),
            effect: None,
        }
    }

    /// Sends the request with the headers of the caller's own.
    pub async fn send(self, routes: &Router, caller: &Parts) -> Result<RouteResponse, Failure> {
        let target: Uri = self.target.parse().map_err(|_| too_long())?;
        let body = self.body.map(|body| Value::Object(body).to_string());
        let mut request = Request::new(body.map_or_else(Body::empty, Body::from));
        *request.method_mut() = self.method;
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        *headers = caller.headers.clone();
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        headers.remove(header::ACCEPT_ENCODING);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::ACCEPT, json.clone());
        headers.insert(header::CONTENT_TYPE, json);
        let extensions = request.extensions_mut();
        if let Some(id) = caller.extensions.get::<RequestId>() {
            extensions.insert(id.clone());
        }
        if let Some(peer) = caller.extensions.get::<ConnectInfo<SocketAddr>>() {
            extensions.insert(*peer);
        }
        extensions.insert(OrderOrigin {
            by_mcp: true,
            planned: self.effect,
        });
        let sent = routes.clone().oneshot(request).await;
        let response = sent.unwrap_or_else(|never| match never {});
        let is_success = response.status().is_success();
        let bytes = to_bytes(response.into_body(), RESPONSE_BYTES_MAX).await;
        let bytes = bytes.map_err(|_| too_much())?;
        let body = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::internal(format!("a route's response is not JSON: {error}"))
        })?;
        Ok(RouteResponse { is_success, body })
    }
}

/// The path with the arguments in its query. Nulls are left out.
pub(crate) fn with_query(path: &str, arguments: &Map<String, Value>) -> Result<String, Failure> {
    let mut query = Serializer::new(String::new());
    for (name, value) in arguments {
        match value {
            Value::Null => continue,
            Value::String(text) => query.append_pair(name, text),
            Value::Number(_) | Value::Bool(_) => query.append_pair(name, &value.to_string()),
            Value::Array(_) | Value::Object(_) => {
                let message = format!(
                    "{name}: a list or an object is not allowed here; give a text or a number"
                );
                return Err(Failure::invalid(Some(name.clone()), message));
            }
        };
    }
    let query = query.finish();
    Ok(if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    })
}

fn too_long() -> Failure {
    Failure::invalid(
        None,
        "the arguments are longer than 65,534 bytes together; shorten them",
    )
}

fn too_much() -> Failure {
    let message = format!(
        "the response is larger than {} MiB; narrow it with the tool's arguments, such as model, limit or month",
        RESPONSE_BYTES_MAX >> 20
    );
    Failure::new(ErrorKind::TooLarge, "response_too_large", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn query(arguments: Value) -> Result<String, Failure> {
        with_query("/admin/events", arguments.as_object().unwrap())
    }

    #[test]
    fn arguments_become_an_escaped_query() {
        assert_eq!(query(json!({})).unwrap(), "/admin/events");
        let all = json!({"model": "org/m&x=1", "limit": 5, "follow": false, "since": null});
        assert_eq!(
            query(all).unwrap(),
            "/admin/events?model=org%2Fm%26x%3D1&limit=5&follow=false"
        );
    }

    #[test]
    fn a_list_in_a_query_is_refused_by_its_name() {
        for wrong in [json!({"model": ["a"]}), json!({"model": {"a": 1}})] {
            let failure = query(wrong).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some("model"));
        }
    }
}
