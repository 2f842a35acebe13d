//! Kept connections to engines. Each is moved by the request that uses it, in that request's own task: no
//! other task has to be woken for a byte to pass. It knows HTTP/1.1 and nothing of models or of retrying.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use bytes::BytesMut;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Response};

use crate::inference::upstream::engine_connection::{EngineConnection, SendError};
use crate::inference::upstream::framing::Framing;
use crate::inference::upstream::response_head::ResponseHead;
use engine::Endpoint;
use pool::ReplicaId;

/// Idle connections that are kept to one engine.
const IDLE_PER_ENGINE_MAX: usize = 256;
/// Servers close idle connections by themselves; few wait longer than this.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How often idle connections are checked: engines that are gone have closed theirs.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Room for pieces of an answer is made in multiples of this, which is enough for most tokens, and kept up to so much while the
/// engine is silent.
const ROOM_BYTES: usize = 512;
const ROOM_KEPT_BYTES: usize = 2 << 10;

/// The idle connections.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_replica: BTreeMap<ReplicaId, Vec<(Instant, EngineConnection)>>,
    looked: Option<Instant>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wires")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "sockets age in real time, and nothing is decided by it"
)]
fn now() -> Instant {
    Instant::now()
}

impl ConnectionPool {
    /// The one that was used last, or a new one.
    pub async fn take(
        &self,
        replica: ReplicaId,
        endpoint: &Endpoint,
    ) -> Result<EngineConnection, SendError> {
        while let Some(mut wire) = self.pop(replica) {
            if wire.is_open() {
                return Ok(wire);
            }
        }
        // Boxed, because it is rare, and large within each request's future.
        Box::pin(EngineConnection::open(endpoint)).await
    }

    fn pop(&self, replica: ReplicaId) -> Option<EngineConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let wires = idle.by_replica.get_mut(&replica)?;
        wires.pop().map(|(_, wire)| wire)
    }

    fn put(&self, replica: ReplicaId, wire: EngineConnection) {
        let now = now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let wires = idle.by_replica.entry(replica).or_default();
        if wires.len() < IDLE_PER_ENGINE_MAX {
            wires.push((now, wire));
        }
        if idle.looked.is_none_or(|at| now - at > LOOK_EVERY) {
            idle.looked = Some(now);
            idle.by_replica.retain(|_, wires| {
                wires.retain_mut(|(since, wire)| now - *since < IDLE_FOR && wire.is_open());
                !wires.is_empty()
            });
        }
    }
}

/// The body of an engine's answer, with the connection that it comes by. Read to its end, it leaves the
/// connection to the next request; dropped before, it closes it. What comes at once is one piece.
pub(crate) struct Incoming {
    /// `None` at the end.
    wire: Option<EngineConnection>,
    framing: Framing,
    /// What the next piece is made in. Once the last one is gone, it takes its place.
    pieces: BytesMut,
    /// How much was made room for.
    room: usize,
    replica: ReplicaId,
    wires: Arc<ConnectionPool>,
}

impl Incoming {
    pub fn of(
        answer: ResponseHead,
        wire: EngineConnection,
        replica: ReplicaId,
        wires: &Arc<ConnectionPool>,
    ) -> Response<Incoming> {
        let mut response = Response::new(Incoming {
            wire: Some(wire),
            framing: answer.framing,
            pieces: BytesMut::new(),
            room: 0,
            replica,
            wires: Arc::clone(wires),
        });
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }

