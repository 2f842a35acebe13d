//! Routes whose requests go to an engine and back as they are: embeddings, ranks, scores. They wait for their
//! model like any other request; nothing of them is streamed, and what an engine does not do it says itself.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value, json};
use std::time::Duration;

use super::aggregate::usage_of;
use super::auth::User;
use super::error::Failure;
use super::gateway::{ANSWER_MAX, Failed, Served, engine_error, find, reach, read, told};
use super::openapi::InferenceErrors;
use super::outgoing::renamed;
use super::state::App;
use super::{remote, stream};
use crate::catalog::RerankWords;
use crate::controller::Seat;

const EMBEDDINGS: &str = "/v1/embeddings";
const RERANK: &str = "/v1/rerank";
const SCORE: &str = "/v1/score";

/// Numbers for texts. The model is loaded if it is not ready.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "inference",
    request_body(content = Object, description = "OpenAI's embeddings request", example = json!({
        "model": "org/embedder", "input": ["keep-hot", "priority"]
    })),
    responses(
        (status = 200, description = "OpenAI's list of embeddings, as the engine gives it"),
        InferenceErrors,
    )
)]
pub(super) async fn embeddings(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    pass(app, user, request, EMBEDDINGS).await
}

/// Documents by how well they answer a query.
#[utoipa::path(
    post, path = "/v1/rerank", tag = "inference",
    request_body(content = Object, description = "`query` and `documents`, as vLLM, llama.cpp and Jina have them", example = json!({
        "model": "org/reranker", "query": "What is keep-hot?", "documents": ["A time.", "A place."]
    })),
    responses(
        (status = 200, description = "`results`, each with `index` and `relevance_score`"),
        InferenceErrors,
    )
)]
pub(super) async fn rerank(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    pass(app, user, request, RERANK).await
}

/// How alike texts are, as vLLM has it.
#[utoipa::path(
    post, path = "/v1/score", tag = "inference",
    request_body(content = Object, description = "`text_1` and `text_2`", example = json!({
        "model": "org/reranker", "text_1": "What is keep-hot?", "text_2": ["A time.", "A place."]
    })),
    responses(
        (status = 200, description = "`data`, each with `index` and `score`"),
        InferenceErrors,
    )
)]
pub(super) async fn score(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    pass(app, user, request, SCORE).await
}

async fn pass(app: App, user: User, request: Request<Body>, path: &'static str) -> Response {
    match try_pass(&app, user, request, path).await {
        Ok(response) => response,
        Err(failed) => told(&app, failed),
    }
}

async fn try_pass(
    app: &App,
    user: User,
    request: Request<Body>,
    path: &'static str,
) -> Result<Response, Failed> {
    let clock = app.handle.clock();
    let asked = clock.now();
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    if route.entry.recipe.only_completes() {
        let message = format!(
            "{model} is run by the embedded engine, which has no {path}; a model with type EmbeddingEngine, VLLMEngine or LlamaCppEngine may have it"
        );
        let failure = Failure::new(
            StatusCode::NOT_IMPLEMENTED,
            "invalid_request_error",
            "not_implemented",
            message,
        );
        return Err(fail(failure));
    }
    let ranks_for_tei = path == RERANK && route.entry.recipe.rerank_words() == RerankWords::Tei;
    // What is wrong with a request is said before anything is loaded for it.
    let body = match ranks_for_tei {
        true => to_tei(&scanned.body).map_err(fail)?,
        false => scanned.body.clone(),
    };
    let seat = app.handle.seat(&route, user.key, None);
    let lease = match seat.map_err(|busy| fail(busy.into()))? {
        Seat::Now(lease) => lease,
        Seat::Wait(mut waiting) => waiting
            .seat()
            .await
            .map_err(|refusal| fail(Failure::refused(&model, &refusal)))?,
    };
    app.metrics
        .waited(&model, Duration::from_millis(clock.now().since(asked).0));
    let own = lease.served_name().unwrap_or(&model);
    let name = route
        .entry
        .adapter(&scanned.model)
        .unwrap_or(own)
        .to_owned();
    let body = renamed(&body, &name).map_err(fail)?;
    let served = Served::new(app, &model, lease, asked);
    let there = match ranks_for_tei {
        true => "/rerank",
        false => path,
    };
    let (served, answer) = reach(app, served, there, body).await.map_err(fail)?;
    if !answer.status().is_success() {
        served.answered(answer.status().as_u16());
        return Ok(engine_error(answer, &served).await);
    }
    // It speaks, though no tokens.
    served.lease.token();
    let cut = served.lease.cut();
    let whole = Limited::new(answer.into_body(), ANSWER_MAX).collect();
    let bytes = tokio::select! {
        biased;
        () = cut.cancelled() => return Err(fail(stream::why(&served).await)),
        () = served.ending.cancelled() => return Err(fail(Failure::ending(&model))),
        whole = whole => match whole {
            Ok(whole) => whole.to_bytes(),
            Err(_) => {
                served.lease.worked(false);
                return Err(fail(stream::why(&served).await));
            }
        },
    };
    served.lease.token();
    let most = ranks_for_tei.then(|| top_n(&scanned.body));
    let response = finish(&served, bytes, most).map_err(fail)?;
    served.answered(200);
    Ok(response)
}

