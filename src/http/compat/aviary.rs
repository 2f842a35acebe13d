//! The routes of Aviary up to 0.1: a prompt for the model in the path, several prompts, a stream of lines, and a model's metadata.
//! Each prompt is a request like any other, with its key, its limits and its place in the queue.

mod openai;
mod prompt;
mod response;

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use api_types::error::Failure;
use api_types::schemas::older_systems::{AviaryMetadata, AviaryPrompt, AviaryResponse};
use controller::Route;
use dialect::CHAT;
use dialect::assembler::ANSWER_MAX;
use gateway::auth::User;
use gateway::fields::{Fields, Strict};
use gateway::inference::admission;
use gateway::inference::request::receiving;
use gateway::inference::routes::completions;
use gateway::openapi::{InferenceErrors, ListingErrors, ModelErrors, WaitHeaders};
use gateway::path_params::Path;
use gateway::rayllm_names::with_slash;
use gateway::state::App;
use prompt::Prompt;

/// Number of prompts of a batch that run simultaneously; the queue takes the others in turn.
const AT_ONCE: usize = 8;
const BATCH_MAX: usize = 256;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(query))
        .routes(routes!(batch))
        .routes(routes!(stream_lines))
        .routes(routes!(metadata))
        .merge(openai::routes())
}

/// The list of names, unless another old system's list is served there.
pub(super) fn listing() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(models))
}

/// Prompt a model (Aviary)
///
/// The response is repeated under the model's name, where clients of Aviary 0.0 read it.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/query/{model}", tag = "older systems", operation_id = "old_query", security(("user_key" = [])),
    params(WaitHeaders, ("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "tiny-chat")),
    request_body(content = AviaryPrompt, example = json!({"prompt": "What is a priority?"})),
    responses((status = 200, description = "The answer", body = AviaryResponse, example = json!({"generated_text": "A priority is a number.",
        "num_input_tokens": 6, "num_generated_tokens": 6, "num_total_tokens": 12, "total_time": 0.8})), InferenceErrors))]
async fn query(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = receiving::read(&app, body)
        .await
        .map_err(|(_, failure)| failure)?;
    let parsed = read(&app, body).await?;
    let found = found(&app, &user, &name)?;
    let reply = ask(&app, &user, &parts.headers, &found, parsed).await?;
    let mut reply = match reply {
        Ok(reply) => reply,
        Err(response) => return Ok(response),
    };
    let of_name = reply.clone();
    reply[&found.0] = of_name;
    Ok(Json(reply).into_response())
}

/// Send several prompts to a model (Aviary)
///
/// The answers are in the order of the prompts. Failed prompts have `error` and `error_type`.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/query/batch/{model}", tag = "older systems", operation_id = "old_batch_query", security(("user_key" = [])),
    params(WaitHeaders, ("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "tiny-chat")),
    request_body(content = Vec<AviaryPrompt>, example = json!([{"prompt": "What is a priority?"}, {"prompt": "What is a replica?"}])),
    responses((status = 200, description = "The answers", body = Vec<AviaryResponse>, example = json!([{"generated_text": "A number.",
        "num_input_tokens": 6, "num_generated_tokens": 3, "num_total_tokens": 9, "total_time": 0.4}])), InferenceErrors))]
async fn batch(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = receiving::read(&app, body)
        .await
        .map_err(|(_, failure)| failure)?;
    let length = body.len();
    let prompts = app
        .reading
        .run(length, move || prompt::several(&body, BATCH_MAX));
    let prompts = prompts.await?;
    let found = found(&app, &user, &name)?;
    let headers = &parts.headers;
    let (app, user, found) = (&app, &user, &found);
    let one = |parsed: Prompt| async move {
        match ask(app, user, headers, found, parsed).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(response)) => Ok(response::failed(response).await),
            Err(failure) => Err(failure),
        }
    };
    let responses: Vec<Result<Value, Failure>> = stream::iter(prompts)
        .map(one)
        .buffered(AT_ONCE)
        .collect()
        .await;
    let responses: Result<Vec<Value>, Failure> = responses.into_iter().collect();
    Ok(Json(responses?).into_response())
}

/// Stream a response (Aviary)
///
/// Each line of the response is a JSON object with the next piece as `generated_text`; the last line has the number of tokens.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/stream/{model}", tag = "older systems", operation_id = "old_stream", security(("user_key" = [])),
    params(WaitHeaders, ("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "tiny-chat")),
    request_body(content = AviaryPrompt, example = json!({"prompt": "What is a priority?"})),
    responses((status = 200, description = "The pieces, one a line", body = String, content_type = "text/plain",
        example = json!("{\"generated_text\":\"A\"}\n{\"generated_text\":\" number.\"}\n")), InferenceErrors))]
