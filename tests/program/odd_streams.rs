//! Engines with unusual streams or without streams: the responses that clients get, complete, streamed and in other APIs. The
//! engine is a small scripted server, used as a `RemoteEngine`.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, post};
use serde_json::{Value, json};
use support::http_server::serve;
use support::service::Pool;

/// The engine's behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamBehaviour {
    #[default]
    Streams,
    /// Responds to each request with one JSON object.
    OnlyJson,
    RefusesStream,
    RefusesOptions,
}

#[derive(Default)]
struct Engine {
    way: StreamBehaviour,
    /// The events of a stream.
    events: String,
    /// The body breaks off after them.
    breaks: bool,
    vector: Value,
    received: Vec<Value>,
}

type SharedEngine = Arc<Mutex<Engine>>;

fn respond(status: u16, kind: &str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    let headers = response.headers_mut();
    headers.insert("content-type", kind.parse().unwrap());
    response
}

async fn chat(State(engine): State<SharedEngine>, body: Bytes) -> Response {
    let mut engine = engine.lock().unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    engine.received.push(request.clone());
    let has = |name: &str| {
        request
            .get(name)
            .is_some_and(|value| *value != json!(false))
    };
    let refused = |text: Value| respond(400, "application/json", Body::from(text.to_string()));
    match engine.way {
        StreamBehaviour::RefusesOptions if has("stream_options") => {
            return refused(
                json!({"object": "error", "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options')}]", "code": 400}),
            );
        }
        StreamBehaviour::RefusesStream if has("stream") => {
            return refused(
                json!({"error": {"message": "not supported by this model", "param": "stream"}}),
            );
        }
        StreamBehaviour::OnlyJson => {}
        _ if has("stream") => {
            let events = Bytes::from(engine.events.clone());
            let end = engine
                .breaks
                .then(|| Err(std::io::Error::other("broken off")));
            let pieces = std::iter::once(Ok(events)).chain(end);
            let body = Body::from_stream(futures_util::stream::iter(pieces));
            return respond(200, "text/event-stream", body);
        }
        _ => {}
    }
    let whole = json!({"id": "c1", "object": "chat.completion", "created": 1, "model": "inner",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "in one piece"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}});
    respond(200, "application/json", Body::from(whole.to_string()))
}

async fn vectors(State(engine): State<SharedEngine>) -> Response {
    let vector = &engine.lock().unwrap().vector;
    let body = json!({"object": "list", "model": "inner", "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": 1, "total_tokens": 1}});
    respond(200, "application/json", Body::from(body.to_string()))
}

/// A pool whose model `far` is this engine.
fn pool(way: StreamBehaviour, sections: &str) -> (Pool, SharedEngine) {
    let engine = SharedEngine::default();
    engine.lock().unwrap().way = way;
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/embeddings", post(vectors))
        .route("/v1/models", any(|| async { "{\"data\":[]}" }))
        .with_state(Arc::clone(&engine));
    let address = serve(routes);
    let file = format!(
        "engine_config:\n  model_id: far\n  type: RemoteEngine\n  url: http://{address}/v1\n{sections}"
    );
    let files = [("far.yaml".to_owned(), file)];
    (
        Pool::with_models(&files, "compat: {ollama: true}\n"),
        engine,
    )
}

fn body(stream: bool) -> String {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    json!({"model": "far", "stream": stream, "max_tokens": 100, "messages": messages}).to_string()
}

fn ask(pool: &Pool, path: &str, body: &str) -> (u16, Value) {
    let (status, text, _) = pool.request_unchecked("POST", path, body);
    (status, serde_json::from_str(&text).unwrap_or(json!(text)))
}

fn stream(pool: &Pool) -> String {
    pool.stream("/v1/chat/completions", &body(true)).whole()
}

fn event(delta: Value, finish: Option<&str>) -> String {
    let chunk = json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "inner",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}

/// The text of the response in each API, and the names of the called tools.
fn in_all_apis(pool: &Pool) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (_, chat) = ask(pool, "/v1/chat/completions", &body(false));
    let (_, message) = ask(pool, "/v1/messages", &body(false));
    let responses = json!({"model": "far", "input": "Hello", "store": false}).to_string();
    let (_, response) = ask(pool, "/v1/responses", &responses);
    let (_, ollama) = ask(pool, "/api/chat", &body(false));
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let of_chat = |message: &Value| {
        let calls = list(&message["tool_calls"]);
        let names = calls.iter().map(|call| text(&call["function"]["name"]));
        (text(&message["content"]), names.collect())
    };
    let of_items = |items: Vec<Value>, call: &str, text_of: &dyn Fn(&Value) -> String| {
        let texts: String = items.iter().map(text_of).collect();
        let calls = items.iter().filter(|item| item["type"] == call);
        (texts, calls.map(|item| text(&item["name"])).collect())
    };
    vec![
        of_chat(&chat["choices"][0]["message"]),
        of_items(list(&message["content"]), "tool_use", &|block| {
            text(&block["text"])
        }),
        of_items(list(&response["output"]), "function_call", &|item| {
            text(&item["content"][0]["text"])
        }),
        of_chat(&ollama["message"]),
    ]
}

