//! Sends requests to engines while the lease lives, with as little parsing as possible. Dropping either end closes the other. Idle
//! HTTP/1.1 connections are kept. Each connection is driven by the task of the request that uses it, so no other task has to be
//! woken to pass a byte.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use bytes::BytesMut;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Method, Request, Response, Uri, header};

use crate::upstream::engine_connection::{EngineConnection, SendError};
use crate::upstream::framing::{BadChunk, Framing};
use crate::upstream::remote;
use crate::upstream::response_head::ResponseHead;
use crate::upstream::stream_support::StreamSupport;
use controller::Lease;
use edge::header_text::header_text;
use edge::record;
use engine::Endpoint;
use pool::ReplicaId;

/// Largest number of idle connections per engine.
const IDLE_PER_ENGINE_MAX: usize = 256;
/// Idle time after which a connection is closed. Few servers keep one longer.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// Interval between checks for connections closed by the engine.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Unit of the receive buffer, enough for most tokens; and the capacity kept while the engine is silent.
const ROOM_BYTES: usize = 512;
const ROOM_KEPT_BYTES: usize = 2 << 10;

/// Two idle connections may have been closed at the same time; three failures in a row are deliberate.
const TRIES_MAX: u32 = 3;
/// The most frequent routes, whose URIs need no allocation.
const USUAL: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"];

/// The client side of all engines: a connection pool keyed by replica.
#[derive(Debug, Default)]
pub struct Upstream {
    wires: Arc<ConnectionPool>,
    /// Engines known to refuse streams.
    pub(crate) support: StreamSupport,
}

