//! The address of an engine, and [`connect`], which every HTTP client of an engine uses.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpStream, UnixStream};

use super::node_place::NodePlace;
use super::remote::Remote;
use super::stream::Stream;
use super::tls;

/// The address of one engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    Unix(PathBuf),
    /// A port of this machine.
    Tcp(SocketAddr),
    /// A server that the pool did not start.
    Remote(Arc<Remote>),
    /// An engine of a node, reached through the node.
    Node(Arc<NodePlace>),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "http://{address}"),
            Endpoint::Remote(remote) => remote.fmt(f),
            Endpoint::Node(place) => place.fmt(f),
        }
    }
}

/// Opens a connection with `TCP_NODELAY`. Errors are the system's: `NotFound` or `ConnectionRefused` while the engine does not
/// listen yet. Has no timeout: waits as long as the caller for a local engine that does not accept.
pub async fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
    match endpoint {
        Endpoint::Unix(path) => UnixStream::connect(path).await.map(Stream::unix),
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            // A client that connects often enough to a port without a listener eventually gets that port as its local one, and then
            // talks to itself.
            if stream.local_addr()? == stream.peer_addr()? {
                stream.set_zero_linger()?;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            stream.set_nodelay(true)?;
            Ok(Stream::loopback(stream))
        }
        Endpoint::Node(place) => place.connect().await,
        Endpoint::Remote(remote) => {
            let stream = remote.connect().await?;
            match remote.server_name()? {
                None => Ok(Stream::tcp(stream)),
                Some(name) => {
                    let stream = tls::handshake(stream, name).await?;
                    Ok(Stream::tls(stream))
                }
            }
        }
    }
}
