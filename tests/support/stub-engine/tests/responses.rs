//! Tests of the stub: behaviour that other tests rely on, through its HTTP routes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

const BEGIN: &str = "listening on ";

struct Stub {
    process: Child,
    address: String,
    /// Kept open because the stub continues to print.
    _output: BufReader<ChildStdout>,
}

impl Stub {
    fn start(flags: &[&str]) -> Stub {
        let mut process = Command::new(env!("CARGO_BIN_EXE_stub-engine"))
            .args(["--port", "0"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let address = (&mut output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix(BEGIN)?.to_owned()));
        Stub {
            process,
            address: address.expect("it says where it listens"),
            _output: output,
        }
    }

    fn send(&self, route: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let length = body.len();
        write!(stream, "{route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        stream
    }

    /// The status line and headers, and the body with its framing.
    fn ask(&self, route: &str, body: &str) -> (String, String) {
        let mut text = String::new();
        self.send(route, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn stats(&self) -> Value {
        serde_json::from_str(&self.ask("GET /stats", "").1).unwrap()
    }

    /// Waits until a counter has this value, and returns the statistics.
    fn until(&self, counter: &str, value: u64) -> Value {
        for _ in 0..10_000 {
            let stats = self.stats();
            if stats[counter] == value {
                return stats;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{counter} never became {value}: {}", self.stats());
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn events(body: &str) -> Vec<String> {
    let lines = body.lines();
    let data = lines.filter_map(|line| line.strip_prefix("data: "));
    data.map(str::to_owned).collect()
}

#[test]
fn a_chat_stream_has_a_role_the_text_a_finish_reason_usage_and_an_end_mark() {
    let stub = Stub::start(&[]);
    let body =
        r#"{"model":"a/b","messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let (head, body) = stub.ask("POST /v1/chat/completions", body);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/event-stream"), "{head}");
    let mut events = events(&body);
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(chunks.len(), 8);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "Hello from a/b and goodbye");
    assert_eq!(chunks[6]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[7]["usage"]["completion_tokens"], 5);
    assert_eq!(chunks[7]["choices"], Value::Array(Vec::new()));
    assert!(chunks.iter().all(|chunk| chunk["model"] == "a/b"));
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk")
    );
}

#[test]
fn a_non_streaming_response_is_truncated_at_max_tokens() {
    let stub = Stub::start(&[]);
    let body = r#"{"model":"m","prompt":"hi","max_tokens":2}"#;
    let (_, body) = stub.ask("POST /v1/completions", body);
    let response: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(response["choices"][0]["text"], "Hello from");
    assert_eq!(response["choices"][0]["finish_reason"], "length");
    assert_eq!(response["usage"]["total_tokens"], 5);
}

#[test]
fn a_client_that_disconnects_stops_the_work_and_is_counted() {
    let stub = Stub::start(&["--tokens", "100000", "--token-ms", "1"]);
    let bodies = [
        r#"{"model":"m","messages":[],"stream":true}"#,
        r#"{"model":"m","messages":[]}"#,
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let client = stub.send("POST /v1/chat/completions", body);
        stub.until("running", 1);
        drop(client);
        let stats = stub.until("abandoned", number as u64 + 1);
        assert_eq!(stats["running"], 0);
        assert_eq!(stats["completed"], 0);
        assert!(stats["tokens"].as_u64().unwrap() < 100_000);
    }
    stub.ask(
        "POST /v1/completions",
        r#"{"model":"m","prompt":"","max_tokens":1}"#,
    );
    let stats = stub.until("completed", 1);
    assert_eq!(stats["abandoned"], 2);
}

#[test]
fn a_mid_stream_crash_happens_after_the_configured_number_of_tokens() {
    let mut stub = Stub::start(&["--crash-mid-stream", "3"]);
    let body = r#"{"model":"m","messages":[],"stream":true}"#;
    let mut response = Vec::new();
    // The connection may close normally or be reset.
    let _ = stub
        .send("POST /v1/chat/completions", body)
        .read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response);
    assert_eq!(events(&response).len(), 4, "{response}");
    assert!(!stub.process.wait().unwrap().success());
}
