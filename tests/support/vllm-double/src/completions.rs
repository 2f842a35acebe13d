//! Chats and completions, with vLLM's checks, its streams and the ways its core ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::flags::Flags;
use crate::response::DoubleResponse;
use crate::routes::{Server, Shared, error, failed};
use crate::tools::{SpecialOutput, has_tools};
use crate::{milliseconds, number};

pub async fn chat(State(server): Shared, headers: HeaderMap, body: Bytes) -> Response {
    complete(server, true, &headers, &body).await
}

pub async fn text(State(server): Shared, headers: HeaderMap, body: Bytes) -> Response {
    complete(server, false, &headers, &body).await
}

async fn complete(
    server: Arc<Server>,
    is_chat: bool,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    if let Some(key) = &server.flags.api_key {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        if given != Some(&format!("Bearer {key}")) {
            return error(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        }
    }
    let request: Value = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(problem) => {
            return error(
                StatusCode::BAD_REQUEST,
                "BadRequestError",
                &problem.to_string(),
            );
        }
    };
    let model = request["model"].as_str().unwrap_or_default();
    if !server.is_adapter(model) && !server.flags.served.iter().any(|name| name == model) {
        let message = format!("The model `{model}` does not exist.");
        return error(StatusCode::NOT_FOUND, "NotFoundError", &message);
    }
    if server.parked.is_asleep() || server.parked.lacks_weights() {
        // vLLM would access memory that has been released.
        return failed("EngineDeadError: a request came while the engine was asleep");
    }
    let most = number("VLLM_DOUBLE_TOKENS", 5);
    let response = match DoubleResponse::to(is_chat, &request, most) {
        Ok(response) => response.with(SpecialOutput::new(&server.flags, is_chat, &request)),
        Err(problem) => return error(StatusCode::BAD_REQUEST, "BadRequestError", &problem),
    };
    if let Some(problem) = before_stream(&server.flags, &request) {
        return error(StatusCode::BAD_REQUEST, "BadRequestError", &problem);
    }
    if let Some(problem) = in_stream(&request) {
        return if response.is_stream {
            stream_with(&problem)
        } else {
            error(StatusCode::BAD_REQUEST, "BadRequestError", &problem)
        };
    }
    if dies() {
        return end();
    }
    let counted = RequestGuard::begin(server, response.prompt_tokens());
    if response.is_stream {
        return stream_of(response, counted);
    }
    counted.0.numbers.plain.fetch_add(1, Ordering::Relaxed);
    for _ in 0..response.tokens {
        counted.token().await;
    }
    let whole = response.whole();
    counted.done();
    Json(whole).into_response()
}

/// Checks that vLLM makes before it starts a stream. A word counts as a token.
fn before_stream(flags: &Flags, request: &Value) -> Option<String> {
    if request["prompt"] == json!("") {
        let problem =
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
        return Some(problem.to_owned());
    }
    let texts = request["messages"].as_array().into_iter().flatten();
    let texts = texts
        .map(|message| &message["content"])
        .chain([&request["prompt"]]);
    let words = |text: &Value| {
        text.as_str()
            .map_or(0, |text| text.split_whitespace().count())
    };
    let tokens: usize = texts.map(words).sum();
    if tokens as u64 > flags.max_model_len {
        return Some(format!(
            "This model's maximum context length is {} tokens. However, your prompt contains at least {tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
            flags.max_model_len
        ));
    }
    if !has_tools(request) {
        return None;
    }
    let choice = &request["tool_choice"];
    let has_parser = flags.tool_parser.is_some();
    let needs = match (choice["function"]["name"].as_str(), choice.as_str()) {
        (Some(name), _) if !has_parser => {
            format!("tool_choice=function \"{name}\" requires --tool-call-parser")
        }
        (None, Some("required")) if !has_parser => {
            "tool_choice=\"required\" requires --tool-call-parser".to_owned()
        }
        (None, None | Some("auto")) if !flags.reads_tools => {
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser"
                .to_owned()
        }
        _ => return None,
    };
    Some(format!("{needs} to be set"))
}

/// Checks that vLLM makes in its core, after the stream has started with 200.
fn in_stream(request: &Value) -> Option<String> {
    let most = request["top_logprobs"]
        .as_u64()
        .filter(|count| *count > 20)?;
    Some(format!(
        "Requested sample logprobs of {most}, which is greater than max allowed: 20 (parameter=logprobs, value={most})"
    ))
}

