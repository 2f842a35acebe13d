//! A single HTTP/1.1 connection to an engine: sends a request and reads the response head. Keeps no buffers while it waits. Pooling
//! and bodies are handled in `proxy`.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use axum::body::Bytes;
use axum::http::{HeaderMap, Request};
use bytes::BytesMut;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::upstream::response_head::{self, BadHead, ResponseHead};
use engine::{Endpoint, Stream, connect};

/// Size of a read. All connections of a thread share one buffer, so waiting connections hold none.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// A connection that closes when dropped. An engine that still responds on it sees its client disconnect.
pub(crate) struct EngineConnection {
    stream: Stream,
    /// Bytes received after the response head.
    pub early: BytesMut,
    /// The connection has carried a response before.
    pub responded: bool,
    /// The connection may carry another request.
    pub keeps: bool,
    /// The emptied header map of the last response, reused for the next request.
    pub headers: HeaderMap,
}

impl EngineConnection {
    pub async fn open(endpoint: &Endpoint) -> Result<EngineConnection, SendError> {
        let stream = connect(endpoint).await.map_err(SendError::Connect)?;
        Ok(EngineConnection {
            stream,
            early: BytesMut::new(),
            responded: false,
            keeps: true,
            headers: HeaderMap::new(),
        })
    }

    /// Takes the map for the request's headers.
    pub(crate) fn head_map(&mut self) -> HeaderMap {
        std::mem::take(&mut self.headers)
    }

    /// Returns true if the connection seems usable for another request: an idle engine sends nothing.
    pub(crate) fn is_open(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.keeps && self.early.is_empty() && self.poll_read(&mut context, |_| ()).is_pending()
    }

    /// Reads into the shared buffer and passes the bytes to `take`; an empty slice at the end.
    pub fn poll_read<T>(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let buffer = BUFFER.with(Cell::take);
        let mut buffer = buffer.unwrap_or_else(|| vec![0; READ_BYTES].into_boxed_slice());
        let mut read = ReadBuf::new(&mut buffer);
        let polled = Pin::new(&mut self.stream).poll_read(context, &mut read);
        let taken = polled.map_ok(|()| take(read.filled()));
        BUFFER.with(|shared| shared.set(Some(buffer)));
        taken
    }

    /// Sends a request whose URI is the path and which has a `host` header, and reads the response head.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<ResponseHead, SendError> {
        let (parts, body) = request.into_parts();
        let mut outgoing = Outgoing {
            head: response_head::of_request(&parts, body.len()),
            body,
            sent: 0,
        };
        let mut received = BytesMut::new();
        // The request head has been serialized, so its map can be reused for the response.
        let mut map = parts.headers;
        let response = poll_fn(|context| {
            self.poll_response(context, &mut outgoing, (&mut received, &mut map))
        });
        let response = response.await?;
        // A successful response may begin before the engine has read the complete request. Errors while sending the rest show up
        // when the body is read.
        if response.status.is_success() {
            let _ = poll_fn(|context| outgoing.poll_write(&mut self.stream, context)).await;
        }
        self.responded = true;
        self.keeps = response.keeps && outgoing.is_sent();
        self.early = received;
        Ok(response)
    }

    /// Writes and reads concurrently, because an engine may refuse a request before it is sent completely.
    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
        outgoing: &mut Outgoing,
        (received, map): (&mut BytesMut, &mut HeaderMap),
    ) -> Poll<Result<ResponseHead, SendError>> {
        let written = outgoing.poll_write(&mut self.stream, context);
        if let Poll::Ready(Err(_)) = &written
            && outgoing.sent == 0
        {
            return Poll::Ready(Err(SendError::Unsent));
        }
        let read = loop {
            match ResponseHead::take(received, map) {
                Ok(Some(response)) => return Poll::Ready(Ok(response)),
                Ok(None) => {}
                Err(bad) => return Poll::Ready(Err(SendError::Head(bad))),
            }
            let count = self.poll_read(context, |bytes| {
                received.extend_from_slice(bytes);
                bytes.len()
            });
            match count {
                // The response has begun, so the engine has worked on the request.
                Poll::Ready(Ok(0) | Err(_)) if !received.is_empty() => {
                    break Poll::Ready(SendError::BrokenOff);
                }
                Poll::Ready(Ok(0)) => break Poll::Ready(SendError::Closed),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(SendError::Broken(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        match (read, written) {
            (Poll::Ready(error), _) => Poll::Ready(Err(error)),
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(SendError::Broken(error))),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}

/// A request being sent.
struct Outgoing {
    head: Vec<u8>,
    body: Bytes,
    /// Bytes sent of head and body together.
    sent: usize,
}

impl Outgoing {
    fn is_sent(&self) -> bool {
        self.sent == self.head.len() + self.body.len()
    }

    fn poll_write(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_sent() {
            let head = self.head.get(self.sent..).unwrap_or_default();
            let body = &self.body[self.sent.saturating_sub(self.head.len())..];
            let slices = [IoSlice::new(head), IoSlice::new(body)];
            let written = Pin::new(&mut *stream).poll_write_vectored(context, &slices);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        Pin::new(stream).poll_flush(context)
    }
}

/// A failure to get a response head.
#[derive(Debug, Error)]
pub(crate) enum SendError {
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection was closed before the request was sent")]
    Unsent,
    #[error("the connection was closed before the response")]
    Closed,
    #[error("the connection failed before the response: {0}")]
    Broken(#[source] io::Error),
    #[error("the connection was closed within the response head")]
    BrokenOff,
    #[error("the response head is invalid: {0}")]
    Head(#[source] BadHead),
}

impl SendError {
    /// Returns true if the engine has probably not worked on the request.
    pub(crate) fn is_without_response(&self) -> bool {
        match self {
            SendError::Closed => true,
            SendError::Broken(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
            SendError::Connect(_)
            | SendError::Unsent
            | SendError::BrokenOff
            | SendError::Head(_) => false,
        }
    }
}
