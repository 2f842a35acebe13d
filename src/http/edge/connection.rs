//! One connection, from the handshake to its end: HTTP/1.1 or HTTP/2, whichever the client speaks, within
//! bounds, cut when it only costs. What is answered on it is not decided here.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::Edge;
use super::connection_watch::{ConnectionWatch, Turn, Verdict};
use super::counted_stream::CountedStream;
use super::exchange::Sent;
use super::seats::ConnectionPermit;
use crate::seldom::seldom;
use controller::Clock;

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// All of a request's head, and over HTTP/2 the list of its headers.
const HEAD_BYTES_MAX: u32 = 64 << 10;
const HEADERS_MAX: usize = 100;
/// Requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 256;
/// Streams that were opened and reset before they were looked at; more is an attack.
const RESETS_PENDING_MAX: usize = 20;
/// Streams that were reset for the client's own errors; more is an attack.
const RESETS_OF_ERRORS_MAX: usize = 256;
/// What a client may send before it is asked for, of one body and of all on a connection: as much as the head of a
/// request of HTTP/1.1, so that a connection costs no more memory than that, whatever it speaks. HTTP/2 has no smaller
/// window for a connection.
const STREAM_WINDOW: u32 = CONNECTION_WINDOW;
const CONNECTION_WINDOW: u32 = 65_535;
/// A connection of HTTP/2 is asked whether it lives, and given so long to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// How long a new connection may take to send its first request once the server stops.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_millis(500);
/// How often a connection that was asked to end is looked at.
const ENDING_LOOK: Duration = Duration::from_millis(500);

/// What answers the requests of a connection. Cheap to clone.
pub trait Answer: Clone + Send + Sync + 'static {
    fn edge(&self) -> &Arc<Edge>;
    fn clock(&self) -> Clock;
    fn answer(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
        turn: Turn,
    ) -> impl Future<Output = Response<Sent>> + Send;
}

/// Serves one accepted socket. `_seat` is given back at its end.
pub async fn serve(
    socket: TcpStream,
    peer: SocketAddr,
    front: impl Answer,
    _seat: ConnectionPermit,
    stop: CancellationToken,
) {
    let edge = Arc::clone(front.edge());
    let watch = Arc::new(ConnectionWatch::new(front.clock(), edge.patience));
    let builder = builder();
    let Some(tls) = &edge.tls else {
        return run(builder, socket, peer, front, watch, stop).await;
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
    // What was agreed on is spoken; a client that agreed on nothing is looked at.
    let builder = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => {
            watch.speaks_h2();
            builder.http2_only()
        }
        Some(_) => builder.http1_only(),
        None => builder,
    };
    run(builder, stream, peer, front, watch, stop).await;
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // How long a head may take is watched from outside, where an idle connection is not taken for one
    // that sends its head.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
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

async fn run<S, F>(
    builder: Builder<TokioExecutor>,
    stream: S,
    peer: SocketAddr,
    front: F,
    watch: Arc<ConnectionWatch>,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Answer,
{
    let begun = CancellationToken::new();
    let begins = begun.clone();
    let of_requests = Arc::clone(&watch);
    let service = tower::service_fn(move |request: Request<Incoming>| {
        begins.cancel();
        let turn = Turn::begin(&of_requests, request.version());
        let answer = front.clone().answer(request, peer, turn);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let wire = TokioIo::new(CountedStream::new(stream, Arc::clone(&watch)));
    let serving = builder.serve_connection_with_upgrades(wire, TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    // Of a connection that was accepted a moment ago the first request is on its way: hyper would close
    // it unread.
    let stopping = seldom(async {
        stop.cancelled().await;
        tokio::select! {
            () = begun.cancelled() => {}
            () = tokio::time::sleep(FIRST_REQUEST_WITHIN) => {}
        }
    });
    let mut stopping = std::pin::pin!(stopping);
    let mut is_ending = false;
    let mut next = Duration::from_millis(1);
    loop {
        tokio::select! {
            biased;
            _ = serving.as_mut() => return,
            never = poll_fn(|context| {
                watch.moving.move_on(context);
                Poll::<Infallible>::Pending
            }) => match never {},
            () = stopping.as_mut(), if !is_ending => {
                serving.as_mut().graceful_shutdown();
                is_ending = true;
            }
            () = tokio::time::sleep(next) => match watch.verdict() {
                Verdict::Fine(wait) => next = wait,
                Verdict::Idle => {
                    if !std::mem::replace(&mut is_ending, true) {
                        serving.as_mut().graceful_shutdown();
                    }
                    next = ENDING_LOOK;
                }
                Verdict::Stuck => return tracing::debug!(%peer, "a connection that only waited was cut"),
            },
        }
    }
}
