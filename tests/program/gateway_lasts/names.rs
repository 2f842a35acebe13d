//! Requests to unusual hosts, targets and methods, with encodings, keys in addresses, browsers and headers.

use serde_json::Value;

use support::net::{ask, chat, h2, raw, runtime, status, stub};
use support::service::Pool;

/// The error of a response, in OpenAI's form.
fn error(response: &str) -> Value {
    let body = response.split_once("\r\n\r\n").unwrap().1;
    let body: Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"));
    let error = body["error"].clone();
    assert!(
        error["message"].is_string() && error["type"].is_string(),
        "{response}"
    );
    error
}

fn with_host(host: &str) -> String {
    format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

#[test]
fn on_loopback_a_web_page_under_another_host_name_is_refused() {
    let env = [("MODEL_POOL__SERVER__HOSTS", "[llm.example.org]")];
    let pool = Pool::with_env(&[], "", &env);
    for (host, expected) in [
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("llm.example.org", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 400),
    ] {
        let said = raw(&pool, with_host(host).as_bytes());
        assert_eq!(status(&said), expected, "{host}: {said}");
        if expected == 421 {
            assert_eq!(error(&said)["code"], "unknown_host");
            assert!(said.contains("server.hosts"), "{said}");
        }
    }
    let none = raw(
        &pool,
        b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(status(&none), 400, "{none}");
    let two = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&raw(&pool, two.as_bytes())), 400);
    runtime().block_on(async {
        let mut client = h2(&pool).await;
        for (host, expected) in [("localhost", 200), ("evil.example", 421)] {
            let uri = format!("http://{host}/v1/models");
            let request = hyper::Request::get(uri).body(Default::default()).unwrap();
            let response = client.send_request(request).await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{host}");
        }
    });
}

#[test]
fn on_a_public_address_every_host_name_is_served_unless_some_are_configured() {
    let listen = ("MODEL_POOL__SERVER__LISTEN", "0.0.0.0:0");
    let pool = Pool::with_env(&[], "", &[listen]);
    let port = pool.address().rsplit_once(':').unwrap().1;
    assert_eq!(
        status(&raw(
            &pool,
            with_host(&format!("any.example:{port}")).as_bytes()
        )),
        200
    );
}

#[test]
fn an_unknown_route_is_refused_in_openais_error_format() {
    let pool = Pool::demo();
    for (method, target, expected) in [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "//v1/models", 404),
        ("GET", "/v1//models", 404),
        ("GET", "/v1/../v1/models", 404),
        ("GET", "/v1/%2e%2e/admin", 404),
        ("GET", "/llm%2fhealth", 404),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/models/org%2Fnone", 404),
        ("GET", "http://localhost/v1/models", 404),
        ("GET", "http://evil.example/v1/models", 421),
        ("GET", "/llm/admin/nothing", 404),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/chat/completions", 405),
        ("PUT", "/llm/health", 405),
        ("OPTIONS", "/v1/models", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("OPTIONS", "*", 405),
        ("TRACE", "/v1/models", 405),
        ("CONNECT", "localhost:443", 405),
        ("PROPFIND", "/v1/models", 405),
        ("GET", "/v1/models?api_key=mp-s3cret", 400),
        ("POST", "/llm/admin/reset?key=mp-s3cret", 400),
        ("GET", "/llm/health?apikey=mp-s3cret", 400),
        ("GET", "/llm/health?api%5fkey=mp-s3cret", 400),
        ("GET", "/v1/models/%ff", 400),
        ("GET", "/v1/responses/%ff", 400),
        ("DELETE", "/v1/responses/%ff", 400),
        ("GET", "/v1/responses/%ff/input_items", 400),
    ] {
        let (got, said) = ask(&pool, method, target, "");
        assert_eq!(got, expected, "{method} {target}: {said}");
        error(&said);
        assert!(!said.contains("s3cret"), "{said}");
    }
    let (got, said) = ask(&pool, "HEAD", "/v1/models", "");
    assert_eq!(got, 200);
    assert!(said.ends_with("\r\n\r\n"), "a head has no body: {said}");
    assert_eq!(ask(&pool, "HEAD", "/v1/chat/completions", "").0, 405);
    assert!(!pool.log().contains("s3cret"), "{}", pool.log());
}