#[test]
fn a_body_that_ends_after_its_finish_reason_is_complete_and_a_broken_off_one_is_not() {
    let (pool, engine) = pool(StreamBehaviour::Streams, "");
    let begun = event(json!({"role": "assistant", "content": "hello"}), None);
    let finished = format!("{begun}{}", event(json!({}), Some("stop")));
    for (events, breaks, is_complete) in [
        (finished.clone(), false, true),
        // Without its final line breaks.
        (finished.trim_end().to_owned(), false, true),
        (finished.clone(), true, false),
        (begun.clone(), false, false),
        (format!("{finished}data: {{\"cho"), false, false),
    ] {
        {
            let mut engine = engine.lock().unwrap();
            (engine.events, engine.breaks) = (events.clone(), breaks);
        }
        let (status, response) = ask(&pool, "/v1/chat/completions", &body(false));
        let stream = stream(&pool);
        // A broken connection may lose data that was sent before.
        assert!(breaks || stream.contains("hello"), "{stream}");
        if is_complete {
            assert_eq!(status, 200, "{response}");
            assert!(in_all_apis(&pool).iter().all(|(text, _)| text == "hello"));
            assert!(
                stream.ends_with("data: [DONE]\n\n") && !stream.contains("error"),
                "{stream}"
            );
        } else {
            assert_eq!(status, 502, "{events}: {response}");
            assert!(
                stream.contains("\"error\"") && !stream.contains("[DONE]"),
                "{stream}"
            );
        }
    }
}

#[test]
fn tool_calls_keep_their_names_in_every_api() {
    let (pool, engine) = pool(StreamBehaviour::Streams, "");
    let call = |index: u64, id: Value, name: Value, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "index": index, "type": "function", "function": function});
        event(
            json!({"role": null, "content": null, "reasoning_content": null, "tool_calls": [call]}),
            None,
        )
    };
    let events = [
        event(json!({"role": "assistant", "content": ""}), None),
        call(0, json!("call_a"), json!("get_weather"), ""),
        call(0, Value::Null, Value::Null, "{\"city\": "),
        call(0, Value::Null, Value::Null, "\"Paris\"}"),
        call(0, json!("call_b"), json!("get_time"), ""),
        call(0, json!(""), json!(""), "{}"),
        event(json!({}), Some("tool_calls")),
        "data: [DONE]\n\n".to_owned(),
    ];
    engine.lock().unwrap().events = events.concat();
    let names = vec!["get_weather".to_owned(), "get_time".to_owned()];
    for (text, called) in in_all_apis(&pool) {
        assert_eq!((text.as_str(), &called), ("", &names));
    }
}

#[test]
fn an_engine_without_streaming_serves_every_api_including_streams() {
    let (pool, _engine) = pool(StreamBehaviour::OnlyJson, "");
    for (text, _) in in_all_apis(&pool) {
        assert_eq!(text, "in one piece");
    }
    let (_, response) = ask(&pool, "/v1/chat/completions", &body(false));
    assert_eq!(
        (&response["model"], &response["usage"]["total_tokens"]),
        (&json!("far"), &json!(10))
    );
    let chat = stream(&pool);
    assert!(
        chat.contains("in one piece") && chat.ends_with("data: [DONE]\n\n"),
        "{chat}"
    );
    let message = pool.stream("/v1/messages", &body(true)).whole();
    assert!(
        message.contains("in one piece") && message.contains("message_stop"),
        "{message}"
    );
}

#[test]
fn an_engine_that_refuses_streams_is_retried_once_and_remembered() {
    for way in [
        StreamBehaviour::RefusesStream,
        StreamBehaviour::RefusesOptions,
    ] {
        let (pool, engine) = pool(way, "");
        engine.lock().unwrap().events = event(
            json!({"role": "assistant", "content": "streamed"}),
            Some("stop"),
        ) + "data: [DONE]\n\n";
        for received in [2, 3] {
            let (status, response) = ask(&pool, "/v1/chat/completions", &body(false));
            assert_eq!(status, 200, "{way:?}: {response}");
            assert_eq!(response["choices"][0]["message"]["content"], "in one piece");
            let engine = engine.lock().unwrap();
            assert_eq!(
                engine.received.len(),
                received,
                "{way:?}: {:?}",
                engine.received
            );
            assert_eq!(engine.received[received - 1].get("stream"), None);
        }
        let stream = stream(&pool);
        let text = if way == StreamBehaviour::RefusesStream {
            "in one piece"
        } else {
            "streamed"
        };
        assert!(
            stream.contains(text) && stream.ends_with("data: [DONE]\n\n"),
            "{way:?}: {stream}"
        );
        assert_eq!(engine.lock().unwrap().received.len(), 4);
    }
}

#[test]
fn with_plain_requests_non_streaming_requests_are_not_sent_as_streams() {
    let (pool, engine) = pool(
        StreamBehaviour::Streams,
        "pool_config: {plain_requests: true}\n",
    );
    engine.lock().unwrap().events = event(json!({"content": "streamed"}), Some("stop"));
    for (text, _) in in_all_apis(&pool) {
        assert_eq!(text, "in one piece");
    }
    let received = engine.lock().unwrap().received.clone();
    assert_eq!(received.len(), 4);
    for body in received {
        assert_eq!(
            (body.get("stream"), body.get("stream_options")),
            (None, None),
            "{body}"
        );
    }
    assert!(stream(&pool).contains("streamed"), "a stream stays one");
}

#[test]
fn a_vector_that_was_not_computed_is_an_error() {
    let (pool, engine) = pool(StreamBehaviour::Streams, "");
    for (vector, is_computed) in [
        (json!([0.5, 1.5]), true),
        (json!("AACAPwAAAEA="), true),
        (json!([null, 0.5]), false),
        (json!("AADAfwAAAEA="), false),
        (json!(null), false),
    ] {
        engine.lock().unwrap().vector = vector.clone();
        for format in ["float", "base64"] {
            let body = json!({"model": "far", "input": "a", "encoding_format": format}).to_string();
            let (status, response) = ask(&pool, "/v1/embeddings", &body);
            assert_eq!(
                status,
                if is_computed { 200 } else { 502 },
                "{vector} as {format}: {response}"
            );
        }
    }
}
