//! Bytes between a client and an engine, while a lease lives. Nothing is parsed that need not be, and
//! dropping either end ends the other.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Method, Request, Response, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{
    CaptureConnection, Connected, Connection, capture_connection,
};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::remote;
use crate::controller::Lease;
use crate::controller::{Endpoint, Stream, connect};

/// Idle connections that are kept to one engine.
const IDLE_PER_ENGINE_MAX: usize = 64;

/// The client side towards all engines: one pool of connections, keyed by replica.
#[derive(Debug)]
pub struct Upstream {
    client: Client<Connector, Full<Bytes>>,
    endpoints: Endpoints,
}

type Endpoints = Arc<Mutex<BTreeMap<String, Endpoint>>>;

impl Default for Upstream {
    fn default() -> Upstream {
        let endpoints = Endpoints::default();
        let connector = Connector {
            endpoints: Arc::clone(&endpoints),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_PER_ENGINE_MAX)
            // A body that has begun to reach an engine is never sent twice.
            .retry_canceled_requests(true)
            .build(connector);
        Upstream { client, endpoints }
    }
}

impl Upstream {
    /// Sends one request to the lease's engine, with its `content-type`. Errors are those of connecting
    /// and of the head.
    ///
    /// An idle connection that ends without a word was closed by the engine while the request was on its
    /// way (llama-server does so after each streamed answer, whatever its headers say): the request goes
    /// out again on another. One that ends on a new connection has reached the engine and is told as
    /// failed; so is every one to an endpoint that somebody else runs, who may bill it.
    pub async fn send(
        &self,
        lease: &Lease,
        method: Method,
        path: &str,
        (kind, body): (&header::HeaderValue, Bytes),
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let host = lease.replica().to_string();
        {
            let mut endpoints = self
                .endpoints
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if !endpoints.contains_key(&host) {
                // Replica ids are never reused; those of long ago need not be remembered.
                while endpoints.len() >= ENDPOINTS_MAX {
                    endpoints.pop_first();
                }
                endpoints.insert(host.clone(), lease.endpoint().clone());
            }
        }
        let remote = remote::of(lease);
        let there = remote.map(|remote| remote.path(path));
        let uri = Uri::builder()
            .scheme("http")
            .authority(host)
            .path_and_query(there.as_deref().unwrap_or(path))
            .build();
        let uri = uri.expect("a replica's name and a route make a URI");
        let mut tries = 0;
        loop {
            let mut request = Request::new(Full::new(body.clone()));
            request.uri_mut().clone_from(&uri);
            request.method_mut().clone_from(&method);
            let headers = request.headers_mut();
            headers.insert(header::CONTENT_TYPE, kind.clone());
            if let Some(remote) = remote {
                request.headers_mut().extend(remote.headers());
            }
            tries += 1;
            let connection = capture_connection(&mut request);
            let answer = self.client.request(request).await;
            let answered_before = note_use(&connection, answer.is_ok());
            match answer {
                Err(error)
                    if tries < TRIES_MAX
                        && remote.is_none()
                        && answered_before
                        && ended_without_a_word(&error) => {}
                answer => return answer,
            }
        }
    }
}

const ENDPOINTS_MAX: usize = 4096;
/// Two idle connections may have been closed in the same moment; three in a row are the engine's will.
const TRIES_MAX: u32 = 3;

/// Whether a connection has carried an answer.
#[derive(Clone, Debug, Default)]
struct Answered(Arc<AtomicBool>);

/// Whether the connection had carried an answer before this one, which is noted.
fn note_use(connection: &CaptureConnection, now: bool) -> bool {
    let mut extras = hyper::http::Extensions::new();
    if let Some(connected) = connection.connection_metadata().as_ref() {
        connected.get_extras(&mut extras);
    }
    extras.get::<Answered>().is_some_and(|it| match now {
        true => it.0.swap(true, Ordering::Relaxed),
        false => it.0.load(Ordering::Relaxed),
    })
}

fn ended_without_a_word(error: &hyper_util::client::legacy::Error) -> bool {
    if error.is_connect() {
        return false;
    }
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let hyper = cause.downcast_ref::<hyper::Error>();
        let closed = hyper.is_some_and(|it| it.is_incomplete_message() || it.is_closed());
        let io = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        let reset = matches!(
            io,
            Some(std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
        );
        if closed || reset {
            return true;
        }
        source = cause.source();
    }
    false
}

#[derive(Clone, Debug)]
struct Connector {
    endpoints: Endpoints,
}

impl tower::Service<Uri> for Connector {
    type Response = Wire;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Wire>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        let endpoint = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(host)
            .cloned();
        Box::pin(async move {
            let endpoint = endpoint.ok_or_else(|| std::io::Error::other("no such replica"))?;
            Ok(Wire {
                stream: TokioIo::new(connect(&endpoint).await?),
                answered: Answered::default(),
            })
        })
    }
}

/// A connection to an engine, TCP without Nagle's delay or a Unix socket.
struct Wire {
    stream: TokioIo<Stream>,
    answered: Answered,
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.answered.clone())
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
