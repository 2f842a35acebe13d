//! Tokenization routes in vLLM's form for every engine that supports them, and token counts of messages. If the model has a prompt
//! format, conversations are rendered with it.
//! One file because the three routes share the engine's response and its errors.

mod counting;

use std::pin::pin;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, header};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::JSON;
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::receiving::read;
use crate::inference::routes::unary_routes::{Answer, ask, name_there, named, seated_as};
use crate::inference::stages::reading;
use crate::inference::understood::find;
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::tokens::{
    DetokenizeRequest, DetokenizedText, TokenizeRequest, Tokens as TokenList,
};
use catalog::{ExtraRoute, Prompt, TokenApi};
use counting::{Tokens, counted, elements};
use dialect::body::Fields;
use dialect::{Dialect, Reading, Taken, anthropic, responses};
use edge::record;

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
        let reply = tokens(&app, &context, request, Asking::read).await?;
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
        let asking = move |body: &Bytes| Asking::of_message(body, &reading);
        let reply = match tokens(app, &context, request, asking).await? {
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
        let asking = move |body: &Bytes| Ok(Asking::of_chat(responses::counted(body, &reading)?));
        let reply = match tokens_of(app, &context, body, asking).await? {
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

/// The text or conversation to tokenize.
#[derive(Debug, Default)]
struct Asking {
    prompt: Option<String>,
    messages: Vec<Value>,
    tools: Vec<Value>,
    special: Option<bool>,
    generation: Option<bool>,
    strings: bool,
}

impl Asking {
    fn read(body: &Bytes) -> Result<Asking, Failure> {
        let mut received = Taken::body(body)?;
        received.need_text("model")?;
        let asking = Asking {
            prompt: received.text("prompt")?,
            messages: received.list("messages")?.unwrap_or_default(),
            tools: received.list("tools")?.unwrap_or_default(),
            special: received.flag("add_special_tokens")?,
            generation: received.flag("add_generation_prompt")?,
            strings: received.flag("return_token_strs")?.unwrap_or(false),
        };
        received.finish()?;
        if asking.prompt.is_some() != asking.messages.is_empty() {
            let message = "exactly one of `prompt` and `messages` is required";
            return Err(Failure::invalid("prompt".to_owned(), message));
        }
        only_data(&asking.messages)?;
        Ok(asking)
    }

    fn of_message(body: &Bytes, reading: &Reading) -> Result<Asking, Failure> {
        Ok(Asking::of_chat(anthropic::counted(body, reading)?))
    }

    fn of_chat(mut chat: Map<String, Value>) -> Asking {
        let mut list = |name: &str| match chat.shift_remove(name) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        Asking {
            messages: list("messages"),
            tools: list("tools"),
            ..Asking::default()
        }
    }

    /// Renders the conversation as text if the model file has a prompt format.
    fn written(mut self, prompt: &Prompt) -> Result<Asking, Failure> {
        if self.prompt.is_some() {
            return Ok(self);
        }
        match prompt {
            Prompt::ChatTemplate => Ok(self),
            Prompt::Disabled => Err(Failure::invalid(
                "messages".to_owned(),
                "this model only completes text; send a `prompt`",
            )),
            Prompt::Format(format) => {
                let rendered = format.render(&self.messages);
                let text =
                    rendered.map_err(|error| Failure::invalid(error.field, error.message))?;
                self.prompt = Some(text);
                self.messages.clear();
                Ok(self)
            }
        }
    }

    /// Refuses what the engine does not support, before anything is loaded for it.
    fn check(&self, model: &str, api: TokenApi) -> Result<(), Failure> {
        let cannot = |what: &str| cannot(model, what);
        if self.strings && api != TokenApi::Vllm {
            return Err(cannot(
                "cannot return tokens as text; remove `return_token_strs`",
            ));
        }
        let is_written_by_engine = self.prompt.is_none();
        match api {
            TokenApi::Sglang if is_written_by_engine => {
                Err(cannot("can tokenize a `prompt`, but not a conversation"))
            }
            TokenApi::LlamaCpp if is_written_by_engine && self.generation == Some(false) => Err(
                cannot("always adds the generation prompt; remove `add_generation_prompt`"),
            ),
            _ => Ok(()),
        }
    }

    /// The `/tokenize` request for vLLM and SGLang.
    fn body(&self, name: &str) -> Bytes {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(name));
        let mut add = |name: &str, value: Option<Value>| {
            body.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("prompt", self.prompt.as_ref().map(|text| json!(text)));
        if self.prompt.is_none() {
            add("messages", Some(json!(self.messages)));
            add("tools", (!self.tools.is_empty()).then(|| json!(self.tools)));
            add("add_generation_prompt", self.generation.map(Value::Bool));
        }
        add("add_special_tokens", self.special.map(Value::Bool));
        add("return_token_strs", self.strings.then_some(json!(true)));
        Value::Object(body).to_string().into()
    }
}

fn cannot(model: &str, what: &str) -> Failure {
    Failure::new(
        ErrorKind::NotImplemented,
        "not_implemented",
        format!("the engine of {model} {what}"),
    )
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

/// Requires images to be in the request itself; engines must not fetch anything.
fn only_data(messages: &[Value]) -> Result<(), Failure> {
    for (nth, message) in messages.iter().enumerate() {
        let parts = message.get("content").and_then(Value::as_array);
        for (at, part) in parts.into_iter().flatten().enumerate() {
            let url = part.pointer("/image_url/url").and_then(Value::as_str);
            let is_data = url.is_some_and(|url| url.starts_with("data:"));
            if part["type"] != "text" && !(part["type"] == "image_url" && is_data) {
                let field = format!("messages[{nth}].content[{at}]");
                let message = format!("`{field}` must be a text, or an image_url with a data: URL");
                return Err(Failure::invalid(field, message));
            }
        }
    }
    Ok(())
}

async fn tokens(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    asking: impl Fn(&Bytes) -> Result<Asking, Failure> + Send + 'static,
) -> Result<EngineResponse, Failed> {
    let body = read(app, request.into_body()).await?;
    tokens_of(app, context, body, asking).await
}

async fn tokens_of(
    app: &App,
    context: &RequestContext,
    body: Bytes,
    asking: impl Fn(&Bytes) -> Result<Asking, Failure> + Send + 'static,
) -> Result<EngineResponse, Failed> {
    let (scanned, route) = find(app, &context.user, body).await?;
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
        let asking = asking(&received)?.written(&generation.prompt)?;
        asking.check(&of_model.entry.name, api)?;
        Ok(Sent::new(&asking, api, &known))
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
                (served, content(&prompt, sent.special))
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

/// The first request to the engine.
struct Sent {
    body: Bytes,
    is_text: bool,
    special: Option<bool>,
}

impl Sent {
    fn new(asking: &Asking, api: TokenApi, name: &str) -> Sent {
        let body = match (api, &asking.prompt) {
            (TokenApi::LlamaCpp, Some(prompt)) => content(prompt, asking.special),
            (TokenApi::LlamaCpp, None) => {
                let mut body = json!({"messages": asking.messages});
                if !asking.tools.is_empty() {
                    body["tools"] = json!(asking.tools);
                }
                body.to_string().into()
            }
            _ => asking.body(name),
        };
        Sent {
            body,
            is_text: asking.prompt.is_some(),
            special: asking.special,
        }
    }
}

/// The `/tokenize` request for llama-server. Special tokens in the text are parsed, and the first one is added as the server does
/// before generation.
fn content(prompt: &str, special: Option<bool>) -> Bytes {
    let special = special.unwrap_or(true);
    json!({"content": prompt, "add_special": special, "parse_special": true})
        .to_string()
        .into()
}

async fn text(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
) -> Result<EngineResponse, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, &context.user, body).await?;
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
    let mut received = Taken::some(&fields, &others)?;
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