/// A stream that consists of an error.
fn stream_with(problem: &str) -> Response {
    let error = json!({"error": {"message": problem, "type": "BadRequestError", "param": null, "code": 400}});
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (headers, format!("data: {error}\n\ndata: [DONE]\n\n")).into_response()
}

/// Returns true if the core must end at this request: always with `VLLM_DOUBLE_DIES`, and with `VLLM_DOUBLE_DIE_ONCE` unless its
/// file exists.
fn dies() -> bool {
    let once = std::env::var_os("VLLM_DOUBLE_DIE_ONCE");
    let is_first = |path: std::ffi::OsString| {
        let made = std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(path);
        made.is_ok()
    };
    number("VLLM_DOUBLE_DIES", 0) == 1 || once.is_some_and(is_first)
}

/// vLLM's error message after its core has ended.
const FAREWELL: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

/// Responds with 500 and exits shortly after with status 0, as vLLM does when its core has ended.
fn end() -> Response {
    begin_end();
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalServerError",
        FAREWELL,
    )
}

fn begin_end() {
    let process = std::process::id();
    println!(
        "(EngineCore pid={process}) ERROR 01-01 00:00:00 [core.py:1512] RuntimeError: the core is dead on purpose"
    );
    println!(
        "(APIServer pid={process}) ERROR 01-01 00:00:00 [async_llm.py:906] AsyncLLM output_handler failed."
    );
    println!(
        "(APIServer pid={process}) ERROR 01-01 00:00:00 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    );
    // Delayed like the real server, which stops its workers first.
    std::thread::spawn(move || {
        std::thread::park_timeout(std::time::Duration::from_millis(700));
        eprintln!("INFO:     Shutting down");
        eprintln!("INFO:     Finished server process [{process}]");
        std::process::exit(0);
    });
}

/// Counts a request until it is dropped.
struct RequestGuard(Arc<Server>);

impl RequestGuard {
    fn begin(server: Arc<Server>, prompt_tokens: u64) -> RequestGuard {
        server.numbers.running.fetch_add(1, Ordering::Relaxed);
        server
            .numbers
            .prompt_tokens
            .fetch_add(prompt_tokens, Ordering::Relaxed);
        RequestGuard(server)
    }

    /// With `VLLM_DOUBLE_FREEZES_AFTER` the core freezes after this number of tokens, while the server still responds.
    async fn token(&self) {
        let last = number("VLLM_DOUBLE_FREEZES_AFTER", u64::MAX);
        if self.0.numbers.tokens.load(Ordering::Relaxed) >= last {
            return std::future::pending().await;
        }
        let pause = milliseconds("VLLM_DOUBLE_TOKEN_MS", 0);
        if !pause.is_zero() {
            sleep(pause).await;
        }
        self.0.numbers.tokens.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self) {
        self.0.numbers.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.numbers.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client that disconnects drops the stream, which stops the work. With `VLLM_DOUBLE_DIES_AFTER` the core ends after this number
/// of streamed tokens, and the stream ends with vLLM's error event.
fn stream_of(response: DoubleResponse, counted: RequestGuard) -> Response {
    let last = number("VLLM_DOUBLE_DIES_AFTER", u64::MAX);
    let steps = stream::unfold(
        (response, counted, 0_u64),
        move |(response, counted, step)| async move {
            let data = if step >= last {
                match step - last {
                    0 => {
                        begin_end();
                        json!({"error": {"message": FAREWELL, "type": "InternalServerError", "param": null, "code": 500}})
                            .to_string()
                    }
                    1 => "[DONE]".to_owned(),
                    _ => return None,
                }
            } else if step < response.tokens {
                counted.token().await;
                response.piece(step)
            } else {
                let left = usize::try_from(step - response.tokens).unwrap_or(usize::MAX);
                let Some(last) = response.ending().into_iter().nth(left) else {
                    counted.done();
                    return None;
                };
                last
            };
            let event = Ok::<_, Infallible>(Bytes::from(format!("data: {data}\n\n")));
            Some((event, (response, counted, step + 1)))
        },
    );
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (headers, Body::from_stream(steps)).into_response()
}
