//! HTTP/2 in clear on the port of HTTP/1.1.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{Request, Version};

use support::net::{chat, connect, h2, post, raw, rest, runtime, status, stub, text};
use support::service::{Pool, wait_for};

#[test]
fn http_1_and_http_2_share_a_port_and_many_requests_share_a_connection() {
    let pool = Pool::with_models(
        &[stub("talker", &["--tokens", "20", "--token-ms", "5"])],
        "",
    );
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("talker", false)).0,
        200
    );
    runtime().block_on(async {
        let client = h2(&pool).await;
        let asks = (0..50).map(|number| {
            let mut client = client.clone();
            async move {
                let stream = number % 2 == 0;
                let uri = "http://localhost/v1/chat/completions";
                let response = client
                    .send_request(post(uri, &chat("talker", stream)))
                    .await;
                let response = response.unwrap();
                assert_eq!(
                    (response.status().as_u16(), response.version()),
                    (200, Version::HTTP_2)
                );
                assert!(response.headers().contains_key("x-request-id"));
                let text = text(response).await;
                if stream {
                    assert!(text.ends_with("data: [DONE]\n\n"), "{text}")
                } else {
                    assert!(text.contains("\"finish_reason\":\"stop\""), "{text}")
                }
            }
        });
        futures_util::future::join_all(asks).await;
    });
}

#[test]
fn after_sigterm_an_http_2_stream_finishes_and_the_connection_closes() {
    let talk = ["--tokens", "30", "--token-ms", "30"];
    let mut pool = Pool::with_models(&[stub("talker", &talk)], "");
    let runtime = runtime();
    let mut client = runtime.block_on(h2(&pool));
    let uri = "http://localhost/v1/chat/completions";
    let streamed = runtime.block_on(async {
        let response = client.send_request(post(uri, &chat("talker", true))).await;
        let mut body = response.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        pool.terminate();
        let rest = body.collect().await.unwrap().to_bytes();
        [first, rest].concat()
    });
    let streamed = String::from_utf8(streamed).unwrap();
    assert!(streamed.ends_with("data: [DONE]\n\n"), "{streamed}");
    assert!(pool.wait(Duration::from_secs(20)), "it ends");
    assert!(
        runtime.block_on(client.ready()).is_err(),
        "the connection is over"
    );
}

#[test]
fn a_flood_of_resets_affects_no_other_client_and_leaves_nothing_behind() {
    let pool = Pool::with_models(
        &[stub("talker", &["--tokens", "500", "--token-ms", "20"])],
        "",
    );
    assert_eq!(pool.post("/v1/completions", "{}").0, 400);
    runtime().block_on(async {
        let mut client = h2(&pool).await;
        let uri = "http://localhost/v1/chat/completions";
        for _ in 0..20_000 {
            // Dropped immediately: the stream is reset as soon as it is opened.
            drop(client.send_request(post(uri, &chat("talker", true))));
            tokio::task::yield_now().await;
            if client.is_closed() || client.ready().await.is_err() {
                break;
            }
        }
        let other = h2(&pool).await.send_request(
            Request::get("http://localhost/llm/health")
                .body(Default::default())
                .unwrap(),
        );
        assert_eq!(other.await.unwrap().status(), 200);
    });
    let key = pool.admin_key();
    wait_for("the queue to be empty", || {
        let (_, text, _) = pool.request("GET", "/llm/admin/queue", "", Some(&key));
        !text.contains("\"ticket\"")
    });
}

#[test]
fn requests_that_are_pipelined_are_served_in_their_order() {
    let pool = Pool::demo();
    let one = "GET /llm/health HTTP/1.1\r\nHost: localhost\r\nx-request-id: ID\r\n\r\n";
    let last = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-request-id: last\r\n\r\n";
    let all: String = (0..20)
        .map(|number| one.replace("ID", &format!("n{number}.")))
        .collect();
    let text = raw(&pool, format!("{all}{last}").as_bytes());
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("x-request-id: "))
        .collect();
    let expected: Vec<String> = (0..20)
        .map(|number| format!("n{number}."))
        .chain(["last".to_owned()])
        .collect();
    assert_eq!(ids, expected);
}

#[test]
fn a_head_that_is_too_large_is_refused_in_either_version() {
    let pool = Pool::demo();
    let large = format!(
        "GET /llm/health HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n",
        "y".repeat(70 << 10)
    );
    assert_eq!(status(&raw(&pool, large.as_bytes())), 431);
    let many: String = (0..200).map(|number| format!("x{number}: y\r\n")).collect();
    let many = format!("GET /llm/health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert_eq!(status(&raw(&pool, many.as_bytes())), 431);
    runtime().block_on(async {
        let mut client = h2(&pool).await;
        let mut request = Request::get("http://localhost/llm/health")
            .body(Default::default())
            .unwrap();
        for number in 0..20 {
            let name: hyper::header::HeaderName = format!("x-{number}").parse().unwrap();
            request
                .headers_mut()
                .insert(name, "y".repeat(4 << 10).parse().unwrap());
        }
        let response = client.send_request(request).await;
        assert!(response.map_or(true, |response| response.status() == 431));
        let fine = Request::get("http://localhost/llm/health")
            .body(Default::default())
            .unwrap();
        let response = h2(&pool).await.send_request(fine).await.unwrap();
        assert_eq!(response.status(), 200);
    });
    // Neither version: the connection is closed without bytes that could be taken for a response.
    let mut socket = connect(&pool);
    std::io::Write::write_all(&mut socket, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        .unwrap();
    std::io::Write::write_all(&mut socket, &[0; 512]).unwrap();
    let said = rest(&mut socket);
    assert!(said.is_empty() || status(&said) == 400, "{said}");
}
