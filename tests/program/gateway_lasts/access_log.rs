//! The access log: its entries, and the client that each request is attributed to.

use serde_json::{Value, json};

use support::net::{ask, chat, h2, post, raw, runtime, status, stub, text};
use support::service::{Pool, wait_for};

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(line).collect()
}

#[test]
fn each_request_is_logged_with_its_cost_and_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let env = [("MODEL_POOL__SERVER__ACCESS_LOG", path.to_str().unwrap())];
    let mut pool = Pool::with_env(&[stub("talker", &["--tokens", "7"])], "", &env);
    let key = pool.admin_key();
    let by = |id: &str| lines(&path).into_iter().find(|line| line["id"] == id);
    let body = chat("talker", false);
    let (status, _, head) = pool.request("POST", "/v1/chat/completions", &body, Some(&key));
    assert_eq!(status, 200);
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "))
        .unwrap()
        .to_owned();
    let mut found = None;
    wait_for("the line of the request", || {
        found = by(&id);
        found.is_some()
    });
    let line = found.unwrap();
    for (name, value) in [
        ("method", json!("POST")),
        ("path", json!("/v1/chat/completions")),
        ("protocol", json!("HTTP/1.1")),
        ("client", json!("127.0.0.1")),
        ("status", json!(200)),
        ("ended", json!("whole")),
        ("model", json!("talker")),
        ("completion_tokens", json!(7)),
        ("bytes_in", json!(body.len())),
        ("key", json!({"id": "k1", "name": "first admin key"})),
    ] {
        assert_eq!(line[name], value, "{name}: {line}");
    }
    assert!(
        line["duration_ms"].as_u64() >= line["waited_ms"].as_u64(),
        "{line}"
    );
    assert!(
        line["first_byte_ms"].is_u64() && line["bytes_out"].as_u64() > Some(100),
        "{line}"
    );

    // A stream over HTTP/2, with a path that tries to inject a log line.
    runtime().block_on(async {
        let mut client = h2(&pool).await;
        let mut request = post(
            "http://localhost/v1/chat/completions",
            &chat("talker", true),
        );
        request
            .headers_mut()
            .insert("x-request-id", "streamed".parse().unwrap());
        text(client.send_request(request).await.unwrap()).await;
    });
    ask(
        &pool,
        "GET",
        "/v1/x%0a%22?api_key=mp-s3cret",
        "x-request-id: odd\r\n",
    );
    let leaver = pool.stream("/v1/chat/completions", &chat("talker", true));
    leaver.whole();
    wait_for("the lines of the others", || {
        by("streamed").is_some() && by("odd").is_some()
    });
    let line = by("streamed").unwrap();
    assert_eq!(
        (&line["protocol"], &line["completion_tokens"]),
        (&json!("HTTP/2.0"), &json!(7)),
        "{line}"
    );
    assert_eq!(by("odd").unwrap()["status"], 400);
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in ["What is a priority?", "hello", key.as_str(), "s3cret"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    // The last lines are not lost with the process.
    ask(&pool, "GET", "/llm/health", "x-request-id: last\r\n");
    pool.terminate();
    assert!(pool.wait(std::time::Duration::from_secs(20)));
    assert!(by("last").is_some());
}

#[test]
fn an_aborted_request_is_logged_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let env = [("MODEL_POOL__SERVER__ACCESS_LOG", path.to_str().unwrap())];
    let talk = stub("talker", &["--tokens", "500", "--token-ms", "20"]);
    let pool = Pool::with_env(&[talk], "", &env);
    let streams =
        [true, false].map(|stream| pool.stream("/v1/chat/completions", &chat("talker", stream)));
    wait_for("the first chunk", || streams[0].text().contains("data: "));
    drop(streams);
    let ended = |how: &str| lines(&path).iter().any(|line| line["ended"] == how);
    wait_for("both lines", || ended("cut") && ended("left"));
}

#[test]
fn an_access_log_that_cannot_be_opened_prevents_the_start() {
    let config = "server: {listen: \"127.0.0.1:0\", access_log: /proc/nowhere/access.log}\n";
    let (status, said) = Pool::refused(config);
    assert_eq!(status, Some(1));
    assert!(
        said.contains("server.access_log") && said.contains("/proc/nowhere"),
        "{said}"
    );
}

#[test]
fn client_addresses_from_a_proxy_are_used_only_if_it_is_trusted() {
    let models = [stub("talker", &[])];
    let body = chat("talker", false);
    let asked = |pool: &Pool, more: &str| {
        let text = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        status(&raw(pool, text.as_bytes()))
    };
    // Without a configured proxy, a forwarded client is not treated as this machine.
    let pool = Pool::with_models(&models, "");
    assert_eq!(asked(&pool, ""), 200);
    assert_eq!(asked(&pool, "X-Forwarded-For: 127.0.0.1\r\n"), 401);
    assert_eq!(asked(&pool, "Forwarded: for=127.0.0.1\r\n"), 401);
    drop(pool);
    let env = [(
        "MODEL_POOL__SERVER__TRUSTED_PROXIES",
        "[127.0.0.1, 10.0.0.0/8]",
    )];
    let pool = Pool::with_env(&models, "", &env);
    for (more, expected) in [
        ("", 200),
        ("X-Forwarded-For: 192.0.2.7\r\n", 401),
        ("X-Forwarded-For: 127.0.0.1, 192.0.2.7\r\n", 401),
        ("X-Forwarded-For: 127.0.0.1, 192.0.2.7, 10.0.0.9\r\n", 401),
        ("X-Forwarded-For: 127.0.0.1\r\n", 401),
        ("X-Forwarded-For: nobody\r\n", 401),
        ("Forwarded: for=192.0.2.7\r\n", 401),
        (
            "X-Forwarded-For: 192.0.2.7\r\nForwarded: for=127.0.0.1\r\n",
            401,
        ),
    ] {
        assert_eq!(asked(&pool, more), expected, "{more}");
    }
}
