//! An engine behind a node: the gateway connects to the node's listener, says which replica it means, and from then on
//! the connection is the engine's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::pinned::{self, Fingerprint};
use super::stream::Stream;
use pool::ReplicaId;

/// The first word of a connection to a node's listener, with the version of what follows.
pub const RELAY_MARK: &str = "model-pool-relay/1";
/// The longest line that begins such a connection, without its end.
pub const RELAY_LINE_MAX: usize = 160;
/// The node has connected to the engine.
pub const RELAY_CONNECTED: u8 = b'+';
/// The node has no such engine, or cannot connect to it.
pub const RELAY_NO_ENGINE: u8 = b'-';

/// From the first packet to the node's answer.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A secret of one node that is never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelaySecret(pub String);

impl fmt::Debug for RelaySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelaySecret(hidden)")
    }
}

/// How the gateway reaches the engines of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayAddress {
    /// The node's name, for messages.
    pub node: String,
    pub address: SocketAddr,
    pub secret: RelaySecret,
    /// Of the certificate of the node's listener; `None`: it speaks plain TCP.
    pub fingerprint: Option<Fingerprint>,
}

/// One engine of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePlace {
    pub relay: RelayAddress,
    pub replica: ReplicaId,
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on node {} ({})",
            self.replica, self.relay.node, self.relay.address
        )
    }
}

impl NodePlace {
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        match timeout(CONNECT_MAX, self.open()).await {
            Ok(opened) => opened,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "node {} has not answered at {} for {} s",
                    self.relay.node,
                    self.relay.address,
                    CONNECT_MAX.as_secs()
                ),
            )),
        }
    }

    async fn open(&self) -> io::Result<Stream> {
        let RelayAddress {
            node,
            address,
            secret,
            fingerprint,
        } = &self.relay;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut stream = match fingerprint {
            None => Stream::tcp(stream).patient(),
            Some(fingerprint) => {
                let stream = pinned::connect(stream, *fingerprint, address.ip()).await?;
                Stream::tls(stream).patient()
            }
        };
        let line = format!("{RELAY_MARK} {} {}\n", secret.0, self.replica.0);
        stream.write_all(line.as_bytes()).await?;
        stream.flush().await?;
        match stream.read_u8().await {
            Ok(RELAY_CONNECTED) => Ok(stream),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("node {node} cannot reach the engine of {}", self.replica),
            )),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("node {node} closed the connection: {error}"),
            )),
        }
    }
}