#[test]
fn bodies_with_a_content_encoding_or_two_lengths_are_refused() {
    let pool = Pool::demo();
    for coding in ["gzip", "br", "deflate", "zstd", "identity, gzip"] {
        let more = format!("Content-Encoding: {coding}\r\nContent-Length: 2\r\n");
        let (got, said) = ask(&pool, "POST", "/v1/chat/completions", &(more + "\r\n{}"));
        assert_eq!(got, 415, "{coding}: {said}");
        assert_eq!(error(&said)["code"], "unsupported_content_encoding");
    }
    for lengths in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Length: 2, 3\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +2\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    ] {
        let (got, said) = ask(
            &pool,
            "POST",
            "/v1/chat/completions",
            &format!("{lengths}\r\n{{}}"),
        );
        assert_eq!(got, 400, "{lengths}: {said}");
    }
}

#[test]
fn a_plain_client_request_id_is_kept_and_logged() {
    let broken = stub("broken", &["--raw", "hang-up"]);
    let pool = Pool::with_models(&[broken], "");
    for (sent, kept) in [("mine-4711", true), ("<script>", false), ("a b", false)] {
        let (_, said) = ask(
            &pool,
            "GET",
            "/llm/health",
            &format!("x-request-id: {sent}\r\n"),
        );
        assert_eq!(
            said.contains(&format!("x-request-id: {sent}\r\n")),
            kept,
            "{said}"
        );
        assert!(said.contains("x-request-id: "), "{said}");
    }
    let body = chat("broken", false);
    let more = format!(
        "x-request-id: trace-me\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{more}"
    );
    let said = raw(&pool, text.as_bytes());
    assert!(status(&said) >= 500, "{said}");
    let log = pool.log();
    let line = log
        .lines()
        .find(|line| line.contains("no response from the engine"));
    assert!(line.is_some_and(|line| line.contains("trace-me")), "{log}");
}

#[test]
fn cors_is_allowed_only_if_configured_and_never_for_admin_routes() {
    let asks = "Origin: https://lab.example.org\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, x-stainless-os\r\n";
    let closed = Pool::demo();
    let (got, said) = ask(&closed, "OPTIONS", "/v1/chat/completions", asks);
    assert_eq!(got, 405);
    assert!(!said.contains("access-control"), "{said}");
    drop(closed);
    let cors = "{origins: [\"https://lab.example.org\"], max_age: 10m}";
    let pool = Pool::with_env(&[], "", &[("MODEL_POOL__SERVER__CORS", cors)]);
    let (got, said) = ask(&pool, "OPTIONS", "/v1/chat/completions", asks);
    assert_eq!(got, 200, "{said}");
    for line in [
        "access-control-allow-origin: https://lab.example.org\r\n",
        "access-control-max-age: 600\r\n",
        "access-control-allow-headers: authorization, x-stainless-os\r\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("credentials"), "{said}");
    let (got, said) = ask(
        &pool,
        "GET",
        "/llm/v1/models",
        "Origin: https://lab.example.org\r\n",
    );
    assert_eq!(got, 200);
    assert!(
        said.contains("allow-origin: https://lab.example.org"),
        "{said}"
    );
    let (_, said) = ask(
        &pool,
        "GET",
        "/v1/models",
        "Origin: https://evil.example\r\n",
    );
    assert!(!said.contains("allow-origin"), "{said}");
    for path in [
        "/llm/admin/models",
        "/llm/admin/keys",
        "/metrics",
        "/llm/docs/",
    ] {
        for method in ["OPTIONS", "GET"] {
            let (_, said) = ask(&pool, method, path, asks);
            assert!(!said.contains("access-control"), "{method} {path}: {said}");
        }
    }
}

#[test]
fn responses_carry_security_headers_for_browsers_and_caches() {
    let pool = Pool::demo();
    let key = format!("Authorization: Bearer {}\r\n", pool.admin_key());
    let (got, admin) = ask(&pool, "GET", "/llm/admin/keys", &key);
    assert_eq!(got, 200, "{admin}");
    for line in [
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "frame-ancestors 'none'",
    ] {
        assert!(admin.contains(line), "{line}: {admin}");
    }
    let (got, docs) = ask(&pool, "GET", "/llm/docs/", "");
    assert_eq!(got, 200, "{docs}");
    for line in [
        "script-src 'self';",
        "frame-ancestors 'none'",
        "referrer-policy: no-referrer",
        "nosniff",
    ] {
        assert!(docs.contains(line), "{line}: {docs}");
    }
    let (_, models) = ask(&pool, "GET", "/v1/models", "");
    assert!(
        models.contains("x-content-type-options: nosniff"),
        "{models}"
    );
}
