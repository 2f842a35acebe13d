//! Sends an HTTP/1.1 stream in chunks after hyper has sent its head. Detects a client that disconnects, and keeps bytes that the
//! client sends ahead for the next request. hyper would keep 30 KiB of buffers for each stream, 290 MiB for the 9,872 idle streams
//! that take 168 MiB in docs/internals/benchmarks.md.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Bytes;
use bytes::BytesMut;
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counted_stream::CountedStream;

/// Largest amount of data collected for one write, and the buffer capacity kept while the stream is silent.
const FULL_BYTES: usize = 16 << 10;
const KEPT_BYTES: usize = 2 << 10;
/// Largest number of bytes read ahead; further ones are read after the response.
const AHEAD_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 512;

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
    fn a_chunk_says_its_length_in_hexadecimal_digits() {
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
