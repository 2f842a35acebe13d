//! OpenAI's routes with the model in the path, as in Aviary since 0.1.2, served by the gateway.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::found;
use api_types::error::Failure;
use api_types::schemas::chat_response::{ChatCompletion, ChatCompletionChunk};
use api_types::schemas::completions::Completion;
use api_types::schemas::older_systems::{AviaryChat, AviaryCompletion};
use dialect::body::Fields;
use gateway::auth::User;
use gateway::inference::request::receiving;
use gateway::inference::routes::{completions, unary_routes};
use gateway::openapi::{InferenceErrors, WaitHeaders};
use gateway::path_params::Path;
use gateway::rayllm_names::with_slash;
use gateway::state::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(chat))
        .routes(routes!(text))
}

/// Create a chat completion (Aviary)
///
/// The same as `/v1/chat/completions`, with the model in the path.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/v1/chat/completions/{model}", tag = "older systems", operation_id = "old_chat_completion", security(("user_key" = [])),
    params(WaitHeaders, ("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "tiny-chat")),
    request_body(content = AviaryChat, example = json!({"messages": [{"role": "user", "content": "What is a priority?"}]})),
    responses((status = 200, description = "The answer, or with `stream: true` its pieces", content(
        (ChatCompletion = "application/json", example = json!({
            "id": "chatcmpl-9f1c", "object": "chat.completion", "created": 1764000000, "model": "tiny-chat",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "A priority is a number.", "refusal": null},
                "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18}
        })),
        (ChatCompletionChunk = "text/event-stream", example = json!("data: {\"id\":\"chatcmpl-9f1c\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"tiny-chat\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\"},\"logprobs\":null,\"finish_reason\":null}]}\n\ndata: [DONE]\n\n")),
    )), InferenceErrors))]
async fn chat(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let request = of_model(&app, &user, name, request).await?;
    Ok(completions::chat_completions(State(app), user, request).await)
}

/// Create a completion (Aviary)
///
/// The same as `/v1/completions`, with the model in the path.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/v1/completions/{model}", tag = "older systems", operation_id = "old_completion", security(("user_key" = [])),
    params(WaitHeaders, ("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "tiny-chat")),
    request_body(content = AviaryCompletion, example = json!({"prompt": "A priority is", "max_tokens": 16})),
    responses((status = 200, description = "The continued text, or with `stream: true` its pieces", content(
        (Completion = "application/json", example = json!({
            "id": "cmpl-41d0", "object": "text_completion", "created": 1764000000, "model": "tiny-chat",
            "choices": [{"index": 0, "text": " a number.", "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
        })),
        (Completion = "text/event-stream", example = json!("data: {\"id\":\"cmpl-41d0\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"tiny-chat\",\"choices\":[{\"index\":0,\"text\":\" a\",\"logprobs\":null,\"finish_reason\":null}]}\n\ndata: [DONE]\n\n")),
    )), InferenceErrors))]
async fn text(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let request = of_model(&app, &user, name, request).await?;
    Ok(completions::completions(State(app), user, request).await)
}

/// Adds the model of the path to the request's body.
async fn of_model(
    app: &App,
    user: &User,
    name: String,
    request: Request,
) -> Result<Request, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = receiving::read(app, body)
        .await
        .map_err(|(_, failure)| failure)?;
    let (known, _) = found(app, user, &name)?;
    let (bytes, read, called) = (body.len(), body.clone(), known.clone());
    let check = move || names_no_other(&read, [&name, &with_slash(&name), &called]);
    app.reading.run(bytes, check).await?;
    let body = unary_routes::named(app, body, known).await?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// The body may repeat the path's model but must not name another.
fn names_no_other(body: &Bytes, names: [&str; 3]) -> Result<(), Failure> {
    let fields = Fields::read(body)?;
    let Some(model) = fields.get("model") else {
        return Ok(());
    };
    let model: Option<String> = serde_json::from_str(model.get()).map_err(|_| {
        Failure::invalid(
            "model".to_owned(),
            "model: must be the name of a model, or omitted",
        )
    })?;
    match model {
        Some(other) if !names.contains(&other.as_str()) => {
            let shown: String = other.chars().take(200).collect();
            let message = format!(
                "model: is {shown}, and the path names {}; use the same name",
                names[0]
            );
            Err(Failure::invalid("model".to_owned(), message))
        }
        _ => Ok(()),
    }
}
