//! `keep_alive: 0` without a prompt: an administrator's order to unload. Other callers get an error.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router, middleware};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use admin::audit_layer;
use admin::load;
use api_types::error::{ErrorKind, Failure};
use dialect::ollama::Answer;
use gateway::auth::User;
use gateway::inference::admission;
use gateway::state::App;

const ROUTE: &str = "/admin/unload";

/// Unloads the model and responds in Ollama's form once it is gone.
pub(super) async fn unload(
    app: &App,
    user: &User,
    parts: Parts,
    model: &str,
    writer: &Answer,
) -> Result<Response, Failure> {
    let route = app.handle.route(model);
    let route = route.ok_or_else(|| admission::unknown(app, user, model))?;
    admission::allowed(app, user, model, &route.entry)?;
    let response = order(app, parts, &route.entry.name).await;
    let status = response.status();
    if status.is_success() {
        return Ok(Json(writer.without_text("unload")).into_response());
    }
    let kind = ErrorKind::of_status(status);
    let body = response.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let reply: Value = serde_json::from_slice(&body).unwrap_or_default();
    let error = &reply["error"];
    // Already unloaded.
    if kind == Some(ErrorKind::Conflict) && error["code"] == "not_loaded" {
        return Ok(Json(writer.without_text("unload")).into_response());
    }
    let message = error["message"].as_str().unwrap_or_default();
    let message = match kind {
        Some(ErrorKind::Unauthorized | ErrorKind::Forbidden) => format!(
            "`keep_alive` 0 without a prompt unloads {model} for everyone, which only administrators may do: {message}; otherwise the model is unloaded after its keep-hot time"
        ),
        _ => message.to_owned(),
    };
    Err(Failure::new(
        kind.unwrap_or(ErrorKind::Internal),
        "not_unloaded",
        message,
    ))
}

/// Submits the order through the admin API, with its rights, its audit record and its refusals.
async fn order(app: &App, mut parts: Parts, model: &str) -> Response {
    parts.method = Method::POST;
    parts.uri = Uri::from_static(ROUTE);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    let body = json!({"model": model}).to_string();
    let audited = middleware::from_fn_with_state(app.clone(), audit_layer::record);
    let router = Router::new()
        .route(ROUTE, post(load::unload))
        .route_layer(audited)
        .with_state(app.clone());
    let request = Request::from_parts(parts, Body::from(body));
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
