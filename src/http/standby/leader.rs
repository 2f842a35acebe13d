//! The leader as reached by a standby: pooled HTTP/1.1 connections, verified against the leader's certificate fingerprint.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Bytes;
use axum::http::uri::Authority;
use axum::http::{Request, Uri, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::bodies::Sending;
use super::forward::PASSED_ON;
use engine::{Fingerprint, Stream};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for the health of a leader whose connection has broken.
const RESPOND_WITHIN: Duration = Duration::from_secs(5);
/// Largest number of idle connections, and their longest idle time.
const IDLE_MAX: usize = 128;
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Pooled connections to the leader.
pub(super) struct Connections {
    pub client: Client<Dial, Sending>,
    /// Set once the process behind them is known to run.
    is_alive: OnceCell<()>,
}

/// The leader's address, with connections to it.
pub(super) struct Leader {
    pub address: String,
    pub fingerprint: Option<String>,
    pub is_https: bool,
    pub authority: Authority,
    dial: Dial,
    connections: ArcSwap<Connections>,
    /// Fires when it is no longer the leader: pending responses will never arrive.
    pub gone: CancellationToken,
}

impl Leader {
    /// # Errors
    /// A description of the problem with the address.
    pub fn at(address: &str, fingerprint: Option<&str>) -> Result<Leader, String> {
        let wrong = |why: &str| format!("the leader's address {address} {why}");
        let uri: Uri = address
            .parse()
            .map_err(|_| wrong("is not a URL; correct state.standby.advertise there"))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("begins with neither https:// nor http://")),
        };
        let Some(authority) = uri.authority().cloned() else {
            return Err(wrong("names no host"));
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let port = authority.port_u16();
        let pinned: Option<Fingerprint> = fingerprint
            .map(str::parse)
            .transpose()
            .map_err(|error| format!("state.standby.fingerprint of the leader: {error}"))?;
        let place = Place {
            is_https,
            host: host.to_owned(),
            port: port.unwrap_or(if is_https { 443 } else { 80 }),
            fingerprint: pinned,
        };
        let dial = Dial(Arc::new(place));
        Ok(Leader {
            address: address.to_owned(),
            fingerprint: fingerprint.map(str::to_owned),
            is_https,
            authority,
            connections: ArcSwap::from_pointee(Connections {
                client: dial.client(),
                is_alive: OnceCell::new_with(Some(())),
            }),
            dial,
            gone: CancellationToken::new(),
        })
    }

    pub fn is_at(&self, address: &str, fingerprint: Option<&str>) -> bool {
        self.address == address && self.fingerprint.as_deref() == fingerprint
    }
}

/// The connections of one request.
pub(super) struct Route {
    pub leader: Arc<Leader>,
    pub connections: Arc<Connections>,
}

impl Route {
    pub fn to(leader: Arc<Leader>) -> Route {
        let connections = leader.connections.load_full();
        Route {
            leader,
            connections,
        }
    }

    /// Waits until the leader is known to run. Returns immediately unless a connection has broken before.
    ///
    /// # Errors
    /// The leader does not report its health. No request has been sent to it.
    pub async fn ready(&self) -> io::Result<()> {
        let leader = &self.leader;
        let probe = || leader.dial.0.probe(&leader.authority);
        let ready = self.connections.is_alive.get_or_try_init(probe);
        match timeout(RESPOND_WITHIN, ready).await {
            Ok(probed) => probed.map(|&()| ()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Stops the reuse of idle connections when a connection has broken. The process behind them has probably ended, and each
    /// would lose a request, as would a new connection that the kernel accepts before it closes the listener. The next request
    /// is sent once the leader has reported its health on a new connection.
    pub fn discard(&self) {
        let new = Arc::new(Connections {
            client: self.leader.dial.client(),
            is_alive: OnceCell::new(),
        });
        let connections = &self.leader.connections;
        connections.compare_and_swap(&self.connections, new);
    }
}

struct Place {
    is_https: bool,
    host: String,
    port: u16,
    fingerprint: Option<Fingerprint>,
}

impl Place {
    async fn connect(&self) -> io::Result<Wire> {
        let connecting = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            let peer = stream.peer_addr()?.ip();
            let stream = match (self.is_https, self.fingerprint) {
                (false, _) => Stream::tcp(stream),
                (true, Some(fingerprint)) => {
                    let shaken = engine::connect_pinned(stream, fingerprint, peer).await?;
                    Stream::tls(shaken)
                }
                (true, None) => {
                    let shaken = engine::connect_trusted(stream, self.host.clone()).await?;
                    Stream::tls(shaken)
                }
            };
            Ok::<Wire, io::Error>(Wire(TokioIo::new(stream)))
        };
        timeout(CONNECT_WITHIN, connecting)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Requests the leader's health on a new connection. Any response is proof that the process runs.
    async fn probe(&self, authority: &Authority) -> io::Result<()> {
        let (mut sender, connection) = http1::handshake(self.connect().await?)
            .await
            .map_err(io::Error::other)?;
        let request = Request::get("/health")
            .header(header::HOST, authority.as_str())
            .header(PASSED_ON, "1")
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        tokio::select! {
            response = sender.send_request(request) => {
                response.map(|_| ()).map_err(io::Error::other)
            }
            ended = connection => Err(ended.map_or_else(io::Error::other, |()| io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Opens connections. The host in a request's URI is the leader's.
#[derive(Clone)]
pub(super) struct Dial(Arc<Place>);

impl Dial {
    fn client(&self) -> Client<Dial, Sending> {
        Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(self.clone())
    }
}

impl tower::Service<Uri> for Dial {
    type Response = Wire;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let place = Arc::clone(&self.0);
        Box::pin(async move { place.connect().await })
    }
}

/// A connection in the form that hyper's client requires.
pub(super) struct Wire(TokioIo<Stream>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(Pin::new(&mut self.get_mut().0), context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.get_mut().0), context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.get_mut().0), context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.get_mut().0), context)
    }

    fn is_write_vectored(&self) -> bool {
        Write::is_write_vectored(&self.0)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(Pin::new(&mut self.get_mut().0), context, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_a_leader_address_consists_of_scheme_host_and_port() {
        for (address, authority, is_https) in [
            ("https://pool-1.lab:8443", "pool-1.lab:8443", true),
            ("http://[::1]:80", "[::1]:80", false),
        ] {
            let leader = Leader::at(address, None).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(leader.authority.as_str(), authority);
            assert_eq!(leader.is_https, is_https);
            assert!(leader.is_at(address, None) && !leader.is_at(address, Some("x")));
        }
        for wrong in ["", "pool-1:8443", "ftp://pool-1"] {
            assert!(Leader::at(wrong, None).is_err(), "{wrong}");
        }
        let why = Leader::at("https://pool-1", Some("sha256:12")).err();
        assert!(why.is_some_and(|message| message.contains("fingerprint")));
    }
}