/// The answer with the model called as the pool calls it; its usage is counted.
fn finish(served: &Served, bytes: Bytes, tei_most: Option<usize>) -> Result<Response, Failure> {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else {
        return Err(Failure::engine(&served.model, "an answer that is no JSON"));
    };
    if let Some(usage) = usage_of(&answer) {
        served.tokens(usage);
    }
    if let Some(most) = tei_most {
        answer = from_tei(&served.model, answer, most);
    }
    // A list of vectors is long: it goes on as it came, unless a name in it is another's.
    let is_named = answer
        .get("model")
        .is_some_and(|name| *name != served.model);
    if tei_most.is_none() && !is_named {
        let mut response = Response::new(Body::from(bytes));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        *response.status_mut() = StatusCode::OK;
        return Ok(response);
    }
    answer["model"] = json!(served.model);
    let masked = remote::masked(&served.lease, answer.to_string().into());
    let mut response = masked.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// Text Embeddings Inference has its own words for a query and its documents.
fn to_tei(body: &Bytes) -> Result<Bytes, Failure> {
    let asked: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| Failure::invalid(None, format!("the body is no JSON object: {error}")))?;
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        other => other.get("text")?.as_str().map(str::to_owned),
    };
    let documents = asked.get("documents").and_then(Value::as_array);
    let texts: Option<Vec<String>> = documents.and_then(|all| all.iter().map(text).collect());
    let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
        let message = "`documents` must be a list of at least one text";
        return Err(Failure::invalid("documents".to_owned(), message));
    };
    let Some(query) = asked.get("query").and_then(Value::as_str) else {
        return Err(Failure::invalid(
            "query".to_owned(),
            "`query` must be a string",
        ));
    };
    let body =
        json!({"model": asked.get("model"), "query": query, "texts": texts, "truncate": true});
    Ok(body.to_string().into())
}

/// How many documents are wanted, the best ones; without `top_n` all.
fn top_n(body: &[u8]) -> usize {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let most = asked.get("top_n").and_then(Value::as_u64);
    most.and_then(|most| usize::try_from(most).ok())
        .unwrap_or(usize::MAX)
}

/// It answers the best first.
fn from_tei(model: &str, answer: Value, most: usize) -> Value {
    let ranks = answer.as_array().cloned().unwrap_or_default();
    let results: Vec<Value> = ranks
        .iter()
        .take(most)
        .map(|rank| json!({"index": rank["index"], "relevance_score": rank["score"]}))
        .collect();
    json!({"model": model, "results": results})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rerank_in_everybodys_words_becomes_one_in_teis_and_back() {
        let asked = json!({"model": "m", "query": "q", "documents": ["a", {"text": "b"}]});
        let sent = to_tei(&asked.to_string().into()).unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!(
            (&sent["query"], &sent["texts"]),
            (&json!("q"), &json!(["a", "b"]))
        );
        let ranks = json!([{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}]);
        assert_eq!(top_n(br#"{"top_n": 1}"#), 1);
        let one = from_tei("m", ranks.clone(), 1);
        assert_eq!(one["results"].as_array().unwrap().len(), 1);
        let answer = from_tei("m", ranks, top_n(b"{}"));
        assert_eq!(
            answer["results"][0],
            json!({"index": 1, "relevance_score": 0.9})
        );
        for (body, param) in [
            (json!({"query": "q"}), "documents"),
            (json!({"query": "q", "documents": []}), "documents"),
            (json!({"documents": ["a"]}), "query"),
        ] {
            let failure = to_tei(&body.to_string().into()).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(param));
        }
    }
}
