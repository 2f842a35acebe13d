//! Tokenization routes in vLLM's form for every engine that supports them, and token counts of messages. If the model has a prompt
//! format, conversations are rendered with it.

mod counting;
mod input;

use std::pin::pin;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, header};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::JSON;
use crate::inference::received::reading;
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::receiving::read;
use crate::inference::routes::unary_routes::{Answer, ask, name_there, named, seated_as};
use crate::inference::understood::find;
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::tokens::{
    DetokenizeRequest, DetokenizedText, TokenizeRequest, Tokens as TokenList,
};
use catalog::{ExtraRoute, TokenApi};
use counting::{Tokens, counted, elements};
use dialect::body::Fields;
use dialect::{Dialect, parse_some, responses};
use edge::record;
use input::{Sent, TokenInput, cannot, content};

/// Tokenize a text or a conversation
///
/// Returns the tokens that the model would read. If the model is not loaded, the pool loads it and the request waits. Request and
/// response have vLLM's form, regardless of the engine.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/tokenize", tag = "tokens", operation_id = "tokenize",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = TokenizeRequest, examples(
        ("text" = (summary = "A text", value = json!({"model": "tiny-guide", "prompt": "What is a priority?"}))),
        ("conversation" = (summary = "A conversation", value = json!({
            "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}]
        }))),
    )),
    responses(
        (status = 200, description = "The tokens", body = TokenList, example = json!({
            "tokens": [5, 7, 9], "count": 3, "max_model_len": 512
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn tokenize(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(async {
        let reply = tokens(&app, &context, request, TokenInput::read).await?;
        Ok(response(reply))
    });
    context.end(&app, work).await
}

/// Convert tokens into a text
///
/// If the model is not loaded, the pool loads it and the request waits. Request and response have vLLM's form, regardless of the
/// engine.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/detokenize", tag = "tokens", operation_id = "detokenize",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = DetokenizeRequest, example = json!({"model": "tiny-guide", "tokens": [5, 7, 9]})),
    responses(
        (status = 200, description = "The text", body = DetokenizedText, example = json!({"prompt": "What is a priority?"})),
        InferenceErrors,
    )
)]
pub(crate) async fn detokenize(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(async { Ok(response(text(&app, &context, request).await?)) });
    context.end(&app, work).await
}

/// Returns the number of tokens of a message, in Anthropic's form.
pub(crate) async fn count(app: &App, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(app, user, request.headers());
    let work = pin!(async {
        let reading = context.reading(app);
        let input = move |body: &Bytes| TokenInput::of_message(body, &reading);
        let reply = match tokens(app, &context, request, input).await? {
            EngineResponse::Tokens(tokens) => {
                EngineResponse::Passed(json!({"input_tokens": tokens.count}))
            }
            refused => refused,
        };
        Ok(response(reply))
    });
    context.end(app, work).await
}

/// Returns the number of tokens for a request of OpenAI's Responses API.
pub(crate) async fn count_response(app: &App, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(app, user, request.headers());
    let work = pin!(async {
        let body = read(app, request.into_body()).await?;
        let reading = reading(app, &context, &body, Dialect::Responses).await?;
        let input =
            move |body: &Bytes| Ok(TokenInput::of_chat(responses::counted(body, &reading)?));
        let reply = match tokens_of(app, &context, body, input).await? {
            EngineResponse::Tokens(tokens) => EngineResponse::Passed(
                json!({"object": "response.input_tokens", "input_tokens": tokens.count}),
            ),
            refused => refused,
        };
        Ok(response(reply))
    });
    context.end(app, work).await
}

enum EngineResponse {
    Tokens(Tokens),
    Passed(Value),
    Refused(Response),
}

fn response(reply: EngineResponse) -> Response {
    match reply {
        EngineResponse::Tokens(tokens) => {
            ([(header::CONTENT_TYPE, JSON)], tokens.body).into_response()
        }
        EngineResponse::Passed(reply) => Json(reply).into_response(),
        EngineResponse::Refused(response) => response,
    }
}

/// Handles an engine without this route, such as an older or an unknown one.
fn refused(model: &str, response: Response, path: &str) -> Result<EngineResponse, Failure> {
    match ErrorKind::of_status(response.status()) {
        Some(ErrorKind::NotFound | ErrorKind::MethodNotAllowed) => {
            Err(cannot(model, &format!("has no {path}")))
        }
        _ => Ok(EngineResponse::Refused(response)),
    }
}

async fn tokens(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    input: impl Fn(&Bytes) -> Result<TokenInput, Failure> + Send + 'static,
) -> Result<EngineResponse, Failed> {
    let body = read(app, request.into_body()).await?;
    tokens_of(app, context, body, input).await
}

async fn tokens_of(
    app: &App,
    context: &RequestContext,
    body: Bytes,
    input: impl Fn(&Bytes) -> Result<TokenInput, Failure> + Send + 'static,
) -> Result<EngineResponse, Failed> {
    let (scanned, route) = find(app, context, body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    check_has(&route, ExtraRoute::Tokenize).map_err(fail)?;
    let api = route.entry.recipe.token_api();
    let (bytes, share) = (scanned.body.len(), record::share());
    let (received, of_model) = (scanned.body, Arc::clone(&route));
    let own = route.entry.recipe.served_model_name().unwrap_or(&model);
    let own = route
        .entry
        .adapter(&scanned.model)
        .unwrap_or(own)
        .to_owned();
    let known = own.clone();
    let requested_name = scanned.model.clone();
    let written = move || {
        let generation = of_model.entry.generation_of(&requested_name);
        let input = input(&received)?.written(&generation.prompt)?;
        input.check(&of_model.entry.name, api)?;
        Ok(Sent::new(&input, api, &known))
    };
    let sent = app.reading.run(bytes, written).await;
    let sent = sent.map_err(fail)?;
    let body = share.charge(sent.body);
    let served = seated_as(app, context, (&route, &scanned.model), bytes);
    let served = served.await.map_err(fail)?;
    let name = name_there(&served, &route, &scanned.model);
    let (served, body) = match api {
        TokenApi::LlamaCpp if sent.is_text => (served, body),
        TokenApi::LlamaCpp => match ask(app, served, "/apply-template", (&JSON, body))
            .await
            .map_err(fail)?
        {
            Answer::Refused(response) => {
                return refused(&model, response, "/apply-template").map_err(fail);
            }
            Answer::Complete(served, _, bytes) => {
                let prompt = text_of(&served.model, &bytes, "prompt").map_err(fail)?;
                (*served, content(&prompt, sent.special))
            }
        },
        _ if name == own => (served, body),
        _ => (served, named(app, body, name).await.map_err(fail)?),
    };
    match ask(app, served, "/tokenize", (&JSON, body))
        .await
        .map_err(fail)?
    {
        Answer::Refused(response) => refused(&model, response, "/tokenize").map_err(fail),
        Answer::Complete(served, _, bytes) => {
            let of_model = model.clone();
            let counted = app
                .reading
                .run(bytes.len(), move || counted(&of_model, &bytes));
            let reply = counted.await.map_err(fail)?;
            served.responded(200);
            Ok(EngineResponse::Tokens(reply))
        }
    }
}

async fn text(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
) -> Result<EngineResponse, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, context, body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    check_has(&route, ExtraRoute::Detokenize).map_err(fail)?;
    let (bytes, share) = (scanned.body.len(), record::share());
    let received = scanned.body;
    let written = move || tokens_in(&received).map(|tokens| detokenized("", tokens));
    let body = share.charge(app.reading.run(bytes, written).await.map_err(fail)?);
    let served = seated_as(app, context, (&route, &scanned.model), bytes);
    let served = served.await.map_err(fail)?;
    let name = name_there(&served, &route, &scanned.model);
    let body = named(app, body, name).await.map_err(fail)?;
    let field = match route.entry.recipe.token_api() {
        TokenApi::Vllm => "prompt",
        TokenApi::Sglang => "text",
        TokenApi::LlamaCpp => "content",
    };
    match ask(app, served, "/detokenize", (&JSON, body))
        .await
        .map_err(fail)?
    {
        Answer::Refused(response) => refused(&model, response, "/detokenize").map_err(fail),
        Answer::Complete(served, _, bytes) => {
            let (of_model, length) = (model.clone(), bytes.len());
            let read = move || text_of(&of_model, &bytes, field);
            let text = app.reading.run(length, read).await.map_err(fail)?;
            served.responded(200);
            Ok(EngineResponse::Passed(json!({"prompt": text})))
        }
    }
}

/// Returns the token list unparsed, because it can be very long.
fn tokens_in(body: &Bytes) -> Result<&str, Failure> {
    let fields = Fields::read(body)?;
    let others = fields
        .all()
        .map(|(name, _)| name)
        .filter(|name| *name != "tokens");
    let others: Vec<&str> = others.collect();
    let mut received = parse_some(&fields, &others)?;
    received.need_text("model")?;
    let tokens = fields.get("tokens").map(RawValue::get).unwrap_or_default();
    if elements::<u64>(tokens).is_none_or(|count| count == 0) {
        return Err(received.wrong("tokens", "a list of whole numbers, at least one"));
    }
    received.finish()?;
    Ok(tokens)
}

/// The `/detokenize` request.
fn detokenized(name: &str, tokens: &str) -> Bytes {
    format!("{{\"model\":{},\"tokens\":{tokens}}}", json!(name)).into()
}

fn text_of(model: &str, bytes: &Bytes, field: &str) -> Result<String, Failure> {
    let response: Value = serde_json::from_slice(bytes).unwrap_or_default();
    match response.get(field).and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::engine(
            model,
            format!("an answer without `{field}`"),
        )),
    }
}

#[cfg(test)]
mod tests;
