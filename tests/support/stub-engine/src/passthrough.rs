//! Routes that only some engines have: images, voices, and llama.cpp's own. They return the data they receive.

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, http::Uri};
use serde_json::{Value, json};

pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/v1/images/generations", post(image))
        .route("/v1/images/edits", post(changed))
        .route("/v1/images/variations", post(changed))
        .route("/v1/audio/voices", get(voices))
        .route("/infill", post(complete))
        .route("/completion", post(complete))
}

/// Returns the request in place of an image.
async fn image(Json(request): Json<Value>) -> Json<Value> {
    Json(
        json!({"created": 1, "data": [{"b64_json": "AA==", "revised_prompt": request.to_string()}]}),
    )
}

/// Returns the form in place of an image.
async fn changed(form: Bytes) -> Json<Value> {
    let text = String::from_utf8_lossy(&form);
    Json(json!({"created": 1, "data": [{"b64_json": "AA==", "revised_prompt": text}]}))
}

async fn voices() -> Json<Value> {
    Json(json!({"voices": ["stub"]}))
}

/// Responds in llama.cpp's format, complete or as events.
async fn complete(uri: Uri, Json(request): Json<Value>) -> Response {
    let last = json!({"content": format!("{} {request}", uri.path()), "stop": true, "tokens_predicted": 3, "tokens_evaluated": 5});
    if request["stream"] != json!(true) {
        return Json(last).into_response();
    }
    let first =
        json!({"content": "a", "stop": false, "tokens_predicted": 1, "tokens_evaluated": 5});
    let events = format!("data: {first}\n\ndata: {last}\n\n");
    ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
}
