//! One connection to an engine, over HTTP/1.1: a request goes out, and the head of its answer comes in. It keeps no buffers while
//! it waits. Which connection a request takes, and what becomes of the answer's body, is not decided here.

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

use crate::inference::upstream::response_head::{self, BadHead, ResponseHead};
use engine::{Endpoint, Stream, connect};

/// So much is read at once. All connections that a thread moves share one buffer, so that thousands of them that wait have none.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// Dropped, it is closed, and an engine that still answers on it sees its client leave.
pub(crate) struct EngineConnection {
    stream: Stream,
    /// What came with the head of an answer, after it.
    pub early: BytesMut,
    /// It has carried an answer before.
    pub answered: bool,
    /// It may carry another request after this one.
    pub keeps: bool,
    /// The empty map of the last answer's head, which is the next request's.
    pub headers: HeaderMap,
}

impl EngineConnection {
    pub async fn open(endpoint: &Endpoint) -> Result<EngineConnection, SendError> {
        let stream = connect(endpoint).await.map_err(SendError::Connect)?;
        Ok(EngineConnection {
            stream,
            early: BytesMut::new(),
            answered: false,
            keeps: true,
            headers: HeaderMap::new(),
        })
    }

    /// A map for the head of a request.
    pub fn head_map(&mut self) -> HeaderMap {
        std::mem::take(&mut self.headers)
    }

    /// Whether it can carry another request, as far as is known here: an engine has nothing to say to one that waits.
    pub fn is_open(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.keeps && self.early.is_empty() && self.poll_read(&mut context, |_| ()).is_pending()
    }

    /// What has come, in a buffer that is only lent; nothing at the end.
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
        BUFFER.with(|it| it.set(Some(buffer)));
        taken
    }

    /// Sends a request whose URI is the path, and which has its `host`, and waits for the head of the answer.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<ResponseHead, SendError> {
        let (parts, body) = request.into_parts();
        let mut outgoing = Outgoing {
            head: response_head::of_request(&parts, body.len()),
            body,
            sent: 0,
        };
        let mut received = BytesMut::new();
        // It is sent from `outgoing`: its map takes the answer's.
        let mut map = parts.headers;
        let answer =
            poll_fn(|context| self.poll_answer(context, &mut outgoing, (&mut received, &mut map)));
        let answer = answer.await?;
        // An engine may begin its answer before it has read the whole request, and only refuses the rest of it with an error.
        // What breaks meanwhile is seen where the body is read.
        if answer.status.is_success() {
            let _ = poll_fn(|context| outgoing.poll_write(&mut self.stream, context)).await;
        }
        self.answered = true;
        self.keeps = answer.keeps && outgoing.is_sent();
        self.early = received;
        Ok(answer)
    }

    /// Writes and reads: an engine may refuse a request before all of it is sent.
    fn poll_answer(
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
                Ok(Some(answer)) => return Poll::Ready(Ok(answer)),
                Ok(None) => {}
                Err(bad) => return Poll::Ready(Err(SendError::Head(bad))),
            }
            let count = self.poll_read(context, |bytes| {
                received.extend_from_slice(bytes);
                bytes.len()
            });
            match count {
                // It has begun to answer, and so it has worked on the request.
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

/// A request on its way out.
struct Outgoing {
    head: Vec<u8>,
    body: Bytes,
    /// Of both together.
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

/// Why there is no head of an answer.
#[derive(Debug, Error)]
pub(crate) enum SendError {
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection was closed before the request was sent")]
    Unsent,
    #[error("the connection was closed before the answer")]
    Closed,
    #[error("the connection broke before the answer: {0}")]
    Broken(#[source] io::Error),
    #[error("the connection broke within the head of the answer")]
    BrokenOff,
    #[error("the head of the answer cannot be read: {0}")]
    Head(#[source] BadHead),
}

impl SendError {
    /// Whether nothing says that the engine has done anything with the request.
    pub fn is_without_answer(&self) -> bool {
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
