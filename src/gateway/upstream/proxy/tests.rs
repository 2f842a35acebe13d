//! Tests of the connections in `proxy.rs`, with sockets as engines.

use super::*;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

const ROUTE: Route = (ReplicaId(1), 0);

/// Serves the given responses on one connection and closes it.
fn engine(responses: &'static [&'static [&'static str]]) -> (Endpoint, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        for pieces in responses {
            let mut received = Vec::new();
            let mut part = [0; 256];
            while !received.ends_with(b"\r\n\r\nask") {
                let length = socket.read(&mut part).expect("a request");
                assert!(length > 0, "the client has left");
                received.extend_from_slice(&part[..length]);
            }
            for piece in *pieces {
                socket.write_all(piece.as_bytes()).expect("sent");
            }
        }
    });
    (Endpoint::Tcp(address), serving)
}

async fn ask(
    pool: &Arc<ConnectionPool>,
    endpoint: &Endpoint,
) -> Result<Response<Incoming>, SendError> {
    let mut wire = pool.take(ROUTE, endpoint).await?;
    let request = Request::post("/v1/x").header("host", "localhost");
    let request = request.body(Bytes::from_static(b"ask")).expect("a request");
    let response = wire.send(request).await?;
    Ok(Incoming::new(response, wire, ROUTE, pool))
}

#[tokio::test]
async fn a_connection_is_reused_after_its_response_has_been_read() {
    let (endpoint, serving) = engine(&[
        &[
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
            "lo\r\n2\r\n, ",
            "\r\n5\r\nworld\r\n0\r\n\r\n",
        ],
        &["HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n", "no"],
        &["HTTP/1.1 200 OK\r\n\r\n", "until the end"],
    ]);
    let pool = Arc::new(ConnectionPool::default());
    for (status, text) in [
        (StatusCode::OK, "hello, world"),
        (StatusCode::NOT_FOUND, "no"),
        (StatusCode::OK, "until the end"),
    ] {
        let response = ask(&pool, &endpoint).await.expect("a response");
        assert_eq!(response.status(), status);
        let body = response.into_body().collect().await.expect("all of it");
        assert_eq!(body.to_bytes(), text);
    }
    let idle = pool.idle.lock().expect("not poisoned");
    assert!(idle.by_route.values().all(Vec::is_empty));
    serving.join().expect("one connection was enough");
}

#[tokio::test]
async fn a_connection_through_a_replaced_process_is_not_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = Endpoint::Tcp(listener.local_addr().expect("an address"));
    let pool = ConnectionPool::default();
    let (replica, before) = ROUTE;
    let now = (replica, before + 1);
    let [idle, in_use, last] = [(); 3].map(|()| EngineConnection::open(&endpoint));
    let (idle, in_use, last) = (idle.await, in_use.await, last.await);
    pool.put(ROUTE, idle.expect("connected"));
    pool.put(now, last.expect("connected"));
    pool.put(ROUTE, in_use.expect("connected"));
    let count = |route: Route| {
        let idle = pool.idle.lock().expect("not poisoned");
        idle.by_route.get(&route).map_or(0, Vec::len)
    };
    assert_eq!(
        (count(ROUTE), count(now)),
        (1, 1),
        "the old one is not reused"
    );
    pool.take(now, &endpoint).await.expect("the idle one");
    assert_eq!((count(ROUTE), count(now)), (0, 0), "it is closed");
}

#[tokio::test]
async fn a_truncated_or_broken_response_is_an_error_after_the_data_received() {
    const HELLO: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    const TRUNCATED: &[&[&str]] = &[&[HELLO]];
    const BROKEN: &[&[&str]] = &[&[HELLO, "no size\r\n"]];
    for (response, kind) in [
        (TRUNCATED, io::ErrorKind::UnexpectedEof),
        (BROKEN, io::ErrorKind::InvalidData),
    ] {
        let (endpoint, _serving) = engine(response);
        let pool = Arc::new(ConnectionPool::default());
        let response = ask(&pool, &endpoint).await.expect("a response");
        let mut body = response.into_body();
        let mut received = Vec::new();
        let error = loop {
            match body.frame().await.expect("no end") {
                Ok(frame) => received.extend_from_slice(frame.data_ref().expect("data")),
                Err(error) => break error,
            }
        };
        assert_eq!((received.as_slice(), error.kind()), (&b"hello"[..], kind));
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
async fn a_connection_closed_before_the_response_may_be_retried() {
    let (endpoint, _serving) = engine(&[&[]]);
    let pool = Arc::new(ConnectionPool::default());
    let error = ask(&pool, &endpoint).await.err().expect("no response");
    assert!(error.is_without_response(), "{error}");
}

#[tokio::test]
async fn a_connection_closed_within_a_response_head_is_not_retried() {
    let (endpoint, _serving) = engine(&[
        &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"],
        &["HTTP/1.1 200 OK\r\ncontent-le"],
    ]);
    let pool = Arc::new(ConnectionPool::default());
    let response = ask(&pool, &endpoint).await.expect("a response");
    response.into_body().collect().await.expect("all of it");
    let error = ask(&pool, &endpoint).await.err().expect("no response");
    assert!(!error.is_without_response(), "{error}");
}

#[tokio::test]
async fn the_rest_of_a_request_is_sent_to_an_engine_that_responds_early() {
    /// More than the sockets buffer.
    const BYTES: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = Endpoint::Tcp(listener.local_addr().expect("an address"));
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let within = Some(Duration::from_secs(10));
        socket.set_read_timeout(within).expect("a socket");
        let mut part = vec![0; 1 << 16];
        let mut length = socket.read(&mut part).expect("the head");
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
        socket.write_all(head).expect("sent");
        while length < BYTES {
            let more = socket.read(&mut part).expect("the rest");
            assert!(more > 0, "the client has left");
            length += more;
        }
        socket.write_all(b"ok").expect("sent");
    });
    let pool = Arc::new(ConnectionPool::default());
    let mut wire = pool.take(ROUTE, &endpoint).await.expect("a connection");
    let request = Request::post("/v1/x").body(Bytes::from(vec![b'x'; BYTES]));
    let response = wire.send(request.expect("a request")).await;
    let response = Incoming::new(response.expect("a response"), wire, ROUTE, &pool);
    let body = response.into_body().collect().await.expect("all of it");
    assert_eq!(body.to_bytes(), "ok");
    serving.join().expect("all of the request");
}

#[tokio::test]
async fn all_pieces_of_a_stream_share_one_buffer() {
    let (endpoint, _serving) = engine(&[&[
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "1\r\na\r\n",
        "1\r\nb\r\n",
        "0\r\n\r\n",
    ]]);
    let pool = Arc::new(ConnectionPool::default());
    let response = ask(&pool, &endpoint).await.expect("a response");
    let mut body = response.into_body();
    let mut received = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("a piece");
        received.extend_from_slice(frame.data_ref().expect("data"));
        assert_eq!(body.room, ROOM_BYTES);
    }
    assert_eq!(received, b"ab");
}
