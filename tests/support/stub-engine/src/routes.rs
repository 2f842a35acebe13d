//! The stub's routes: health, models, completions, statistics, with their statuses and streams. `response.rs` writes the responses.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::flags::Flags;
use crate::response::{Form, StubResponse, error, models};
use crate::stats::{RunningRequest, Stats};

const BODY_BYTES_MAX: usize = 64 << 20;

#[derive(Clone)]
struct Stub {
    flags: Arc<Flags>,
    stats: Arc<Stats>,
}

pub fn router(flags: Arc<Flags>) -> Router {
    let stub = Stub {
        flags,
        stats: Arc::default(),
    };
    Router::new()
        .route("/health", get(health))
        .route("/stats", get(stats))
        .route("/v1/models", get(list))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(text))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/rerank", post(rerank))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/v1/audio/transcriptions", post(transcribe))
        .route("/v1/audio/translations", post(transcribe))
        .route("/v1/audio/speech", post(speak))
        .merge(crate::passthrough::router())
        .fallback(nowhere)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(stub.clone(), check_key))
        .with_state(stub)
}

async fn check_key(State(stub): State<Stub>, request: Request, next: Next) -> Response {
    for name in &stub.flags.print_headers {
        if let Some(value) = request.headers().get(name) {
            println!("{name}: {}", value.to_str().unwrap_or("?"));
        }
    }
    let borne = request.headers().get(header::AUTHORIZATION);
    let wanted = stub.flags.key.as_ref().map(|key| format!("Bearer {key}"));
    match wanted {
        Some(wanted) if borne.is_none_or(|borne| borne != wanted.as_str()) => {
            refuse(StatusCode::UNAUTHORIZED, "the key is wrong")
        }
        _ => next.run(request).await,
    }
}

async fn health(State(stub): State<Stub>) -> Response {
    if stub.flags.hang_health {
        std::future::pending::<Infallible>().await;
    }
    match stub.loading() {
        Some(response) => response,
        None => {
            if stub.flags.hostile.hangs_now() {
                std::future::pending::<Infallible>().await;
            }
            if stub.flags.hostile.exit_when_ready {
                // Lets the response be sent first.
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    std::process::exit(0);
                });
            }
            Json(json!({"status": "ok"})).into_response()
        }
    }
}

async fn stats(State(stub): State<Stub>) -> Json<Value> {
    Json(stub.stats.to_json())
}

async fn list(State(stub): State<Stub>) -> Json<Value> {
    Json(models(&stub.flags.model))
}

async fn chat(State(stub): State<Stub>, body: Bytes) -> Response {
    complete(stub, Form::Chat, &body).await
}

async fn text(State(stub): State<Stub>, body: Bytes) -> Response {
    complete(stub, Form::Text, &body).await
}

/// OpenAI's limit.
const TEXTS_MAX: usize = 2048;
const LETTERS_MAX: u64 = 5;

/// Embeds each text as its length and its number of words.
async fn embeddings(State(stub): State<Stub>, Json(body): Json<Value>) -> Response {
    if body["model"] != stub.flags.model.as_str() {
        return refuse(StatusCode::NOT_FOUND, "no such model");
    }
    let texts = match &body["input"] {
        // A list of tokens is one text.
        Value::Array(texts) if !texts.first().is_some_and(Value::is_number) => texts.as_slice(),
        one => std::slice::from_ref(one),
    };
    if texts.len() > TEXTS_MAX {
        return refuse(StatusCode::BAD_REQUEST, "more than 2048 texts at once");
    }
    let data = texts.iter().enumerate().map(|(index, text)| {
        let text = text.as_str().unwrap_or_default();
        let vector = [text.len(), text.split_whitespace().count()];
        json!({"object": "embedding", "index": index, "embedding": vector})
    });
    let data: Vec<Value> = data.collect();
    let tokens = data.len() * 3;
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Json(json!({"object": "list", "data": data, "model": stub.flags.model, "usage": usage}))
        .into_response()
}

/// Longer documents get better scores.
async fn rerank(Json(body): Json<Value>) -> Response {
    let documents = body["documents"].as_array().map_or(&[][..], Vec::as_slice);
    if documents.is_empty() || documents.len() > TEXTS_MAX {
        return refuse(StatusCode::BAD_REQUEST, "no documents, or more than 2048");
    }
    let results = documents.iter().enumerate().map(|(index, text)| {
        let score = text.as_str().unwrap_or_default().len();
        json!({"index": index, "relevance_score": score})
    });
    Json(json!({"results": results.collect::<Vec<_>>()})).into_response()
}

/// Splits `prompt`, or the text of `messages`, into a token per word, in vLLM's format.
async fn tokenize(State(stub): State<Stub>, Json(body): Json<Value>) -> Response {
    if body["model"] != stub.flags.model.as_str() {
        return refuse(StatusCode::NOT_FOUND, "no such model");
    }
    let mut texts: Vec<&str> = body["prompt"].as_str().into_iter().collect();
    for message in body["messages"].as_array().into_iter().flatten() {
        texts.extend(message["content"].as_str());
    }
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    let tokens: Vec<usize> = words.map(str::len).collect();
    Json(
        json!({"count": tokens.len(), "max_model_len": 4096, "tokens": tokens, "token_strs": null}),
    )
    .into_response()
}

