//! Passes bytes unchanged between a gateway and an engine. Each chunk is passed on as it arrives, and nothing is read while the
//! other side does not take it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// A gateway that has received the complete response and its end closes the connection immediately; a dead gateway never does.
const LINGERS_MAX: Duration = Duration::from_secs(5);
/// Interval at which a pair whose engine reads nothing checks for a gateway that has left.
const LEFT_EVERY: Duration = Duration::from_secs(5);
const BUFFER_BYTES: usize = 16 << 10;

/// The connection of a gateway, in clear or inside TLS.
pub(super) trait GatewayStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Returns true if the gateway has closed its side, even if bytes that precede the end are unread.
    fn has_left(&self) -> bool;
}

impl GatewayStream for TcpStream {
    fn has_left(&self) -> bool {
        // Readiness is known without waiting, or there is none.
        let readiness = self.ready(Interest::READABLE).now_or_never();
        readiness.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
    }
}

impl GatewayStream for TlsStream<TcpStream> {
    fn has_left(&self) -> bool {
        self.get_ref().0.has_left()
    }
}

/// Passes bytes until a side ends, which ends both, as without a node in between. Adds the bytes sent to the gateway to `moved`.
///
/// # Errors
/// The error of the side that ended, or `TimedOut` if the gateway left while the engine read nothing.
pub(super) async fn relay(
    mut gateway: impl GatewayStream,
    mut engine: impl AsyncRead + AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    let (mut down, mut up) = (Direction::default(), Direction::default());
    let mut is_refused = false;
    let ended = loop {
        let is_blocked = up.holds();
        let turn = poll_fn(|context| {
            let sent = down.poll(context, &mut engine, &mut gateway, Some(moved));
            if let Poll::Ready(ended) = sent {
                return Poll::Ready(Turn::EngineEnded(ended));
            }
            let mut engine = RequestWriter {
                engine: &mut engine,
                is_refused: &mut is_refused,
            };
            match up.poll(context, &mut gateway, &mut engine, None) {
                Poll::Ready(ended) => Poll::Ready(Turn::GatewayEnded(ended)),
                Poll::Pending if up.holds() && !is_blocked => Poll::Ready(Turn::EngineBlocks),
                Poll::Pending => Poll::Pending,
            }
        });
        let turn = if is_blocked {
            timeout(LEFT_EVERY, turn).await.ok()
        } else {
            Some(turn.await)
        };
        match turn {
            Some(Turn::EngineEnded(ended)) => break ended,
            Some(Turn::GatewayEnded(ended)) => return ended,
            Some(Turn::EngineBlocks) => {}
            None if gateway.has_left() => return Err(io::ErrorKind::TimedOut.into()),
            None => {}
        }
    };
    drop(engine);
    linger(gateway).await;
    ended
}

enum Turn {
    EngineEnded(io::Result<()>),
    GatewayEnded(io::Result<()>),
    /// The engine takes no more of the request for now.
    EngineBlocks,
}

/// Ends the gateway's connection after its response. Drops the bytes that the gateway still sends until it has ended, too: closing
/// a socket with unread data discards data that is still being sent (RFC 9112, 9.6).
async fn linger(mut gateway: impl GatewayStream) {
    if gateway.flush().await.is_err() || gateway.shutdown().await.is_err() {
        return;
    }
    let mut dropped = vec![0; BUFFER_BYTES];
    let rest = async { while gateway.read(&mut dropped).await.is_ok_and(|read| read > 0) {} };
    let _ = timeout(LINGERS_MAX, rest).await;
}

#[derive(Default)]
struct Direction {
    /// Bytes read and not yet taken, from `begin` on.
    rest: Vec<u8>,
    begin: usize,
    is_unflushed: bool,
}

impl Direction {
    fn holds(&self) -> bool {
        self.begin < self.rest.len()
    }

    /// Passes on all bytes that can be passed on now. Ready at the end of `from`.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        moved: Option<&AtomicU64>,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.holds() {
                let piece = &self.rest[self.begin..];
                let written = ready!(Pin::new(&mut *to).poll_write(context, piece))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.begin += written;
                if let Some(moved) = moved {
                    moved.fetch_add(written as u64, Ordering::Relaxed);
                }
            }
            // An idle stream holds no buffer.
            (self.rest, self.begin) = (Vec::new(), 0);
            if self.is_unflushed {
                ready!(Pin::new(&mut *to).poll_flush(context))?;
                self.is_unflushed = false;
            }
            let mut space = [MaybeUninit::uninit(); BUFFER_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut *from).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.rest = buffer.filled().to_vec();
            self.is_unflushed = true;
        }
    }
}

/// Writes requests to an engine. An engine that takes no more of a request may still respond; the rest of the request is dropped.
struct RequestWriter<'a, T> {
    engine: &'a mut T,
    is_refused: &'a mut bool,
}

impl<T: AsyncWrite + Unpin> AsyncWrite for RequestWriter<'_, T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !*this.is_refused {
            match Pin::new(&mut *this.engine).poll_write(context, piece) {
                Poll::Ready(Err(_)) => *this.is_refused = true,
                written => return written,
            }
        }
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
