//! Relays requests: the gateway connects here and names a replica; from then on bytes are passed unchanged between it and the
//! engine, which preserves streams, pauses and hang-ups. Other nodes connect here too, speak HTTP, and get files of weights.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::identity::{Identity, ListenerCertificate};
use super::machine::Machine;
use super::peer_server::PeerServer;
use super::relay_pair::{GatewayStream, relay};
use engine::{
    Endpoint, Fingerprint, RELAY_CONNECTED, RELAY_LINE_MAX, RELAY_MARK, RELAY_NO_ENGINE,
    RelaySecret, Stream,
};

/// More than any gateway keeps open. Further connections wait to be accepted.
const CONNECTIONS_MAX: usize = 16 * 1024;
/// Time limit for a connection to send its request.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for an engine to accept a connection. Shorter than the gateway's limit for the node, so the gateway learns the actual
/// cause.
const CONNECT_MAX: Duration = Duration::from_secs(8);
/// The first bytes of a request from another node.
const HTTP_BEGINS: &[u8] = b"GET ";

/// The listener of a node.
pub(super) struct Relay {
    listener: TcpListener,
    pub address: SocketAddr,
    pub secret: RelaySecret,
    pub fingerprint: Option<Fingerprint>,
    tls: Option<TlsAcceptor>,
    /// For a later process of the node; `None` for plain TCP.
    pub certificate: Option<ListenerCertificate>,
    /// Bytes sent to gateways so far.
    pub moved: Arc<AtomicU64>,
    /// One task per connection. Dropping the listener ends them.
    connections: Mutex<JoinSet<()>>,
}

impl Relay {
    /// Listens with a self-signed certificate, or in plain TCP if `is_plain`.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn open(address: SocketAddr, is_plain: bool) -> Result<Relay, String> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            format!("cannot listen on {address}: {error}; choose another address with --listen or node.listen")
        })?;
        let certificate = (!is_plain).then(make_certificate).transpose()?;
        let secret = format!("{:x}", Secret256(rand::random()));
        Relay::new(listener, &secret, certificate)
    }

    /// Continues the listener of an earlier process: with its socket, or at its address.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn again(kept: &Identity, socket: Option<OwnedFd>) -> Result<Relay, String> {
        let address = kept.listen;
        let failed = |error: io::Error| format!("cannot listen on {address} again: {error}");
        let listener = match socket {
            Some(socket) => {
                let socket = std::net::TcpListener::from(socket);
                let is_there = socket.local_addr().map_err(failed)? == address;
                if !is_there {
                    return Err(failed(io::Error::other("the socket has another address")));
                }
                socket.set_nonblocking(true).map_err(failed)?;
                TcpListener::from_std(socket).map_err(failed)?
            }
            None => TcpListener::bind(address).await.map_err(failed)?,
        };
        Relay::new(listener, &kept.secret, kept.certificate.clone())
    }

    fn new(
        listener: TcpListener,
        secret: &str,
        certificate: Option<ListenerCertificate>,
    ) -> Result<Relay, String> {
        let opened = certificate.as_ref().map(acceptor).transpose()?;
        let (tls, fingerprint) = opened.unzip();
        Ok(Relay {
            address: listener.local_addr().map_err(|error| error.to_string())?,
            listener,
            secret: RelaySecret::parse(secret)?,
            fingerprint,
            tls,
            certificate,
            moved: Arc::default(),
            connections: Mutex::default(),
        })
    }

    /// A copy of the socket, for another process.
    pub fn listening(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    fn connections(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the listener. Returns the tasks of the connections, which continue.
    pub fn close(self) -> JoinSet<()> {
        std::mem::take(&mut *self.connections())
    }

    /// Accepts connections. Never returns. After this future is dropped, the accepted connections continue.
    pub async fn serve(&self, machine: Arc<Machine>, peers: Arc<PeerServer>) {
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
                return;
            };
            while self.connections().try_join_next().is_some() {}
            let (socket, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The usual cause: no file descriptors are left until other connections end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = socket.set_nodelay(true);
            // Probes the connection: a gateway or node whose machine is gone would otherwise keep its seat. If an engine is sending
            // to it, the kernel stops after a longer time without acknowledgement.
            engine::keep_alive_patiently(&socket);
            let (tls, secret) = (self.tls.clone(), self.secret.clone());
            let (machine, moved) = (Arc::clone(&machine), Arc::clone(&self.moved));
            let peers = Arc::clone(&peers);
            self.connections().spawn(async move {
                let served = match tls {
                    None => serve(socket, &secret, &machine, &moved, &peers).await,
                    Some(tls) => match timeout(BEGIN_WITHIN, tls.accept(socket)).await {
                        Ok(Ok(stream)) => serve(stream, &secret, &machine, &moved, &peers).await,
                        Ok(Err(error)) => Err(error),
                        Err(_) => Err(io::ErrorKind::TimedOut.into()),
                    },
                };
                if let Err(error) = served {
                    tracing::debug!(%peer, %error, "a connection to an engine has ended");
                }
                drop(seat);
            });
        }
    }
}

