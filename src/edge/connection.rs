//! Accepts connections and runs each from the handshake to its end, in HTTP/1.1 or HTTP/2, within limits. Closes connections that
//! stall.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Edge;
use super::connection_watch::{ConnectionWatch, Turn, Verdict};
use super::counted_stream::{CountedStream, Stage};
use super::exchange::Sent;
use super::handover::{self, Handover, Outgoing, Streaming};
use super::refusing::HEAD_BYTES_MAX;
use super::seats::ConnectionPermit;
use super::tls::LOOK_EVERY;
use crate::listener::{Listener, Socket};
use crate::quiet::quiet;
use crate::seldom::seldom;
use controller::Clock;

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Largest number of simultaneous requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Largest number of pending streams reset by the client. More is an attack.
const RESETS_PENDING_MAX: usize = 20;
/// Largest number of streams reset because of client errors. More is an attack.
const RESETS_OF_ERRORS_MAX: usize = 256;
/// Bytes that a client may send before they are read, per body and per connection. Equal to the largest request head of HTTP/1.1,
/// so a connection costs no more memory in HTTP/2. This is the smallest connection window of HTTP/2.
const STREAM_WINDOW: u32 = CONNECTION_WINDOW;
const CONNECTION_WINDOW: u32 = 65_535;
/// Interval and timeout of HTTP/2 pings.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// Time for a new connection to send its first request after the server has begun to stop.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_millis(500);
/// Interval between checks of a connection that is shutting down.
const ENDING_LOOK: Duration = Duration::from_millis(500);

/// The service that answers the requests of a connection. Cheap to clone.
pub trait ConnectionService: Clone + Send + Sync + 'static {
    fn edge(&self) -> &Arc<Edge>;
    fn clock(&self) -> Clock;
    fn respond(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
        turn: Turn,
    ) -> impl Future<Output = Response<Sent>> + Send;
}

/// Accepts and serves connections until `stop` fires, then lets open connections finish their requests. The caller may drop the
/// future to end this earlier.
pub async fn accept(listener: Listener, front: impl ConnectionService, stop: CancellationToken) {
    let edge = Arc::clone(front.edge());
    let mut connections = JoinSet::new();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = looks.tick(), if edge.has_tls() => {
                let edge = Arc::clone(&edge);
                let _ = tokio::task::spawn_blocking(move || edge.look_again()).await;
                continue;
            }
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of file descriptors: other connections must end first.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if let Some((socket, permit)) = edge.admit(socket, peer) {
            let connection = serve(socket, peer, front.clone(), permit, stop.clone());
            connections.spawn(quiet(connection));
        }
    }
    // Closes the listener: unless another process shares it, new clients are refused immediately instead of waiting.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one accepted socket. `_seat` is released at the end.
async fn serve(
    socket: Socket,
    peer: SocketAddr,
    front: impl ConnectionService,
    _seat: ConnectionPermit,
    stop: CancellationToken,
) {
    let edge = Arc::clone(front.edge());
    let watch = Arc::new(ConnectionWatch::new(front.clock(), edge.patience));
    let Some(tls) = &edge.tls else {
        return run(None, socket, peer, front, watch, stop).await;
    };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE_WITHIN, tls.acceptor.accept(socket)) => shaken,
        () = stop.cancelled() => return,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "no TLS handshake"),
        Err(_) => return tracing::debug!(%peer, "the TLS handshake took too long"),
    };
    // Uses the negotiated protocol; without one, the first bytes decide.
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => {
            watch.speaks_h2();
            Some(Protocol::Http2)
        }
        Some(_) => Some(Protocol::Http1),
        None => None,
    };
    run(protocol, stream, peer, front, watch, stop).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Head timeouts are enforced by `ConnectionWatch`, which distinguishes an idle connection from a slow head. hyper's default
    // limit of 100 headers applies; setting a limit explicitly would make it fill a list of that length twice per request.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None::<Duration>)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_OF_ERRORS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    builder
}

/// An operation on a connection.
enum Step<'a, 'b> {
    /// Makes progress; ready when the connection has ended.
    Move(&'a mut Context<'b>),
    /// Shuts down after the requests in progress.
    End,
}

