//! Chats and completions bypass the routing table, except with `server.cors`. Both paths give the same responses.

use support::net::{chat, raw, stub};
use support::service::Pool;

const CHAT: &str = "/v1/chat/completions";
const JSON: &str = "Content-Type: application/json\r\n";
const LIMIT: (&str, &str) = ("MODEL_POOL__SERVER__BODY_LIMIT", "1KiB");

/// The status line, the names of the headers and the body.
fn response_to(pool: &Pool, path: &str, lines: &str, body: &str) -> (String, Vec<String>, String) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
    );
    let response = raw(pool, request.as_bytes());
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    let (status, headers) = head.split_once("\r\n").expect("headers");
    let names = headers.lines().filter_map(|line| line.split_once(':'));
    let names = names.map(|(name, _)| name.to_ascii_lowercase());
    let of_cors = |name: &String| name == "vary" || name.starts_with("access-control-");
    let mut names: Vec<String> = names.filter(|name| !of_cors(name)).collect();
    names.sort();
    (status.to_owned(), names, body.to_owned())
}

#[test]
fn responses_are_the_same_with_and_without_the_direct_route() {
    let cors = "{origins: [\"https://lab.example.org\"]}";
    let past = Pool::with_env(&[stub("m", &[])], "", &[LIMIT]);
    let through = [LIMIT, ("MODEL_POOL__SERVER__CORS", cors)];
    let through = Pool::with_env(&[stub("m", &[])], "", &through);
    let with_json = |more: &str| format!("{JSON}{more}");
    let text = r#"{"model":"m","prompt":"Hi"}"#.to_owned();
    for (path, lines, body, expected) in [
        (CHAT, with_json(""), chat("m", false), "200"),
        (CHAT, with_json(""), chat("m", true), "200"),
        (
            "/llm/v1/chat/completions",
            with_json(""),
            chat("m", false),
            "200",
        ),
        ("/v1/completions", with_json(""), text, "200"),
        (CHAT, with_json(""), "{}".to_owned(), "400"),
        (CHAT, with_json(""), "no JSON".to_owned(), "400"),
        (CHAT, with_json(""), String::new(), "400"),
        (CHAT, with_json(""), chat("unknown", false), "404"),
        (CHAT, with_json(""), "x".repeat(2_000), "413"),
        (CHAT, String::new(), chat("m", false), "200"),
        (
            CHAT,
            "User-Agent: Mozilla/5.0\r\n".to_owned(),
            chat("m", false),
            "415",
        ),
        (
            CHAT,
            with_json("x-request-timeout: soon\r\n"),
            chat("m", false),
            "400",
        ),
        (
            CHAT,
            with_json("Authorization: Bearer mp-wrong\r\n"),
            chat("m", false),
            "401",
        ),
        (
            CHAT,
            with_json("Origin: https://evil.example\r\n"),
            chat("m", false),
            "403",
        ),
    ] {
        let (one, other) = (
            response_to(&past, path, &lines, &body),
            response_to(&through, path, &lines, &body),
        );
        assert!(one.0.contains(expected), "{path} {lines} {body}: {one:?}");
        assert_eq!((&one.0, &one.1), (&other.0, &other.1), "{path} {lines}");
        if expected != "200" {
            assert_eq!(one.2, other.2, "{path} {lines}");
        }
    }
}