/// 256 random bits.
struct Secret256([u8; 32]);

impl std::fmt::LowerHex for Secret256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn make_certificate() -> Result<ListenerCertificate, String> {
    let made = rcgen::generate_simple_self_signed(vec!["model-pool-node".to_owned()]);
    let made = made.map_err(|error| format!("cannot make a certificate: {error}"))?;
    Ok(ListenerCertificate {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    })
}

fn acceptor(listener: &ListenerCertificate) -> Result<(TlsAcceptor, Fingerprint), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot use its certificate: {error}");
    let certificate = CertificateDer::from_pem_slice(listener.certificate.as_bytes());
    let certificate = certificate.map_err(|error| failed(&error))?;
    let fingerprint = Fingerprint::new(&certificate);
    let key = PrivateKeyDer::from_pem_slice(listener.key.as_bytes());
    let key = key.map_err(|error| failed(&error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|error| failed(&error))?;
    Ok((TlsAcceptor::from(Arc::new(config)), fingerprint))
}

async fn serve(
    mut gateway: impl GatewayStream,
    secret: &RelaySecret,
    machine: &Machine,
    moved: &AtomicU64,
    peers: &Arc<PeerServer>,
) -> io::Result<()> {
    let line = match timeout(BEGIN_WITHIN, read_line(&mut gateway)).await {
        Ok(line) => line?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    if line == HTTP_BEGINS {
        let (from, to) = tokio::io::split(gateway);
        // The bytes read so far belong to the request.
        return peers
            .serve(tokio::io::join(HTTP_BEGINS.chain(from), to))
            .await;
    }
    let replica = replica_of(&line, secret);
    let Some(replica) = replica else {
        // A client without the secret learns nothing.
        return Err(io::ErrorKind::PermissionDenied.into());
    };
    let connecting = async {
        let endpoint = machine.endpoint(replica).await?;
        connect(&endpoint, CONNECT_MAX).await.ok()
    };
    let connected = timeout(CONNECT_MAX, connecting).await.ok().flatten();
    let Some(engine) = connected else {
        gateway.write_all(&[RELAY_NO_ENGINE]).await?;
        return gateway.shutdown().await;
    };
    gateway.write_all(&[RELAY_CONNECTED]).await?;
    gateway.flush().await?;
    relay(gateway, engine, moved).await
}

/// Engines of a node are processes on its machine.
async fn connect(endpoint: &Endpoint, within: Duration) -> io::Result<Stream> {
    match timeout(within, engine::connect(endpoint)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The first line without its newline, or the first bytes of an HTTP request. Later bytes stay unread.
async fn read_line(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() <= RELAY_LINE_MAX {
        // Read byte by byte: a gateway sends nothing after the line before it has the response, so the line is a single packet.
        match from.read_u8().await? {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
        if line == HTTP_BEGINS {
            return Ok(line);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn replica_of(line: &[u8], secret: &RelaySecret) -> Option<u64> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let mark = words.next()? == RELAY_MARK;
    let knows = words.next()?.as_bytes().ct_eq(secret.reveal().as_bytes());
    let replica = words.next()?.parse().ok()?;
    (mark && bool::from(knows) && words.next().is_none()).then_some(replica)
}

#[cfg(test)]
mod tests;