async fn run<S, F>(
    protocol: Option<Protocol>,
    stream: S,
    peer: SocketAddr,
    front: F,
    watch: Arc<ConnectionWatch>,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: ConnectionService,
{
    let begun = CancellationToken::new();
    let carrier = carrier(protocol, stream, peer, front, &watch, &begun);
    // The first request of a newly accepted connection is on its way; hyper would close the connection without reading it.
    let stopping = seldom(async {
        stop.cancelled().await;
        tokio::select! {
            () = begun.cancelled() => {}
            () = tokio::time::sleep(FIRST_REQUEST_WITHIN) => {}
        }
    });
    supervised(carrier, stopping, peer, &watch).await;
}

/// Drives a connection until it ends or times out.
async fn supervised(
    mut carrier: impl FnMut(Step<'_, '_>) -> Poll<()>,
    stopping: impl Future<Output = ()>,
    peer: SocketAddr,
    watch: &ConnectionWatch,
) {
    let mut stopping = std::pin::pin!(stopping);
    let mut is_ending = false;
    let mut next = Duration::from_millis(1);
    loop {
        tokio::select! {
            biased;
            () = poll_fn(|context| {
                if carrier(Step::Move(context)).is_ready() {
                    return Poll::Ready(());
                }
                watch.moving.move_on(context);
                Poll::Pending
            }) => return,
            () = stopping.as_mut(), if !is_ending => {
                let _ = carrier(Step::End);
                is_ending = true;
            }
            () = tokio::time::sleep(next) => match watch.verdict() {
                Verdict::Fine(wait) => next = wait,
                Verdict::Idle => {
                    if !std::mem::replace(&mut is_ending, true) {
                        let _ = carrier(Step::End);
                    }
                    next = ENDING_LOOK;
                }
                Verdict::Stuck => return tracing::debug!(%peer, "closed a stalled connection"),
            },
        }
    }
}

/// The state machine of a connection: hyper reads requests and sends responses. In HTTP/1.1, streams are taken over once their head
/// is sent, until their end. Parts that are large and short-lived are boxed.
fn carrier<S, F>(
    protocol: Option<Protocol>,
    stream: S,
    peer: SocketAddr,
    front: F,
    watch: &Arc<ConnectionWatch>,
    begun: &CancellationToken,
) -> Box<impl FnMut(Step<'_, '_>) -> Poll<()> + use<S, F>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: ConnectionService,
{
    let stage = Arc::new(Stage::default());
    let handover = Arc::new(Handover::new(&stage));
    let (of_requests, begins, offers) = (Arc::clone(watch), begun.clone(), Arc::clone(&handover));
    let service = service_fn(move |request: Request<Incoming>| {
        begins.cancel();
        let turn = Turn::begin(&of_requests, request.version());
        let is_simple = handover::is_simple(&request);
        let offers = Arc::clone(&offers);
        let reply = front.clone().respond(request, peer, turn);
        async move {
            let response = reply.await;
            Ok::<_, Infallible>(if is_simple {
                offers.outgoing(response)
            } else {
                response.map(Outgoing::new)
            })
        }
    });
    let (of_http1, builder) = (service.clone(), http1_builder());
    let serve = move |wire: CountedStream<S>| {
        let io = TokioIo::new(wire);
        let serving = builder.serve_connection(io, of_http1.clone());
        Box::new(serving.with_upgrades())
    };
    let serve_h2 = move |mut wire: CountedStream<S>| {
        wire.bound_frames();
        let io = TokioIo::new(wire);
        Box::pin(http2_builder().serve_connection(io, service.clone()))
    };
    let wire = CountedStream::new(stream, Arc::clone(watch), stage);
    let (mut opening, mut http1, mut http2) = match protocol {
        None => (Some(Box::new(wire)), None, None),
        Some(Protocol::Http1) => (None, Some(serve(wire)), None),
        Some(Protocol::Http2) => (None, None, Some(serve_h2(wire))),
    };
    let mut streaming: Option<Box<Streaming<S, Sent>>> = None;
    let mut closing: Option<Box<CountedStream<S>>> = None;
    let mut is_ending = false;
    Box::new(move |step: Step<'_, '_>| -> Poll<()> {
        let context = match step {
            Step::Move(context) => context,
            Step::End => {
                is_ending = true;
                opening = None;
                if let Some(serving) = &mut http1 {
                    Pin::new(&mut **serving).graceful_shutdown();
                }
                if let Some(serving) = &mut http2 {
                    serving.as_mut().graceful_shutdown();
                }
                return Poll::Pending;
            }
        };
        loop {
            if let Some(wire) = &mut opening {
                let Ok(is_h2) = ready!(wire.poll_is_h2(context)) else {
                    return Poll::Ready(());
                };
                if is_h2 {
                    http2 = opening.take().map(|stream| serve_h2(*stream))
                } else {
                    http1 = opening.take().map(|stream| serve(*stream))
                }
            }
            if let Some(serving) = &mut http2 {
                return serving.as_mut().poll(context).map(drop);
            }
            if let Some(wire) = &mut closing {
                return Pin::new(&mut **wire).poll_shutdown(context).map(drop);
            }
            if let Some(stream) = &mut streaming {
                if ready!(stream.poll(context)).is_err() {
                    return Poll::Ready(());
                }
                let wire = streaming.take().map(|stream| stream.into_wire());
                if is_ending {
                    closing = wire.map(Box::new)
                } else {
                    http1 = wire.map(&serve)
                }
                continue;
            }
            let Some(serving) = &mut http1 else {
                return Poll::Ready(());
            };
            if Pin::new(&mut **serving).poll(context).is_ready() {
                return Poll::Ready(());
            }
            let Some(body) = handover.take() else {
                return Poll::Pending;
            };
            let parts = http1
                .take()
                .and_then(|connection| (*connection).into_parts());
            streaming = parts.map(|parts| {
                let wire = parts.io.into_inner();
                Box::new(Streaming::new(wire, &parts.read_buf, body))
            });
        }
    })
}

#[cfg(test)]
#[path = "connection/tests.rs"]
mod tests;
