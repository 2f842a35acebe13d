//! `model-pool bench` with a model that does not exist, or is removed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use serde_json::Value;
use support::service::Pool;

use super::bench;

#[test]
fn bench_stops_at_the_first_response_if_the_model_does_not_exist() {
    let pool = Pool::with_models(&[], "");
    let url = format!("http://{}/v1", pool.address());
    for load in [&["--connections", "2"][..], &["--rate", "100"]] {
        let words = [load, &["--model", "nope", "--duration", "10m"]].concat();
        let output = bench(&url, &words);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(
            shown.contains("has no model nope, so nothing was measured"),
            "{shown}"
        );
    }
}

/// An endpoint with one connection that sends these responses in turn.
fn server_with(responses: &'static [(u16, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut socket = BufReader::new(socket);
        for (status, body) in responses {
            let mut length = 0;
            loop {
                let mut line = String::new();
                socket.read_line(&mut line).unwrap();
                let line = line.to_lowercase();
                if line.trim().is_empty() {
                    break;
                }
                if let Some(number) = line.strip_prefix("content-length:") {
                    length = number.trim().parse().unwrap();
                }
            }
            socket.read_exact(&mut vec![0; length]).unwrap();
            let head = format!(
                "HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let response = head + body;
            socket.get_mut().write_all(response.as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn a_model_that_disappears_during_a_bench_counts_as_a_failure() {
    const DONE: (u16, &str) = (200, r#"{"choices":[],"usage":{"completion_tokens":7}}"#);
    const GONE: (u16, &str) = (
        404,
        r#"{"error":{"code":"model_not_found","message":"gone"}}"#,
    );
    let url = server_with(&[DONE, GONE, DONE]);
    let words = ["--model", "m", "--requests", "3", "--connections", "1"];
    let output = bench(&url, &[&words[..], &["--json"]].concat());
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("1 of 3 requests failed"), "{shown}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&result["succeeded"], &result["tokens"]),
        (&2.into(), &14.into())
    );
    assert_eq!(result["errors"]["404 model_not_found"]["count"], 1);
}