async fn stream_lines(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = receiving::read(&app, body)
        .await
        .map_err(|(_, failure)| failure)?;
    let parsed = read(&app, body).await?;
    let found = found(&app, &user, &name)?;
    let response = sent(&app, &user, &parts.headers, &found, parsed, true).await?;
    Ok(if response.status().is_success() {
        response::lines(response)
    } else {
        response
    })
}

/// Show the metadata of a model (Aviary)
///
/// Nothing is loaded for this.
///
/// Every key that may use the model may call this.
#[utoipa::path(get, path = "/metadata/{model}", tag = "older systems", operation_id = "old_metadata", security(("user_key" = [])),
    params(("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "tiny-chat")),
    responses((status = 200, description = "The model", body = AviaryMetadata, example = json!({"metadata": {"model_config": {
        "model_id": "tiny-chat", "model_url": null, "model_description": null}}})), ModelErrors))]
async fn metadata(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
) -> Result<Json<Value>, Failure> {
    let (name, route) = found(&app, &user, &name)?;
    let document = route.entry.to_document();
    let engine = &document["engine_config"];
    // The fields of the model's file that Aviary showed, without the environment and the location of the weights.
    Ok(Json(json!({"metadata": {"model_config": {
        "model_id": name,
        "model_url": engine["model_url"],
        "model_description": engine["model_description"],
        "max_total_tokens": engine["max_total_tokens"],
        "generation": engine["generation"],
    }}})))
}

/// List the names of the models (Aviary)
///
/// Nothing is loaded for this.
///
/// Every key may call this.
#[utoipa::path(get, path = "/models", tag = "older systems", operation_id = "old_models", security(("user_key" = [])),
    responses((status = 200, description = "The names", body = Vec<String>, example = json!(["tiny-chat"])), ListingErrors))]
async fn models(State(app): State<App>, user: User) -> Json<Vec<String>> {
    let entries = app.handle.entries();
    let shown = entries
        .iter()
        .filter(|entry| user.sight.may_use_base(entry));
    Json(shown.map(|entry| entry.name.clone()).collect())
}

async fn read(app: &App, body: Bytes) -> Result<Prompt, Failure> {
    let length = body.len();
    let read = move || {
        let mut fields = Fields::parse(&body)?;
        let parsed = Prompt::read(&mut fields)?;
        fields.finish()?;
        Ok(parsed)
    };
    app.reading.run(length, read).await
}

/// Finds the model of a path, in which two dashes may stand for the slash, and returns its name here.
fn found(app: &App, user: &User, name: &str) -> Result<(String, Arc<Route>), Failure> {
    let names = [name.to_owned(), with_slash(name)];
    let found = names
        .into_iter()
        .find_map(|name| Some((name.clone(), app.handle.route(&name)?)));
    let (known, route) = found.ok_or_else(|| admission::unknown(app, user, &with_slash(name)))?;
    admission::allowed(app, user, &known, &route.entry)?;
    Ok((known, route))
}

/// Sends the request and returns the response in Aviary's form, or the refusal.
async fn ask(
    app: &App,
    user: &User,
    headers: &HeaderMap,
    found: &(String, Arc<Route>),
    parsed: Prompt,
) -> Result<Result<Value, Response>, Failure> {
    let begun = app.handle.clock().now();
    let response = sent(app, user, headers, found, parsed, false).await?;
    let took = app.handle.clock().now().since(begun);
    if !response.status().is_success() {
        return Ok(Err(response));
    }
    let lost =
        |problem: String| Failure::internal(format!("the response could not be read: {problem}"));
    let bytes = to_bytes(response.into_body(), 2 * ANSWER_MAX).await;
    let bytes = bytes.map_err(|error| lost(error.to_string()))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| lost(error.to_string()))?;
    Ok(Ok(response::of_completion(&value, took)))
}

/// Translates the prompt and sends it through the gateway.
async fn sent(
    app: &App,
    user: &User,
    headers: &HeaderMap,
    (name, route): &(String, Arc<Route>),
    parsed: Prompt,
    is_stream: bool,
) -> Result<Response, Failure> {
    let (path, body) = parsed.into_request(name, &route.entry, is_stream)?;
    let mut request = Request::new(Body::from(body.to_string()));
    *request.headers_mut() = headers.clone();
    request.headers_mut().remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    let (app, user) = (State(app.clone()), user.clone());
    Ok(if path == CHAT {
        completions::chat_completions(app, user, request).await
    } else {
        completions::completions(app, user, request).await
    })
}
