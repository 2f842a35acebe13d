//! A connection for outgoing requests: to a program of this machine, or over the network, in clear or inside TLS. A network
//! connection detects a dead path (`path_watch`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::path_watch::{PATIENT, PathWatch};
use super::tls::TlsStream;

/// A connection to an engine, or to another process of the pool.
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    /// `None` within this machine, where no packet is lost.
    path: Option<PathWatch>,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Kind {
    fn socket(&self) -> Option<&TcpStream> {
        match self {
            Kind::Unix(_) => None,
            Kind::Tcp(socket) => Some(socket),
            Kind::Tls(stream) => Some(stream.get_ref().0),
        }
    }
}

impl Stream {
    pub(crate) fn unix(stream: UnixStream) -> Stream {
        let kind = Kind::Unix(stream);
        Stream { kind, path: None }
    }

    /// A connection to a program of this machine.
    pub(crate) fn loopback(stream: TcpStream) -> Stream {
        let kind = Kind::Tcp(stream);
        Stream { kind, path: None }
    }

    /// A connection over the network, in clear.
    pub fn tcp(stream: TcpStream) -> Stream {
        let path = Some(PathWatch::begin(&stream));
        let kind = Kind::Tcp(stream);
        Stream { kind, path }
    }

    /// A connection over the network, inside TLS.
    pub fn tls(stream: tokio_rustls::client::TlsStream<TcpStream>) -> Stream {
        let path = Some(PathWatch::begin(stream.get_ref().0));
        let kind = Kind::Tls(Box::new(stream));
        Stream { kind, path }
    }

    /// A stream of an engine on a node. Waits longer for a machine that is cut off for a while.
    pub(super) fn patient(mut self) -> Stream {
        self.path = self
            .kind
            .socket()
            .map(|socket| PathWatch::begin_with(socket, PATIENT));
        self
    }

    fn sent(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written
            && let Some(path) = &mut self.path
            && let Some(socket) = self.kind.socket()
        {
            path.sent(socket, *bytes);
        }
    }

    fn received(&mut self) {
        if let Some(path) = &mut self.path
            && let Some(socket) = self.kind.socket()
        {
            path.received(socket);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = match &mut this.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Kind::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Kind::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            this.received();
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Kind::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Kind::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        this.sent(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Unix(stream) => Pin::new(stream).poll_flush(context),
            Kind::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Kind::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Kind::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Kind::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.kind {
            Kind::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Kind::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Kind::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        };
        this.sent(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_keepalive;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn d4_network_connections_are_probed_and_local_ones_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        for is_probed in [true, false] {
            let socket = TcpStream::connect(address).await.expect("connected");
            let stream = if is_probed {
                Stream::tcp(socket)
            } else {
                Stream::loopback(socket)
            };
            let socket = stream.kind.socket().expect("a socket");
            assert_eq!(socket_keepalive(socket), Ok(is_probed));
        }
    }
}