impl Upstream {
    /// Sends one request to the lease's engine. `kind` is its `content-type`. Errors cover connecting and the response head.
    ///
    /// If a reused connection ends without a response, the engine closed it while the request was on its way, as llama-server does
    /// after each stream; the request is sent again on another connection. On a new connection, the request may have reached the
    /// engine, so the failure is reported. Requests to remote endpoints, which may bill them, are never sent twice.
    pub(crate) async fn send(
        &self,
        lease: &Lease,
        method: Method,
        path: &str,
        (kind, body): (&header::HeaderValue, Bytes),
    ) -> Result<Response<Incoming>, SendError> {
        let replica = lease.replica();
        let remote = remote::of_lease(lease);
        let there = remote.map(|remote| remote.path(path));
        let uri = uri_of(there.as_deref().unwrap_or(path));
        let context = record::trace(|trace| trace.attempt(path, replica.0));
        let mut tries = 0;
        loop {
            let route = (replica, lease.takeovers());
            let mut wire = self.wires.take(route, lease.endpoint()).await?;
            let mut headers = wire.head_map();
            headers.insert(header::CONTENT_TYPE, kind.clone());
            if !body.is_empty() {
                headers.insert(header::CONTENT_LENGTH, header_text(body.len()));
            }
            match remote {
                Some(remote) => headers.extend(remote.headers()),
                None => {
                    let host = header::HeaderValue::from_static("localhost");
                    headers.insert(header::HOST, host);
                    if let Some(context) = &context {
                        context.write(&mut headers);
                    }
                }
            }
            let mut request = Request::new(body.clone());
            request.uri_mut().clone_from(&uri);
            request.method_mut().clone_from(&method);
            *request.headers_mut() = headers;
            tries += 1;
            let responded_before = wire.responded;
            match wire.send(request).await {
                Ok(response) => return Ok(Incoming::new(response, wire, route, &self.wires)),
                // The request has not reached the engine.
                Err(SendError::Unsent) if tries < TRIES_MAX => {}
                Err(error)
                    if tries < TRIES_MAX
                        && remote.is_none()
                        && responded_before
                        && error.is_without_response() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn uri_of(path: &str) -> Uri {
    match USUAL.into_iter().find(|usual| *usual == path) {
        Some(usual) => Uri::from_static(usual),
        None => {
            let uri = Uri::builder().path_and_query(path).build();
            uri.expect("a route makes a URI")
        }
    }
}

/// The way to an engine: its replica, and the number of takeovers of its node's listener.
type Route = (ReplicaId, u64);

/// The idle connections, by route.
#[derive(Default)]
struct ConnectionPool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_route: BTreeMap<Route, Vec<(Instant, EngineConnection)>>,
    looked: Option<Instant>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionPool")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "sockets age in real time; no decision depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

impl ConnectionPool {
    /// Returns the most recently used idle connection, or opens a new one.
    async fn take(&self, route: Route, endpoint: &Endpoint) -> Result<EngineConnection, SendError> {
        while let Some(mut wire) = self.pop(route) {
            if wire.is_open() {
                return Ok(wire);
            }
        }
        // Boxed because it is rare, and large within each request's future.
        Box::pin(EngineConnection::open(endpoint)).await
    }

    fn pop(&self, route: Route) -> Option<EngineConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let before = (route.0, 0)..route;
        let oldest = |idle: &Idle| Some(*idle.by_route.range(before.clone()).next()?.0);
        while let Some(old) = oldest(&idle) {
            idle.by_route.remove(&old);
        }
        let wires = idle.by_route.get_mut(&route)?;
        wires.pop().map(|(_, wire)| wire)
    }

    fn put(&self, route: Route, wire: EngineConnection) {
        let now = now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (replica, takeovers) = route;
        let later = (replica, takeovers + 1)..=(replica, u64::MAX);
        if idle.by_route.range(later).next().is_some() {
            return;
        }
        let wires = idle.by_route.entry(route).or_default();
        if wires.len() < IDLE_PER_ENGINE_MAX {
            wires.push((now, wire));
        }
        if idle.looked.is_none_or(|at| now - at > LOOK_EVERY) {
            idle.looked = Some(now);
            idle.by_route.retain(|_, wires| {
                wires.retain_mut(|(since, wire)| now - *since < IDLE_FOR && wire.is_open());
                !wires.is_empty()
            });
        }
    }
}

/// The body of an engine's response, with its connection. At its end, the connection returns to the pool; if dropped earlier, it is
/// closed. Data that arrives together is one piece.
pub struct Incoming {
    /// `None` at the end.
    wire: Option<EngineConnection>,
    framing: Framing,
    /// A framing error found after the current piece; returned after it.
    broken: Option<BadChunk>,
    /// Buffer of the next piece. Reuses its memory once the previous piece is dropped.
    pieces: BytesMut,
    /// The largest reservation in `pieces`.
    room: usize,
    route: Route,
    wires: Arc<ConnectionPool>,
}

impl Incoming {
    fn new(
        reply: ResponseHead,
        wire: EngineConnection,
        route: Route,
        wires: &Arc<ConnectionPool>,
    ) -> Response<Incoming> {
        let mut response = Response::new(Incoming {
            wire: Some(wire),
            framing: reply.framing,
            broken: None,
            pieces: BytesMut::new(),
            room: 0,
            route,
            wires: Arc::clone(wires),
        });
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }

    /// Reads and decodes once. Returns false at the end of the connection.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Incoming {
            wire,
            framing,
            broken,
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
        let (count, used) = match decoded {
            Ok(decoded) => decoded,
            // The valid data before the error is returned first.
            Err(bad) => {
                *broken = Some(bad);
                return Poll::Ready(Ok(true));
            }
        };
        if count == 0 {
            return Poll::Ready(match framing {
                Framing::UntilClose => Ok(false),
                Framing::Length(_) | Framing::Chunked(_) => {
                    Err(io::ErrorKind::UnexpectedEof.into())
                }
            });
        }
        // Bytes after the response belong to no request, so the connection is not reused.
        wire.keeps &= used == count;
        Poll::Ready(Ok(true))
    }

    /// Returns the header map of the response, to be reused with the connection.
    pub(crate) fn reuse(&mut self, mut headers: HeaderMap) {
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
            if let Some(bad) = this.broken.take() {
                this.wire = None;
                let error = io::Error::new(io::ErrorKind::InvalidData, bad);
                return Poll::Ready(Some(Err(error)));
            }
            if this.framing.is_over() {
                if let Some(wire) = this.wire.take()
                    && wire.keeps
                {
                    this.wires.put(this.route, wire);
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
                    // Releases the memory of a stream that has become silent.
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
mod tests;
