//! Slow clients: slow heads, slow bodies, idle connections, and slow reads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;

use support::net::{
    ask, chat, connect, engine, h2_with, head, post, raw, rest, runtime, stats, status, stub,
};
use support::service::{Pool, wait_for};

/// A pool with these keys of the `server` section.
fn start(models: &[(String, String)], keys: &[(&str, &str)]) -> Pool {
    let names: Vec<String> = keys
        .iter()
        .map(|(key, _)| format!("MODEL_POOL__SERVER__{}", key.to_uppercase()))
        .collect();
    let values = keys.iter().map(|(_, value)| *value);
    let env: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(values).collect();
    Pool::with_env(models, "", &env)
}

/// Seconds until the service closes the connection, and the text it sent before.
fn until_closed(socket: &mut TcpStream) -> (f64, String) {
    let began = SystemTime::now();
    let said = rest(socket);
    (began.elapsed().unwrap_or_default().as_secs_f64(), said)
}

#[test]
fn slow_request_heads_are_cut_after_ten_seconds_and_delay_no_other_client() {
    let pool = start(&[], &[]);
    let mut sockets: Vec<TcpStream> = (0..200).map(|_| connect(&pool)).collect();
    let began = SystemTime::now();
    let mut sent = 0;
    let text = head(
        "GET",
        "/llm/health",
        "x-padding: 0123456789012345678901234567890123456789\r\n",
    );
    let mut closed = false;
    while !closed {
        for socket in &mut sockets {
            closed |= socket.write_all(&text.as_bytes()[sent..=sent]).is_err();
        }
        sent = (sent + 1).min(text.len() - 3);
        let asked = SystemTime::now();
        assert_eq!(ask(&pool, "GET", "/llm/health", "").0, 200);
        assert!(asked.elapsed().unwrap_or_default() < Duration::from_secs(1));
        assert!(
            began.elapsed().unwrap_or_default() < Duration::from_secs(15),
            "never cut"
        );
        std::thread::park_timeout(Duration::from_millis(200));
    }
    assert!(
        began.elapsed().unwrap_or_default() > Duration::from_secs(9),
        "a slow head has its ten seconds"
    );
}

#[test]
fn a_stalled_body_gets_408_and_a_slow_one_does_not() {
    let pool = start(&[stub("talker", &[])], &[("body_timeout", "500ms")]);
    let body = chat("talker", false);
    let length = format!("Content-Length: {}\r\n", body.len());
    let mut socket = connect(&pool);
    socket
        .write_all(head("POST", "/v1/chat/completions", &length).as_bytes())
        .unwrap();
    socket.write_all(&body.as_bytes()[..20]).unwrap();
    let (took, said) = until_closed(&mut socket);
    assert_eq!(status(&said), 408, "{said}");
    assert!(
        said.contains("body_too_slow") && said.contains("20 bytes"),
        "{said}"
    );
    assert!((0.4..5.0).contains(&took), "{took}");
    // Also without a length, one byte at a time.
    let mut socket = connect(&pool);
    let chunked = head(
        "POST",
        "/v1/chat/completions",
        "Transfer-Encoding: chunked\r\n",
    );
    socket.write_all(chunked.as_bytes()).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while writer.write_all(b"1\r\n{\r\n").is_ok() {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    });
    let (took, said) = until_closed(&mut socket);
    assert_eq!(status(&said), 408, "{said}");
    assert!(took < 5.0, "{took}");
    let _ = socket.shutdown(std::net::Shutdown::Both);
    drip.join().unwrap();
    assert_eq!(pool.post("/v1/chat/completions", &body).0, 200);
}

#[test]
fn an_idle_connection_is_closed_and_an_active_one_is_kept() {
    let pool = start(&[], &[("idle_timeout", "1s")]);
    let mut socket = connect(&pool);
    for _ in 0..6 {
        socket
            .write_all(head("GET", "/llm/health", "").as_bytes())
            .unwrap();
        let mut response = [0; 1024];
        let count = socket.read(&mut response).unwrap();
        assert!(String::from_utf8_lossy(&response[..count]).starts_with("HTTP/1.1 200"));
        std::thread::park_timeout(Duration::from_millis(300));
    }
    let (took, said) = until_closed(&mut socket);
    assert!(
        said.is_empty() && (0.3..4.0).contains(&took),
        "{took} {said}"
    );
}

