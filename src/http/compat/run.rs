//! The two routes of the GPT-J pipeline: completing a prompt, and the number of waiting requests. Each request is a completion like
//! any other, with its key, its limits and its place in the queue.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::strategy::{self, Strategy};
use api_types::error::Failure;
use api_types::schemas::older_systems::RunRequest;
use dialect::COMPLETIONS;
use dialect::assembler::ANSWER_MAX;
use dialect::body::Scanned;
use edge::record;
use gateway::auth::User;
use gateway::fields::{Fields, OrderFields, Strict};
use gateway::inference::admission;
use gateway::inference::admission::RequestContext;
use gateway::inference::request::hub_registration;
use gateway::inference::request::receiving;
use gateway::inference::request::validation;
use gateway::inference::routes::completions;
use gateway::openapi::{InferenceErrors, ListingErrors, WaitHeaders};
use gateway::state::App;

/// The pipeline's default.
const TOKENS: u32 = 50;
const TOKENS_MAX: u32 = 1_000_000;

struct Run {
    data: String,
    tokens: u32,
    strategy: Option<Strategy>,
    model: Option<String>,
}

impl Strict for Run {
    fn read(fields: &mut Fields) -> Result<Run, Failure> {
        let strategy = |text: String| Strategy::read(&text);
        Ok(Run {
            data: fields.needed_text("data", "\"Roman emperor Trajan ruled from\"")?,
            tokens: fields
                .integer("num_tokens", 1..=TOKENS_MAX)?
                .unwrap_or(TOKENS),
            strategy: fields
                .text("decoding_strategy")?
                .map(strategy)
                .transpose()?,
            model: fields.text("model")?,
        })
    }
}

/// Count the waiting requests (GPT-J pipeline)
///
/// The number of requests, for all models, that wait for a slot, as a bare number.
///
/// Every key may call this.
#[utoipa::path(get, path = "/pending", tag = "older systems", operation_id = "old_pending", security(("user_key" = [])),
    responses((status = 200, description = "The number of waiting requests", body = usize, content_type = "application/json", example = json!(3)), ListingErrors))]
pub(super) async fn pending(State(app): State<App>, _: User) -> Json<usize> {
    Json(app.handle.snapshot().pool.waiting.len())
}

/// Complete a prompt (GPT-J pipeline)
///
/// The response is a single text: the prompt and its completion. If the model is not loaded, the pool loads it and the request
/// waits. The same as a completion.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/run", tag = "older systems", operation_id = "old_run", security(("user_key" = [])),
    params(WaitHeaders),
    request_body(content = RunRequest, example = json!({"data": "A priority is", "num_tokens": 16, "model": "tiny-chat", "decoding_strategy": "greedy"})),
    responses((status = 200, description = "The text", body = String, content_type = "application/json", example = json!("A priority is a number.")), InferenceErrors))]
pub(super) async fn run(
    State(app): State<App>,
    user: User,
    request: Request,
) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = receiving::read(&app, body)
        .await
        .map_err(|(_, failure)| failure)?;
    let (bytes, share) = (body.len(), record::share());
    let fields = move || Fields::parse(&body);
    let mut fields = app.reading.run(bytes, fields).await?;
    let parsed = Run::read(&mut fields)?;
    fields.finish()?;
    let name = model_of(&app, &user, parsed.model)?;
    let route = match app.handle.route(&name) {
        Some(route) => route,
        None => hub_registration::of_user(&app, &user, &name).await?,
    };
    admission::allowed(&app, &user, &name, &route.entry)?;
    let mut body = json!({"model": name, "prompt": parsed.data, "max_tokens": parsed.tokens});
    let more = strategy::fields(parsed.strategy, &route.entry.recipe)?;
    for (field, value) in more {
        body[&field] = value;
    }
    // The response begins with the original prompt, which the model's text rule may have cleaned.
    let context = RequestContext::new(&app, user.clone(), &parts.headers);
    let scanned = move || Scanned::read(body.to_string().into());
    let mut scanned = app.reading.run(bytes, scanned).await?;
    scanned.body = share.charge(scanned.body);
    let scanned = validation::checked(&app, scanned, COMPLETIONS, &route.entry, &context)
        .await
        .map_err(as_data)?;
    let written = scanned.body.clone();
    let prompt = app.reading.run(bytes, move || Ok(prompt_of(&written)));
    let prompt = prompt.await?;
    parts.headers.remove(header::CONTENT_LENGTH);
    let request = Request::from_parts(parts, Body::from(scanned.body));
    let response = completions::completions(State(app), user, request).await;
    let response = if response.status().is_success() {
        text_of(prompt, response).await?
    } else {
        response
    };
    let extra = context.tell(std::mem::take);
    Ok(admission::with(response, extra))
}

/// The model of the request or of the configuration; otherwise the caller's only model.
fn model_of(app: &App, user: &User, named: Option<String>) -> Result<String, Failure> {
    if let Some(name) = named.or_else(|| app.config().compat.run_model.clone()) {
        return Ok(name);
    }
    let mut entries = app.handle.entries();
    entries.retain(|entry| user.sight.may_use_base(entry));
    match entries.as_slice() {
        [only] => Ok(only.name.clone()),
        several => Err(Failure::invalid(
            "model".to_owned(),
            format!(
                "model: is missing, and there are {} models; choose one from GET /v1/models, or set compat.run_model",
                several.len()
            ),
        )),
    }
}

/// Renames the field in an error to the pipeline's name.
fn as_data(mut failure: Failure) -> Failure {
    let error = &mut failure.body.error;
    if error.param.as_deref() == Some("prompt") {
        error.param = Some("data".to_owned());
        error.message = error.message.replacen("prompt", "data", 1);
    }
    failure
}

fn prompt_of(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body["prompt"].as_str().unwrap_or_default().to_owned()
}

/// Replaces the completion by its text after the prompt, and keeps the response headers.
async fn text_of(prompt: String, response: Response) -> Result<Response, Failure> {
    let (head, body) = response.into_parts();
    let lost =
        |problem: &str| Failure::internal(format!("the completion could not be read: {problem}"));
    let bytes = to_bytes(body, 2 * ANSWER_MAX).await;
    let bytes = bytes.map_err(|error| lost(&error.to_string()))?;
    let reply: Value = serde_json::from_slice(&bytes).map_err(|error| lost(&error.to_string()))?;
    let text = reply["choices"][0]["text"].as_str();
    let text = text.ok_or_else(|| lost("it has no text"))?;
    let mut response = Json(prompt + text).into_response();
    for (name, value) in &head.headers {
        if name.as_str().starts_with("x-") {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}
