//! The byte stream of a connection, plain or TLS, with its activity reported to [`ConnectionWatch`].

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_watch::ConnectionWatch;
use super::frame_budget::FrameBudget;

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of the first read, which covers most requests.
const LOOK_BYTES: usize = 2 << 10;

/// No stream is offered.
const NONE: u8 = 0;
/// The earlier part of the stream is in hyper's buffer, and may not be sent yet.
const OFFERED: u8 = 1;
const SENT: u8 = 2;

/// The stage of a handover from hyper ([`super::handover`]). Only used by the connection's task.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

impl Stage {
    /// Called when hyper has flushed everything it has written.
    pub(crate) fn flushed(&self) {
        if self.0.load(Ordering::Relaxed) == OFFERED {
            self.0.store(SENT, Ordering::Relaxed);
        }
    }

    pub(crate) fn offered(&self) {
        self.0.store(OFFERED, Ordering::Relaxed);
    }

    /// Returns true, once, if the earlier part of an offered stream has been sent.
    pub(crate) fn take_sent(&self) -> bool {
        let is_sent = self.0.load(Ordering::Relaxed) == SENT;
        if is_sent {
            self.0.store(NONE, Ordering::Relaxed);
        }
        is_sent
    }
}

pub(super) struct CountedStream<S> {
    stream: S,
    watch: Arc<ConnectionWatch>,
    stage: Arc<Stage>,
    /// Bytes that were examined and will be read again first.
    again: BytesMut,
    /// Set for HTTP/2.
    frames: Option<Box<FrameBudget>>,
}

impl<S> CountedStream<S> {
    pub fn new(stream: S, watch: Arc<ConnectionWatch>, stage: Arc<Stage>) -> CountedStream<S> {
        CountedStream {
            stream,
            watch,
            stage,
            again: BytesMut::new(),
            frames: None,
        }
    }

    /// Limits the client's frames. Must be called before the preface is read.
    pub(crate) fn bound_frames(&mut self) {
        self.frames = Some(Box::new(FrameBudget::new(&self.watch)));
    }

    /// Makes these bytes the next ones read.
    pub(crate) fn put_back(&mut self, mut bytes: BytesMut) {
        bytes.extend_from_slice(&self.again);
        self.again = bytes;
    }
}

impl<S: AsyncRead + Unpin> CountedStream<S> {
    /// Determines from the first bytes whether the client speaks HTTP/2.
    pub(crate) fn poll_is_h2(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let known = self.again.len().min(PREFACE.len());
            if self.again[..known] != PREFACE[..known] {
                return Poll::Ready(Ok(false));
            }
            if known == PREFACE.len() {
                return Poll::Ready(Ok(true));
            }
            let mut space = [MaybeUninit::uninit(); LOOK_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.again.extend_from_slice(read.filled());
            self.watch.read(&self.again);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let again = this.again.len().min(buffer.remaining());
        if again > 0 {
            buffer.put_slice(&this.again.split_to(again));
            if this.again.is_empty() {
                this.again = BytesMut::new();
            }
        }
        let read = match buffer.remaining() {
            0 => Poll::Ready(Ok(())),
            // An error or the end is returned again after the buffered bytes.
            _ => Pin::new(&mut this.stream).poll_read(cx, buffer),
        };
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            this.watch.read(bytes);
            if let Some(frames) = &mut this.frames
                && !frames.allows(bytes)
            {
                tracing::debug!("closed an HTTP/2 connection: too many frames without a request");
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        match again {
            0 => read,
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch.written(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch.written(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch.written(flushed.is_pending());
        if let Poll::Ready(Ok(())) = flushed {
            self.stage.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
