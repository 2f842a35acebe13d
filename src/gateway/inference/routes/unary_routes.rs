//! `POST /v1/rerank` and `POST /v1/score`, and the code shared by all non-streaming routes: one request to the engine, one
//! response. The request waits for its model like any other, and the engine refuses what it cannot compute.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::auth::User;
use crate::inference::adapters;
use crate::inference::admission;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::{InFlightRequest, JSON, engine_error, reach, why};
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::{chooses_class, has_effect, note};
use crate::inference::request::outgoing::renamed;
use crate::inference::request::receiving::read;
use crate::inference::request::request_fields::{self, Fate};
use crate::inference::understood::find;
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use crate::upstream::remote;
use api_types::error::Failure;
use api_types::schemas::ranks::{RerankRequest, RerankResponse, ScoreRequest, ScoreResponse};
use catalog::{Ask, ExtraRoute, RerankApi};
use controller::Route;
use dialect::assembler::ANSWER_MAX;
use dialect::body::Fields;
use dialect::shape::may_be_a_tree;
use dialect::usage::{Usage, usage_of};
use edge::record;

/// Rank documents by relevance to a query
///
/// Needs a ranking model; other models get a 400 or a 501. If the model is not loaded, the pool loads it and the request waits.
/// Request and response have the form of Cohere, Jina, vLLM and llama.cpp, regardless of the engine.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/rerank", tag = "embeddings", operation_id = "rerank",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = RerankRequest, example = json!({
        "model": "tiny-guide", "query": "What is keep-hot?", "documents": ["A time.", "A place."]
    })),
    responses(
        (status = 200, description = "The documents, best first", body = RerankResponse, example = json!({
            "id": "rerank-68f0-1", "model": "tiny-guide",
            "results": [{"index": 0, "relevance_score": 0.93}, {"index": 1, "relevance_score": 0.02}],
            "usage": {"total_tokens": 16}
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn rerank(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    pass(app, user, request, ExtraRoute::Rerank).await
}

/// Score pairs of texts
///
/// Needs a ranking or an embedding model; other models get a 400 or a 501. If the model is not loaded, the pool loads it and the
/// request waits. Request and response have vLLM's form.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/score", tag = "embeddings", operation_id = "score",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ScoreRequest, example = json!({
        "model": "tiny-guide", "text_1": "What is keep-hot?", "text_2": ["A time.", "A place."]
    })),
    responses(
        (status = 200, description = "One score for each pair", body = ScoreResponse, example = json!({
            "id": "score-68f0-1", "object": "list", "model": "tiny-guide",
            "data": [{"index": 0, "object": "score", "score": 0.93}, {"index": 1, "object": "score", "score": 0.02}],
            "usage": {"prompt_tokens": 16, "total_tokens": 16}
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn score(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    pass(app, user, request, ExtraRoute::Score).await
}

async fn pass(app: App, user: User, request: Request<Body>, extra: ExtraRoute) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(try_pass(&app, &context, request, extra));
    context.end(&app, work).await
}

async fn try_pass(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    extra: ExtraRoute,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, context, body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    check_has(&route, extra).map_err(fail)?;
    let ranks_for_tei =
        extra == ExtraRoute::Rerank && route.entry.recipe.rerank_api() == RerankApi::Tei;
    let (bytes, share) = (scanned.body.len(), record::share());
    let (received, of_model) = (scanned.body, Arc::clone(&route));
    // An invalid request is refused before anything is loaded for it.
    let written = move || {
        let (checked, ignored) = taken(&of_model, Ask::Ranks, &received)?;
        if ranks_for_tei {
            Ok((to_tei(&received)?, Some(top_n(&received)?), ignored))
        } else {
            Ok((checked, None, ignored))
        }
    };
    let (body, most, ignored) = app.reading.run(bytes, written).await.map_err(fail)?;
    let body = share.charge(body);
    let served = seated_as(app, context, (&route, &scanned.model), body.len());
    let served = served.await.map_err(fail)?;
    let name = name_there(&served, &route, &scanned.model);
    let body = named(app, body, name).await.map_err(fail)?;
    let there = if ranks_for_tei {
        "/rerank"
    } else {
        extra.path()
    };
    match ask(app, served, there, (&JSON, body)).await.map_err(fail)? {
        Answer::Refused(response) => Ok(response),
        Answer::Complete(served, _, bytes) => {
            let response = finish(app, &served, bytes, most).await.map_err(fail)?;
            served.responded(200);
            Ok(note(response, &ignored))
        }
    }
}

/// Returns the body with the fields that the model's engine accepts, and the names of dropped fields that had an effect.
pub(crate) fn taken(
    route: &Route,
    ask: Ask,
    body: &Bytes,
) -> Result<(Bytes, Vec<String>), Failure> {
    let mut ignored = Vec::new();
    let body = renamed(body, &route.entry.name, |name, value| {
        let fate = request_fields::fate(&route.entry, ask, name, value)?;
        if fate == Fate::Ignored && (has_effect(name, value) || chooses_class(name, value)) {
            ignored.push(name.to_owned());
        }
        Ok(fate)
    })?;
    Ok((body, ignored))
}

/// Replaces the model's name in the body.
pub async fn named(app: &App, body: Bytes, name: String) -> Result<Bytes, Failure> {
    let (bytes, share) = (body.len(), record::share());
    let named = move || renamed(&body, &name, |_, _| Ok(Fate::Goes));
    Ok(share.charge(app.reading.run(bytes, named).await?))
}

/// Admits the request and takes a seat at the model's engine.
pub async fn seated(
    app: &App,
    context: &RequestContext,
    route: &Route,
    body_bytes: usize,
) -> Result<InFlightRequest, Failure> {
    seated_as(app, context, (route, &route.entry.name), body_bytes).await
}

/// Like [`seated`], but `requested` may name an adapter, which the engine then has loaded.
pub(crate) async fn seated_as(
    app: &App,
    context: &RequestContext,
    (route, requested): (&Route, &str),
    body_bytes: usize,
) -> Result<InFlightRequest, Failure> {
    let model = &route.name;
    let found = adapters::find(app, &context.user, &route.entry, requested).await?;
    let admitted = admission::admit(app, context, model, body_bytes).await?;
    let adapter = found.as_ref().map(|adapter| adapter.name.as_str());
    let mut lease = admission::seat(app, context, route, adapter).await?;
    if let Some(found) = &found {
        adapters::enter(app, &route.entry, found, &mut lease).await?;
    }
    let deadline = context.patience().deadline;
    Ok(InFlightRequest::new(
        app,
        model,
        lease,
        context.arrived_at,
        (admitted, context.user.sight.clone(), context.user.key),
        deadline,
    ))
}

/// The engine's name for the requested model or adapter.
pub(crate) fn name_there(served: &InFlightRequest, route: &Route, requested: &str) -> String {
    let own = served.lease.served_name().unwrap_or(&served.model);
    route.entry.adapter(requested).unwrap_or(own).to_owned()
}

/// The engine's response to a unary request.
pub enum Answer {
    /// The body with its `content-type`.
    Complete(Box<InFlightRequest>, Option<HeaderValue>, Bytes),
    /// The engine's error, ready for the client.
    Refused(Response),
}

/// Sends the request and reads the complete response.
pub(crate) async fn ask(
    app: &App,
    served: InFlightRequest,
    path: &str,
    body: (&HeaderValue, Bytes),
) -> Result<Answer, Failure> {
    let (served, response) = reach(app, served, path, body).await?;
    if !response.status().is_success() {
        served.responded(response.status().as_u16());
        return Ok(Answer::Refused(engine_error(response, &served).await));
    }
    // The response head counts as progress of the engine.
    served.lease.token();
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let cut = served.lease.cut();
    let collected = Limited::new(response.into_body(), ANSWER_MAX).collect();
    let bytes = tokio::select! {
        biased;
        () = cut.cancelled() => return Err(why(&served).await),
        () = served.ending.cancelled() => return Err(Failure::ending(&served.model)),
        collected = collected => match collected {
            Ok(collected) => collected.to_bytes(),
            Err(_) => {
                served.lease.worked(false);
                return Err(why(&served).await);
            }
        },
    };
    served.lease.token();
    Ok(Answer::Complete(Box::new(served), kind, bytes))
}

/// An engine's response, as far as the pool reads it.
enum Read {
    /// Returned unchanged, because a list of vectors is long.
    AsItIs,
    /// To be serialized again.
    Anew(Value),
}

/// Fields that every response may have.
#[derive(Default, Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<Value>,
}

fn read_response(
    model: &str,
    bytes: &[u8],
    tei_most: Option<usize>,
) -> Result<(Read, Option<Usage>), Failure> {
    let wrong = |_| Failure::engine(model, "the response is not JSON");
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    let body_out: ErrorBody<'_> = if is_object {
        serde_json::from_slice(bytes).map_err(wrong)?
    } else {
        ErrorBody::default()
    };
    let usage = usage_of(&json!({"usage": body_out.usage}));
    let is_named = body_out.model.is_some_and(|name| {
        serde_json::from_str::<String>(name.get()).map_or(true, |name| name != model)
    });
    if is_object && tei_most.is_none() && !is_named {
        return Ok((Read::AsItIs, usage));
    }
    let mut response: Value = serde_json::from_slice(bytes).map_err(wrong)?;
    match tei_most {
        Some(most) => response = from_tei(model, response, most),
        None if is_named => response["model"] = json!(model),
        None => return Ok((Read::AsItIs, usage)),
    }
    Ok((Read::Anew(response), usage))
}

/// Builds the response with the pool's name for the model, and counts its usage.
pub(crate) async fn finish(
    app: &App,
    served: &InFlightRequest,
    bytes: Bytes,
    tei_most: Option<usize>,
) -> Result<Response, Failure> {
    let (model, reply) = (Arc::clone(&served.model), bytes.clone());
    let read = move || {
        let (read, usage) = read_response(&model, &reply, tei_most)?;
        let anew = match read {
            Read::AsItIs => None,
            Read::Anew(reply) => Some(Bytes::from(reply.to_string())),
        };
        Ok((anew, usage))
    };
    let (anew, usage) = app.reading.run(bytes.len(), read).await?;
    if let Some(usage) = usage {
        served.tokens(usage);
    }
    let body = match anew {
        None => bytes,
        Some(anew) => remote::masked(&served.lease, anew),
    };
    let mut response = Response::new(Body::from(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// Translates the request for Text Embeddings Inference, which has other field names.
fn to_tei(body: &Bytes) -> Result<Bytes, Failure> {
    may_be_a_tree(body)?;
    let received: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        Failure::invalid(None, format!("the body is not a JSON object: {error}"))
    })?;
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        other => other.get("text")?.as_str().map(str::to_owned),
    };
    let documents = received.get("documents").and_then(Value::as_array);
    let texts: Option<Vec<String>> = documents.and_then(|all| all.iter().map(text).collect());
    let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
        let message = "`documents` must be a list of at least one text";
        return Err(Failure::invalid("documents".to_owned(), message));
    };
    let Some(query) = received.get("query").and_then(Value::as_str) else {
        return Err(Failure::invalid(
            "query".to_owned(),
            "`query` must be a string",
        ));
    };
    let body =
        json!({"model": received.get("model"), "query": query, "texts": texts, "truncate": true});
    Ok(body.to_string().into())
}

/// The number of documents to return; all without `top_n`.
fn top_n(body: &[u8]) -> Result<usize, Failure> {
    let fields = Fields::read(body)?;
    let most = fields.get("top_n").map(RawValue::get);
    let most = most.and_then(|most| most.parse::<u64>().ok());
    let most = most.and_then(|most| usize::try_from(most).ok());
    Ok(most.unwrap_or(usize::MAX))
}

/// The response is sorted, best first.
fn from_tei(model: &str, response: Value, most: usize) -> Value {
    let ranks = response.as_array().cloned().unwrap_or_default();
    let results: Vec<Value> = ranks
        .iter()
        .take(most)
        .map(|rank| json!({"index": rank["index"], "relevance_score": rank["score"]}))
        .collect();
    json!({"model": model, "results": results})
}

#[cfg(test)]
mod tests;