    /// Reads and decodes once: whether more may come.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Incoming {
            wire,
            framing,
            pieces,
            room,
            ..
        } = self;
        let Some(wire) = wire else {
            return Poll::Ready(Ok(false));
        };
        let mut decode = |bytes: &[u8]| {
            let needed = bytes.len().next_multiple_of(ROOM_BYTES);
            *room = needed.max(*room);
            pieces.reserve(needed);
            framing
                .decode(bytes, pieces)
                .map(|used| (bytes.len(), used))
        };
        let decoded = match std::mem::take(&mut wire.early) {
            early if early.is_empty() => ready!(wire.poll_read(context, decode))?,
            early => decode(&early),
        };
        let (count, used) =
            decoded.map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
        if count == 0 {
            return Poll::Ready(match framing {
                Framing::UntilClose => Ok(false),
                Framing::Length(_) | Framing::Chunked(_) => {
                    Err(io::ErrorKind::UnexpectedEof.into())
                }
            });
        }
        // Nothing was requested that the rest could be an answer to.
        wire.keeps &= used == count;
        Poll::Ready(Ok(true))
    }

    /// The head of the answer has been read: its map is kept with the connection.
    pub fn reuse(&mut self, mut headers: HeaderMap) {
        headers.clear();
        if let Some(wire) = &mut self.wire {
            wire.headers = headers;
        }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            if this.framing.is_over() {
                if let Some(wire) = this.wire.take()
                    && wire.keeps
                {
                    this.wires.put(this.replica, wire);
                }
                return Poll::Ready(None);
            }
            match this.poll_piece(context) {
                Poll::Ready(Ok(true)) if this.pieces.is_empty() => {}
                Poll::Ready(Ok(true)) => {
                    let piece = this.pieces.split().freeze();
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Poll::Ready(Ok(false)) => {
                    this.wire = None;
                    return Poll::Ready(None);
                }
                Poll::Ready(Err(error)) => {
                    this.wire = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Pending => {
                    // A stream that is silent for long has no memory for much.
                    if this.room > ROOM_KEPT_BYTES {
                        this.pieces = BytesMut::new();
                        this.room = 0;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.wire.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::UntilClose => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    const REPLICA: ReplicaId = ReplicaId(1);

    /// Answers the requests of one connection with these, and closes it.
    fn engine(answers: &'static [&'static [&'static str]]) -> (Endpoint, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            for pieces in answers {
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
        let mut wire = pool.take(REPLICA, endpoint).await?;
        let request = Request::post("/v1/x").header("host", "localhost");
        let request = request.body(Bytes::from_static(b"ask")).expect("a request");
        let answer = wire.send(request).await?;
        Ok(Incoming::of(answer, wire, REPLICA, pool))
    }

    #[tokio::test]
    async fn a_connection_whose_answer_was_read_serves_the_next_request() {
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
            let answer = ask(&pool, &endpoint).await.expect("an answer");
            assert_eq!(answer.status(), status);
            let body = answer.into_body().collect().await.expect("all of it");
            assert_eq!(body.to_bytes(), text);
        }
        let idle = pool.idle.lock().expect("not poisoned");
        assert!(idle.by_replica.values().all(Vec::is_empty));
        serving.join().expect("one connection was enough");
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error_after_what_came() {
        let (endpoint, _serving) =
            engine(&[&["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"]]);
        let pool = Arc::new(ConnectionPool::default());
        let answer = ask(&pool, &endpoint).await.expect("an answer");
        let mut body = answer.into_body();
        let mut received = Vec::new();
        let error = loop {
            match body.frame().await.expect("no end") {
                Ok(frame) => received.extend_from_slice(frame.data_ref().expect("data")),
                Err(error) => break error,
            }
        };
        assert_eq!(received, b"hello");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_before_the_answer_may_be_tried_again() {
        let (endpoint, _serving) = engine(&[&[]]);
        let pool = Arc::new(ConnectionPool::default());
        let error = ask(&pool, &endpoint).await.err().expect("no answer");
        assert!(error.is_without_answer(), "{error}");
    }

    #[tokio::test]
    async fn one_that_is_closed_within_the_head_of_an_answer_is_not_tried_again() {
        let (endpoint, _serving) = engine(&[
            &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"],
            &["HTTP/1.1 200 OK\r\ncontent-le"],
        ]);
        let pool = Arc::new(ConnectionPool::default());
        let answer = ask(&pool, &endpoint).await.expect("an answer");
        answer.into_body().collect().await.expect("all of it");
        let error = ask(&pool, &endpoint).await.err().expect("no answer");
        assert!(!error.is_without_answer(), "{error}");
    }

    #[tokio::test]
    async fn the_rest_of_a_request_is_sent_to_an_engine_that_answers_before_it_has_all() {
        /// More than the sockets take.
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
        let mut wire = pool.take(REPLICA, &endpoint).await.expect("a connection");
        let request = Request::post("/v1/x").body(Bytes::from(vec![b'x'; BYTES]));
        let answer = wire.send(request.expect("a request")).await;
        let answer = Incoming::of(answer.expect("an answer"), wire, REPLICA, &pool);
        let body = answer.into_body().collect().await.expect("all of it");
        assert_eq!(body.to_bytes(), "ok");
        serving.join().expect("all of the request");
    }

    #[tokio::test]
    async fn one_piece_of_memory_serves_all_pieces_of_a_stream() {
        let (endpoint, _serving) = engine(&[&[
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "1\r\na\r\n",
            "1\r\nb\r\n",
            "0\r\n\r\n",
        ]]);
        let pool = Arc::new(ConnectionPool::default());
        let answer = ask(&pool, &endpoint).await.expect("an answer");
        let mut body = answer.into_body();
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.expect("a piece");
            received.extend_from_slice(frame.data_ref().expect("data"));
            assert_eq!(body.room, ROOM_BYTES);
        }
        assert_eq!(received, b"ab");
    }
}
