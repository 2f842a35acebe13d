//! Connects to an engine on a node: the gateway connects to the node's listener and names the replica; from then on the connection
//! is the engine's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::certificate_pin;
use super::certificate_pin::Fingerprint;
use super::stream::Stream;
use pool::ReplicaId;

/// The first word of a connection to a node's listener, with the version of the protocol.
pub const RELAY_MARK: &str = "model-pool-relay/1";
/// Maximum length of the line that starts such a connection, without its newline.
pub const RELAY_LINE_MAX: usize = 160;
/// Allowed length of a listener's secret. The line has room for the longest.
const RELAY_SECRET_LENGTH: std::ops::RangeInclusive<usize> = 32..=96;
/// The node has connected to the engine.
pub const RELAY_CONNECTED: u8 = b'+';
/// The node has no such engine, or cannot connect to it.
pub const RELAY_NO_ENGINE: u8 = b'-';

/// Time limit from the first packet to the node's response.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The secret of one node. Never shown, and a single word that fits in a line of the protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelaySecret(String);

impl RelaySecret {
    /// # Errors
    /// The required form, never the text itself.
    pub fn parse(text: &str) -> Result<RelaySecret, String> {
        let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_word && RELAY_SECRET_LENGTH.contains(&text.len()) {
            return Ok(RelaySecret(text.to_owned()));
        }
        Err(format!(
            "the secret of its listener has {} bytes; allowed are {} to {} ASCII letters and digits",
            text.len(),
            RELAY_SECRET_LENGTH.start(),
            RELAY_SECRET_LENGTH.end()
        ))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RelaySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelaySecret(hidden)")
    }
}

/// The address of a node's listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayAddress {
    /// The node's name, for messages.
    pub node: String,
    pub address: SocketAddr,
    pub secret: RelaySecret,
    /// Fingerprint of the listener's certificate; `None` for plain TCP.
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
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
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
                let stream = certificate_pin::connect(stream, *fingerprint, address.ip()).await?;
                Stream::tls(stream).patient()
            }
        };
        let line = format!("{RELAY_MARK} {} {}\n", secret.reveal(), self.replica.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_secret_cannot_contain_a_space_or_a_second_line() {
        for good in ["s".repeat(32), "0aZ9".repeat(16), "f".repeat(96)] {
            let secret = RelaySecret::parse(&good).expect("a secret");
            let line = format!("{RELAY_MARK} {} {}\n", secret.reveal(), u64::MAX);
            assert!(line.len() <= RELAY_LINE_MAX, "{}", line.len());
        }
        let long = "a".repeat(40);
        for bad in [
            String::new(),
            "short".to_owned(),
            "a".repeat(97),
            format!("{long}\r\nPOST /api/jobs/ HTTP/1.1"),
            format!("{long}\n"),
            format!("{long} 7"),
            format!("{long}\0"),
            format!("{long}é"),
        ] {
            let problem = RelaySecret::parse(&bad).expect_err("not a secret");
            assert!(!problem.contains(&long), "{problem}");
        }
    }
}
