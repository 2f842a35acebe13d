//! Tests of HTTP/1.1 connections with streams: a stream leaves hyper once its head is sent, and further requests follow.

use super::*;
use crate::exchange::Exchange;
use crate::fed;
use axum::body::Bytes;
use axum::http::HeaderValue;
use config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const ASK: &str = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
const ASK_LONG: &str = "POST /long HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";
const PIECES: &str = "3\r\none\r\n3\r\ntwo\r\n";

/// Answers each request with a stream of two pieces, followed by a third if the path is `/long`.
#[derive(Clone)]
struct Streams {
    edge: Arc<Edge>,
    clock: Clock,
    /// Held by the work for each response.
    work: Arc<()>,
}

impl Streams {
    fn new() -> Streams {
        let clock = Clock::start();
        let edge = Edge::open(&Config::default(), clock, None).expect("an edge");
        Streams {
            edge: Arc::new(edge),
            clock,
            work: Arc::default(),
        }
    }

    /// Serves the other end of this connection until it ends.
    async fn serve(&self, stop: &CancellationToken, socket: DuplexStream) {
        let watch = Arc::new(ConnectionWatch::new(self.clock, self.edge.patience));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        run(None, socket, peer, self.clone(), watch, stop.clone()).await;
    }
}

impl ConnectionService for Streams {
    fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    async fn respond(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
        turn: Turn,
    ) -> Response<Sent> {
        let Streams { edge, clock, work } = self;
        let connection = turn.connection();
        let (parts, body) = request.into_parts();
        assert!(crate::throw_away(body).await, "the body is read");
        let is_long = parts.uri.path() == "/long";
        let id = (HeaderValue::from_static("a"), None);
        let client = edge.client(peer.ip(), &parts.headers);
        let exchange = Exchange::begin(&edge, turn, clock, id, &parts, client);
        let (frames, feed) = fed::frames();
        let fed = feed.by(async move {
            let _work = work;
            for piece in ["one", "two"] {
                if !frames.send(Bytes::from_static(piece.as_bytes())).await {
                    return;
                }
                // The body is polled twice while it is pending.
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            if is_long {
                frames.closed().await;
            }
        });
        let mut response = Response::new(());
        let body = fed.into_body(response.extensions_mut());
        connection
            .moving
            .take(response.extensions_mut(), parts.version);
        response.map(|()| exchange.respond(200, body))
    }
}

/// Reads until `count` streams have reached `end`.
async fn read_until(client: &mut DuplexStream, end: &str, count: usize) -> String {
    let mut received = String::new();
    let mut part = [0; 1024];
    while received.matches(end).count() < count {
        let length = client.read(&mut part).await.expect("bytes");
        assert!(length > 0, "{received}");
        received.push_str(std::str::from_utf8(&part[..length]).expect("text"));
    }
    received
}

#[tokio::test]
async fn pipelined_streams_are_served_one_after_another() {
    let (streams, stop) = (Streams::new(), CancellationToken::new());
    let (mut client, socket) = duplex(1 << 16);
    let asking = async move {
        let end = format!("{PIECES}0\r\n\r\n");
        for ahead in [1, 2, 3] {
            let requests = ASK.repeat(ahead);
            client.write_all(requests.as_bytes()).await.expect("sent");
            let received = read_until(&mut client, &end, ahead).await;
            assert_eq!(received.matches("HTTP/1.1 200 OK\r\n").count(), ahead);
            assert_eq!(
                received.matches("transfer-encoding: chunked").count(),
                ahead
            );
            assert!(received.ends_with(&end), "{received}");
        }
    };
    tokio::join!(streams.serve(&stop, socket), asking);
    assert_eq!(Arc::strong_count(&streams.work), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_mid_stream_ends_the_work() {
    let (streams, stop) = (Streams::new(), CancellationToken::new());
    let (mut client, socket) = duplex(1 << 16);
    let asking = async move {
        client.write_all(ASK_LONG.as_bytes()).await.expect("sent");
        read_until(&mut client, PIECES, 1).await;
    };
    tokio::join!(streams.serve(&stop, socket), asking);
    assert_eq!(Arc::strong_count(&streams.work), 1);
}

#[tokio::test]
async fn a_stopping_server_finishes_the_stream_and_closes_the_connection() {
    let (streams, stop) = (Streams::new(), CancellationToken::new());
    let (mut client, socket) = duplex(1 << 16);
    let stopping = stop.clone();
    let asking = async move {
        client.write_all(ASK.as_bytes()).await.expect("sent");
        stopping.cancel();
        let mut received = String::new();
        client.read_to_string(&mut received).await.expect("an end");
        assert!(
            received.ends_with(&format!("{PIECES}0\r\n\r\n")),
            "{received}"
        );
    };
    tokio::join!(streams.serve(&stop, socket), asking);
}
