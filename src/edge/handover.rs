//! Takes an HTTP/1.1 stream over from hyper once its head is sent and the stream is pending, and sends the rest in chunks. Detects a
//! client that disconnects, and keeps bytes that the client sends ahead for the next request. A connection that only carries a
//! stream then needs neither a parser nor its buffers: hyper would keep 30 KiB for each stream, 290 MiB for the 9,872 idle streams
//! that take 168 MiB in docs/internals/benchmarks.md.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Bytes;
use axum::http::{Method, Request, Response, Version, header};
use bytes::BytesMut;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counted_stream::{CountedStream, Stage};
use super::fed::Streamed;

/// Largest amount of data collected for one write, and the buffer capacity kept while the stream is silent.
const FULL_BYTES: usize = 16 << 10;
const KEPT_BYTES: usize = 2 << 10;
/// Largest number of bytes read ahead; further ones are read after the response.
const AHEAD_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 512;

/// The link between hyper and the connection.
pub(super) struct Handover<B> {
    body: Mutex<Option<B>>,
    stage: Arc<Stage>,
}

/// Returns true if a streaming response to this request can be taken over from hyper.
pub(super) fn is_simple<B>(request: &Request<B>) -> bool {
    let mut values = request.headers().get_all(header::CONNECTION).into_iter();
    request.version() == Version::HTTP_11
        && *request.method() == Method::POST
        && values.all(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

impl<B> Handover<B> {
    pub fn new(stage: &Arc<Stage>) -> Handover<B> {
        Handover {
            body: Mutex::new(None),
            stage: Arc::clone(stage),
        }
    }

    fn offer(&self, body: B) {
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        self.stage.offered();
    }

    /// Takes the rest of a stream once its beginning has been sent.
    pub fn take(&self) -> Option<B> {
        if !self.stage.take_sent() {
            return None;
        }
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        body.take()
    }
}

impl<B: Body> Handover<B> {
    /// Wraps a response for hyper. Of a stream, hyper only sends the head and the first pieces; other responses are unchanged.
    pub fn outgoing(self: &Arc<Self>, mut response: Response<B>) -> Response<Outgoing<B>> {
        let is_streamed = response.extensions_mut().remove::<Streamed>().is_some();
        let headers = response.headers();
        let has_end = response.body().size_hint().exact().is_some()
            || headers.contains_key(header::CONTENT_LENGTH)
            || headers.contains_key(header::CONNECTION);
        let handover = (is_streamed && !has_end).then(|| Arc::clone(self));
        response.map(|body| Outgoing {
            body: Some(body),
            handover,
        })
    }
}

/// A response body as hyper sees it.
pub(super) struct Outgoing<B> {
    /// `None` once offered: hyper then sees a body that is pending forever.
    body: Option<B>,
    /// The handover to which the body is offered as soon as it is pending.
    handover: Option<Arc<Handover<B>>>,
}

impl<B> Outgoing<B> {
    /// A body that hyper sends completely.
    pub fn new(body: B) -> Outgoing<B> {
        Outgoing {
            body: Some(body),
            handover: None,
        }
    }
}

impl<B: Body + Unpin> Body for Outgoing<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Pending;
        };
        let polled = Pin::new(body).poll_frame(context);
        // hyper has written the head before it polls the body, and flushes both when the body is pending.
        if polled.is_pending()
            && let Some(handover) = &this.handover
            && let Some(body) = this.body.take()
        {
            handover.offer(body);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::new, Body::size_hint)
    }
}

/// A stream taken over from hyper.
pub(super) struct Streaming<S, B> {
    wire: CountedStream<S>,
    body: B,
    /// Bytes that the client sent after its request.
    ahead: BytesMut,
    /// Encoded chunks, of which the first `written` bytes are sent.
    chunks: Vec<u8>,
    written: usize,
    is_last: bool,
}

impl<S, B> Streaming<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    /// `ahead`: bytes that hyper has read and not used.
    pub fn new(wire: CountedStream<S>, ahead: &[u8], body: B) -> Streaming<S, B> {
        Streaming {
            wire,
            body,
            ahead: BytesMut::from(ahead),
            chunks: Vec::new(),
            written: 0,
            is_last: false,
        }
    }

    /// Returns the connection for the next request.
    pub(crate) fn into_wire(mut self) -> CountedStream<S> {
        self.wire.put_back(self.ahead);
        self.wire
    }

    /// Ready once everything is sent. After an error the connection must be closed: the client has disconnected, or must notice
    /// that the response is incomplete.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.read_ahead(context)?;
        loop {
            let rests = self.chunks.is_empty() && !self.is_last && self.fill(context)?;
            ready!(self.poll_write(context))?;
            if self.is_last || rests {
                ready!(Pin::new(&mut self.wire).poll_flush(context))?;
            }
            if self.is_last {
                return Poll::Ready(Ok(()));
            }
            if rests {
                if self.chunks.capacity() > KEPT_BYTES {
                    self.chunks = Vec::new();
                }
                return Poll::Pending;
            }
        }
    }

    /// Encodes available data, up to a limit. Returns true if the body is pending.
    fn fill(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        while !self.is_last && self.chunks.len() < FULL_BYTES {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Ok(true),
                Poll::Ready(None) => {
                    self.chunks.extend_from_slice(b"0\r\n\r\n");
                    self.is_last = true;
                }
                Poll::Ready(Some(Err(error))) => return Err(io::Error::other(error)),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        put_chunk(&mut self.chunks, &data);
                    }
                }
            }
        }
        Ok(false)
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.chunks.len() {
            let rest = &self.chunks[self.written..];
            match ready!(Pin::new(&mut self.wire).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.chunks.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Treats the end of the client's stream as a disconnect, as hyper does.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.ahead.len() < AHEAD_BYTES_MAX {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.wire).poll_read(context, &mut read) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Poll::Ready(Ok(())) => self.ahead.extend_from_slice(read.filled()),
            }
        }
        Ok(())
    }
}

/// Skips empty data, because an empty chunk would end the body.
fn put_chunk(chunks: &mut Vec<u8>, data: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if data.is_empty() {
        return;
    }
    let digits = data.len().ilog2() / 4 + 1;
    chunks.reserve(data.len() + 20);
    for nth in (0..digits).rev() {
        chunks.push(DIGITS[(data.len() >> (4 * nth)) & 0xf]);
    }
    chunks.extend_from_slice(b"\r\n");
    chunks.extend_from_slice(data);
    chunks.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_starts_with_its_length_in_hexadecimal() {
        for length in [1, 9, 10, 15, 16, 255, 256, 4096, 65_535, 65_536] {
            let mut chunks = Vec::new();
            put_chunk(&mut chunks, &vec![b'x'; length]);
            let expected = format!("{length:X}\r\n{}\r\n", "x".repeat(length));
            assert_eq!(chunks, expected.as_bytes(), "{length}");
        }
        let mut none = Vec::new();
        put_chunk(&mut none, b"");
        assert!(none.is_empty());
    }
}