#[test]
fn a_client_that_reads_nothing_loses_its_seat() {
    let flood = stub("flood", &["--tokens", "2000000"]);
    let pool = start(&[flood], &[("write_timeout", "1s")]);
    let mut socket = connect(&pool);
    let body = chat("flood", true);
    let length = format!("Content-Length: {}\r\n", body.len());
    let text = head("POST", "/v1/chat/completions", &length) + &body;
    socket.write_all(text.as_bytes()).unwrap();
    socket.read_exact(&mut [0; 16]).unwrap();
    let engine = engine(&pool, "flood");
    assert_eq!(stats(&engine)["running"], 1);
    wait_for("the engine to be freed", || stats(&engine)["running"] == 0);
    assert_eq!(stats(&engine)["abandoned"], 1);
    // Over HTTP/2, where the socket accepts everything and the stream nothing.
    runtime().block_on(async {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(2_000);
        let socket = tokio::net::TcpStream::connect(pool.address())
            .await
            .unwrap();
        let mut client = h2_with(socket, &builder).await;
        let uri = "http://localhost/v1/chat/completions";
        let response = client.send_request(post(uri, &body)).await.unwrap();
        assert_eq!(stats(&engine)["running"], 1);
        let cut = async {
            while stats(&engine)["running"] != 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let cut = tokio::time::timeout(Duration::from_secs(30), cut).await;
        cut.expect("a client that reads nothing is cut");
        drop(response);
    });
    assert_eq!(stats(&engine)["abandoned"], 2);
}

#[test]
fn bodies_share_a_bounded_memory_and_small_ones_always_fit() {
    let keys = [
        ("bodies_memory", "4MiB"),
        ("body_limit", "2MiB"),
        ("body_timeout", "1s"),
    ];
    let pool = start(&[stub("talker", &[])], &keys);
    let large = 1_500_000;
    let open = |bytes: usize| {
        let mut socket = connect(&pool);
        let length = format!("Content-Length: {bytes}\r\n");
        socket
            .write_all(head("POST", "/v1/completions", &length).as_bytes())
            .unwrap();
        // Enough to give it three seconds more than the others wait.
        socket.write_all(&[b' '; 48 << 10]).unwrap();
        socket
    };
    // A caller may use half of the three quarters for large bodies, which the first body takes. The second waits in vain.
    let mut first = open(large);
    let pause = Duration::from_millis(200);
    std::thread::park_timeout(pause);
    let mut second = open(large);
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("talker", false)).0,
        200
    );
    let said = rest(&mut second);
    assert_eq!(status(&said), 503, "{said}");
    assert!(
        said.contains("server.bodies_memory") && said.to_lowercase().contains("retry-after"),
        "{said}"
    );
    assert_eq!(status(&rest(&mut first)), 408);
    // The capacity they held is free again.
    let body = format!(r#"{{"model":"talker","prompt":"{}"}}"#, "x".repeat(large));
    assert_eq!(pool.post("/v1/completions", &body).0, 200);
}

#[test]
fn connections_are_limited_and_a_refused_client_gets_a_503() {
    let pool = start(&[], &[("connections_max", "8")]);
    let held: Vec<TcpStream> = (0..8).map(|_| connect(&pool)).collect();
    let mut said = String::new();
    wait_for("a connection to be turned away", || {
        said = raw(&pool, b"");
        !said.is_empty()
    });
    assert!(
        said.starts_with("HTTP/1.1 503") && said.contains("connections_max"),
        "{said}"
    );
    drop(held);
    wait_for("room for others", || {
        ask(&pool, "GET", "/llm/health", "").0 == 200
    });
}
