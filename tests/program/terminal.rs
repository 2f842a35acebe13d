//! `model-pool chat`, `run` and `pull` for people and scripts: at a pseudo-terminal, and with pipes.

mod chat;
mod evaluate;
mod hub_names;
mod pull;
mod run;
mod screen;

use std::process::Output;

use serde_json::{Value, json};
use support::servers::{ScriptedServer, http};

/// A server that knows every model and responds to each request with this stream.
fn streaming(events: &[Value]) -> ScriptedServer {
    let data: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    raw_stream(data + "data: [DONE]\n\n")
}

fn raw_stream(body: String) -> ScriptedServer {
    ScriptedServer::server(move |request| {
        if request.starts_with("GET") {
            http(
                "200 OK",
                "content-type: application/json\r\n",
                r#"{"id": "m"}"#,
            )
        } else {
            http("200 OK", "content-type: text/event-stream\r\n", &body)
        }
    })
}

/// A chunk of a response.
fn piece(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

fn reasoning(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})
}

/// The body of a recorded request.
fn body_of(request: &str) -> Value {
    let (_, body) = request.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