/// Writes as many letters as the token's number, up to the usual length of a token: a response is about as long as its tokens.
async fn detokenize(Json(body): Json<Value>) -> Response {
    let tokens = body["tokens"].as_array().cloned().unwrap_or_default();
    let word = |token: &Value| "x".repeat(token.as_u64().unwrap_or(0).min(LETTERS_MAX) as usize);
    let words: Vec<String> = tokens.iter().map(word).collect();
    Json(json!({"prompt": words.join(" ")})).into_response()
}

/// Returns the names of the received parts, and checks the model.
async fn transcribe(State(stub): State<Stub>, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body);
    let parts = text.split("; name=\"").skip(1);
    let parts: Vec<&str> = parts.filter_map(|part| part.split('"').next()).collect();
    let model = format!("name=\"model\"\r\n\r\n{}\r\n", stub.flags.model);
    if !text.contains(&model) {
        return refuse(StatusCode::NOT_FOUND, "no such model");
    }
    let heard = format!("heard {}", parts.join(", "));
    if text.contains("name=\"response_format\"\r\n\r\ntext\r\n") {
        heard.into_response()
    } else {
        Json(json!({"text": heard})).into_response()
    }
}

/// Returns a WAV of 8-bit samples that end with the letters of the text.
async fn speak(Json(body): Json<Value>) -> Response {
    let mut samples = vec![0; 800];
    samples.extend_from_slice(body["input"].as_str().unwrap_or_default().as_bytes());
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut sound = b"RIFF".to_vec();
    sound.extend_from_slice(&length(36 + samples.len()));
    // Mono PCM, 8000 samples per second, one byte each.
    sound.extend_from_slice(
        b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data",
    );
    sound.extend_from_slice(&length(samples.len()));
    sound.extend_from_slice(&samples);
    ([(header::CONTENT_TYPE, "audio/wav")], sound).into_response()
}

async fn nowhere(uri: Uri) -> Response {
    refuse(
        StatusCode::NOT_FOUND,
        &format!("no such route: {}", uri.path()),
    )
}

fn refuse(status: StatusCode, message: &str) -> Response {
    (status, Json(error(message))).into_response()
}

impl Stub {
    /// The response of every model route until the model is loaded.
    fn loading(&self) -> Option<Response> {
        let percent = self.flags.load_percent();
        let body = json!({"status": "loading", "stage": "weights", "percent": percent});
        (percent < 100).then(|| (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response())
    }
}

async fn complete(stub: Stub, form: Form, body: &[u8]) -> Response {
    if let Some(response) = stub.loading() {
        return response;
    }
    let request: Value = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("not JSON: {error}")),
    };
    stub.flags.hostile.read(body);
    if let Some(message) = &stub.flags.script.refuse {
        return refuse(StatusCode::BAD_REQUEST, message);
    }
    let script = &stub.flags.script;
    let reply = match StubResponse::to(form, &request, stub.flags.tokens, script) {
        Ok(reply) => reply,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, &message),
    };
    if stub.flags.hostile.never_respond {
        std::future::pending::<Infallible>().await;
    }
    let status = stub.flags.hostile.status.map(StatusCode::from_u16);
    if let Some(Ok(status)) = status {
        return refuse(status, "it is always so");
    }
    if let Err(words) = stub.flags.gpu.leak() {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, &words);
    }
    let mut running = RunningRequest::begin(&stub.stats);
    if reply.is_stream {
        return stream_of(reply, running, stub.flags);
    }
    for made in 0..reply.tokens {
        work(&stub.flags, &running, made).await;
    }
    crash_at(&stub.flags, reply.tokens).await;
    running.done();
    Json(reply.whole()).into_response()
}

/// Waits for the time of a token, and crashes if a crash is due before it.
async fn work(flags: &Flags, running: &RunningRequest, made: usize) {
    crash_at(flags, made).await;
    if flags.hostile.stuck_after == Some(made) {
        std::future::pending::<Infallible>().await;
    }
    if !flags.token_pause.is_zero() {
        sleep(flags.token_pause).await;
    }
    running.made_token();
}

/// Aborts without a message or unwinding, as after a driver fault.
async fn crash_at(flags: &Flags, made: usize) {
    if flags.crash_mid_stream == Some(made) {
        // Lets the text so far be sent first.
        sleep(Duration::from_millis(20)).await;
        std::process::abort();
    }
}

/// Server-sent events. A client that disconnects drops the stream, which stops the work.
fn stream_of(response: StubResponse, running: RunningRequest, flags: Arc<Flags>) -> Response {
    let events = stream::unfold((response, running, flags, 0), |state| async move {
        let (response, mut running, flags, step) = state;
        if response.is_endless {
            work(&flags, &running, step).await;
        } else if let Some(made) = response.token_of_step(step) {
            work(&flags, &running, made).await;
        } else if step > 0 {
            crash_at(&flags, response.tokens).await;
        }
        let Some(data) = response.event(step) else {
            running.done();
            return None;
        };
        let event = Ok::<_, Infallible>(Bytes::from(format!("data: {data}\n\n")));
        Some((event, (response, running, flags, step + 1)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(events)).into_response()
}
