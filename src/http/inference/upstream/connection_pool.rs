//! Kept connections to engines. Each is moved by the request that uses it, in that request's own task: no
//! other task has to be woken for a byte to pass. It knows HTTP/1.1 and nothing of models or of retrying.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;

use engine::{Endpoint, Stream, connect};
use pool::ReplicaId;

/// Idle connections that are kept to one engine.
const IDLE_PER_ENGINE_MAX: usize = 256;
/// Servers close idle connections by themselves; few wait longer than this.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How often idle connections are checked: engines that are gone have closed theirs.
const LOOK_EVERY: Duration = Duration::from_secs(5);

type Connection = http1::Connection<TokioIo<Stream>, Full<Bytes>>;

/// One connection; dropped, it is closed, and an engine that still answers on it sees its client leave.
pub(crate) struct EngineConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    connection: Option<Box<Connection>>,
    /// It has carried an answer before.
    pub answered: bool,
    /// The empty map of the last answer's head, which is the next request's.
    headers: HeaderMap,
}

impl EngineConnection {
    async fn open(endpoint: &Endpoint) -> Result<EngineConnection, SendError> {
        let stream = connect(endpoint).await.map_err(SendError::Connect)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(SendError::Http)?;
        Ok(EngineConnection {
            sender,
            connection: Some(Box::new(connection)),
            answered: false,
            headers: HeaderMap::new(),
        })
    }

    /// A map for the head of a request.
    pub fn head_map(&mut self) -> HeaderMap {
        std::mem::take(&mut self.headers)
    }

    /// Moves what there is to move.
    fn poll_move(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(&mut **connection).poll(context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether it can carry another request, as far as is known here.
    fn is_open(&mut self) -> bool {
        self.poll_move(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && !self.sender.is_closed()
    }

    /// Sends a request whose URI is the path, and which has its `host`.
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<hyper::body::Incoming>, SendError> {
        let ready = poll_fn(|context| {
            self.poll_move(context);
            self.sender.poll_ready(context)
        });
        // Nothing has been sent yet.
        ready.await.map_err(|_| SendError::Unsent)?;
        let mut answer = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        let answer = poll_fn(|context| {
            if let Some(moving) = connection
                && Pin::new(&mut **moving).poll(context).is_ready()
            {
                *connection = None;
            }
            answer.as_mut().poll(context)
        });
        match answer.await {
            Ok(answer) => {
                self.answered = true;
                Ok(answer)
            }
            Err(unsent) if unsent.message().is_some() => Err(SendError::Unsent),
            Err(error) => Err(SendError::Http(error.into_error())),
        }
    }
}

/// Why there is no head of an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("no connection: {0}")]
    Connect(#[source] std::io::Error),
    #[error("the connection was closed before the request was sent")]
    Unsent,
    #[error("{0}")]
    Http(#[source] hyper::Error),
}

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
/// connection to the next request; dropped before, it closes it.
pub(crate) struct Incoming {
    body: hyper::body::Incoming,
    wire: Option<EngineConnection>,
    replica: ReplicaId,
    wires: Arc<ConnectionPool>,
}

impl Incoming {
    pub fn new(
        body: hyper::body::Incoming,
        wire: EngineConnection,
        replica: ReplicaId,
        wires: &Arc<ConnectionPool>,
    ) -> Incoming {
        let wires = Arc::clone(wires);
        Incoming {
            body,
            wire: Some(wire),
            replica,
            wires,
        }
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
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if let Some(wire) = &mut this.wire {
            wire.poll_move(context);
        }
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(None) = &frame
            && let Some(wire) = this.wire.take()
            && wire.connection.is_some()
        {
            this.wires.put(this.replica, wire);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
