//! `/api/chat` and `/api/generate`, served as chats. Requests without a prompt load or unload the model.

use std::pin::pin;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};

use super::{keep, unload};
use api_types::error::Failure;
use api_types::schemas::ollama::{OllamaChatRequest, OllamaGenerateRequest};
use dialect::ollama::{self, Answer, Ask, Marks, OllamaRequest, Work};
use dialect::{Hints, Teller, TranslatedRequest};
use edge::record;
use gateway::auth::User;
use gateway::inference::admission::RequestContext;
use gateway::inference::request::engine_routes::check_generates;
use gateway::inference::request::failed::Failed;
use gateway::inference::request::ignored::note;
use gateway::inference::request::receiving;
use gateway::inference::routes::unary_routes::seated;
use gateway::inference::stages;
use gateway::inference::understood;
use gateway::openapi::{OllamaErrors, WaitHeaders};
use gateway::state::App;

/// Create a chat response (Ollama)
///
/// The response is a stream of JSON lines, unless `stream` is false. The last line has `done: true` and the durations and token
/// counts. Without messages the model is loaded; with `keep_alive: 0` an administrator's key unloads it. The same as a chat
/// completion.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/api/chat", tag = "ollama", operation_id = "ollama_chat",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = OllamaChatRequest, example = json!({
        "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}], "stream": false
    })),
    responses((status = 200, description = "An object, or lines of JSON"), OllamaErrors)
)]
pub(super) async fn chat(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    respond(app, user, request, Ask::Chat).await
}

/// Complete a prompt (Ollama)
///
/// The prompt is a conversation of one turn. With `raw` or a `suffix` it is sent to the model unchanged. Templates and contexts get
/// a 400 that names the field.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/api/generate", tag = "ollama", operation_id = "ollama_generate",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = OllamaGenerateRequest, example = json!({
        "model": "tiny-guide", "prompt": "What is a priority?", "stream": false
    })),
    responses((status = 200, description = "An object, or lines of JSON"), OllamaErrors)
)]
pub(super) async fn generate(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    respond(app, user, request, Ask::Generate).await
}

async fn respond(app: App, user: User, request: Request<Body>, ask: Ask) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(begin(&app, &context, request, ask));
    context.end(&app, work).await
}

async fn begin(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    ask: Ask,
) -> Result<Response, Failed> {
    let early = |failure: Failure| (None, failure);
    let marks = Arc::new(Marks::begin(app.handle.clock()));
    let (parts, body) = request.into_parts();
    let body = receiving::read(app, body).await?;
    let (bytes, share) = (body.len(), record::share());
    let handle = app.handle.clone();
    let read = move || {
        let entry_of = |name: &str| Some(Arc::clone(&handle.route(name)?.entry));
        ollama::read(&body, ask, &entry_of)
    };
    let parsed = app.reading.run(bytes, read).await.map_err(early)?;
    let OllamaRequest {
        named,
        model,
        keep_alive,
        work,
        mut ignored,
        reasoning,
    } = parsed;
    let writer = Answer::new(ask, named, Arc::clone(&marks));
    if matches!(work, Work::Unload) {
        let unloaded = unload::unload(app, &context.user, parts, &model, &writer).await;
        return unloaded.map_err(early);
    }
    let keep = keep::allowed(app, &parts, &model, keep_alive, &mut ignored).await;
    if let Work::Answer { path, body } = work {
        let translated = TranslatedRequest {
            body: share.charge(body),
            teller: Teller::Ollama(Box::new(writer)),
            ignored,
            hints: Box::new(Hints {
                reasoning,
                ..Hints::default()
            }),
            keep,
        };
        return stages::respond(app, context, path, translated).await;
    }
    let route = understood::model(app, context, &model).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_generates(&route, "/api/generate").map_err(fail)?;
    let mut served = seated(app, context, &route, bytes).await.map_err(fail)?;
    served.lease.keep(keep);
    served.responded(200);
    let loaded = Json(writer.without_text("load")).into_response();
    Ok(note(loaded, &ignored))
}
