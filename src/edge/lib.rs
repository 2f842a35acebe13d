//! The boundary between the network and the routes: connections and their limits, TLS, client addresses, host names, request
//! bodies, and the access log. Every request passes through here before its route runs.
//!
//! Keys, models and rate limits are handled by the routes. The edge only knows paths: pages of other origins may be allowed to call
//! `/v1/` and Ollama's `/api/`; `/docs` and `/admin` get security headers (`dressing`); a name in `/v1/models/` may contain an
//! encoded slash (`refusing`).
//!
//! ```text
//! socket ─▶ seats ─▶ tls ─▶ connection ───────────▶ `front` ─────────▶ the routes
//!                             │ connection_watch      │ client, hosts, refusing
//!                             ▼                       ▼ arriving on the way in; dressing, exchange on the way out
//!                           cut or close            access_log; a stream: handover
//! ```

mod access_log;
mod arriving;
mod bodies;
mod client;
mod connection;
mod connection_watch;
mod counted_stream;
mod dressing;
mod exchange;
pub mod fed;
mod frame_budget;
mod handover;
pub mod header_text;
mod hosts;
pub mod listener;
pub mod operation;
mod prefix;
pub mod quiet;
pub mod record;
mod refusing;
mod seats;
pub mod seldom;
pub mod shares;
mod streaming;
mod tls;
pub mod trace;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use thiserror::Error;

use self::access_log::{AccessLog, AccessLogError};
pub use self::arriving::{Arriving, Outcome, PlainBody, throw_away};
use self::bodies::Bodies;
pub use self::bodies::{ADMIN_PART, SMALL_MAX};
pub use self::client::ClientAddress;
pub use self::connection::{ConnectionService, accept};
use self::connection_watch::IdleTimeouts;
pub use self::connection_watch::Turn;
pub use self::exchange::{Exchange, Sent};
use self::hosts::Hosts;
pub use self::prefix::{ForwardedPrefix, forwarded_prefix};
use self::record::{Record, Share};
pub use self::seats::RESERVED_PART;
use self::seats::{ConnectionPermit, Seats};
pub use self::streaming::Streaming;
use self::tls::Tls;
pub use self::tls::{TlsError, check_tls};
use crate::header_text::header_text;
use crate::listener::Socket;
use crate::shares::{Caller, Capacity, Class, Permit, Shares};
use api_types::error::Failure;
use config::{Config, Network, ServerSection};
use controller::Clock;
use pool::Time;

/// Divisor of `server.bodies_memory` for buffered responses that clients do not read, in addition to that memory.
pub const BUFFERS_PART: u64 = 4;
/// Largest request id accepted from a client.
const ID_BYTES_MAX: usize = 128;
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The response to a client above the connection limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 157\r\n\r\n{\"error\":{\"message\":\"the connection limit is reached (server.connections_max); try again later\",\"type\":\"server_error\",\"param\":null,\"code\":\"connections_max\"}}";

#[derive(Debug, Error)]
pub enum EdgeError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
}

/// State shared by all connections.
pub struct Edge {
    tls: Option<Tls>,
    access: Option<AccessLog>,
    bodies: Arc<Bodies>,
    /// Memory for responses that clients do not read.
    buffers: Arc<Shares>,
    hosts: ArcSwap<Hosts>,
    proxies: Vec<Network>,
    patience: IdleTimeouts,
    seats: Arc<Seats>,
    base: String,
    has_warned_of_proxy: OnceFlag,
}

/// Logs a misconfigured proxy once, because each of its requests would repeat the warning.
#[derive(Debug, Default)]
struct OnceFlag(AtomicBool);

impl OnceFlag {
    fn look(&self, client: &ClientAddress, peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) {
        // Clients on other machines are not local in any case.
        let matters = client.is_hidden && client.address.is_loopback();
        if !matters || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(advice) = client.advice(peer, headers, trusted) {
            tracing::warn!("{advice}");
        }
    }
}

impl Edge {
    /// Reads the certificate and opens the log. `files_max` is the system's limit of open files.
    pub fn open(config: &Config, clock: Clock, files_max: Option<u64>) -> Result<Edge, EdgeError> {
        let server = &config.server;
        Ok(Edge {
            tls: server.tls.as_ref().map(Tls::open).transpose()?,
            access: AccessLog::open(&server.access_log, server.access_log_max.0.0)?,
            bodies: Arc::new(Bodies::from_config(server, clock)),
            buffers: Shares::new(Capacity::divided(server.bodies_memory.0.0 / BUFFERS_PART)),
            hosts: ArcSwap::from_pointee(Hosts::from_config(server)),
            proxies: server.trusted_proxies.clone(),
            patience: IdleTimeouts {
                idle: server.idle_timeout.duration(),
                write: server.write_timeout.duration(),
            },
            seats: Arc::new(Seats::from_config(server, files_max)),
            base: server.base_path.as_str().to_owned(),
            has_warned_of_proxy: OnceFlag::default(),
        })
    }

    /// Reserves memory for data that a request refers to, in addition to its body's.
    pub async fn more_memory(&self, bytes: usize) -> Result<Share, Failure> {
        self.bodies.more(bytes).await
    }

    /// Reserves memory for a copy of the present request, if the caller's share has room. Does not wait, because the request holds memory
    /// itself. The share of the request's body stays as it is.
    pub fn copy_memory(&self, bytes: usize) -> Option<Share> {
        self.bodies.copy(bytes)
    }

    /// Reserves memory for a response piece that its client does not read, if the caller's share has room.
    pub fn try_buffer(&self, caller: Caller, bytes: u64, now: Time) -> Option<Permit> {
        self.buffers.try_hold(caller, Class::Small, bytes, now)
    }

    /// Applies new settings, as far as they need no restart.
    pub fn set(&self, server: &ServerSection) {
        self.hosts.store(Arc::new(Hosts::from_config(server)));
        self.bodies.set(server);
    }

    /// Reads the certificate again. Returns the error message on failure. Blocks.
    pub fn reload_certificate(&self) -> Option<String> {
        let failed = self.tls.as_ref()?.reload().err()?;
        tracing::warn!("{failed}; keeping the previous certificate");
        Some(format!("{failed}; keeping the previous certificate"))
    }

    /// Returns true for routes that web pages may be allowed to call.
    pub fn is_inference(&self, path: &str) -> bool {
        let below = path.strip_prefix(&self.base).unwrap_or(path);
        below.starts_with("/v1/") || below.starts_with("/api/")
    }

    /// A permit for one more connection. `None` above the limit, after the client has been sent a 503.
    pub fn admit(&self, socket: Socket, peer: SocketAddr) -> Option<(Socket, ConnectionPermit)> {
        let Some(permit) = self.seats.take(peer.ip()) else {
            turn_away(socket, self.has_tls());
            return None;
        };
        if let Some(stream) = socket.tcp() {
            // Small frames of a stream must not wait for the client's acknowledgements.
            let _ = stream.set_nodelay(true);
            // A trusted proxy, or a standby controller, is on our network and carries the requests of many clients. Other clients
            // may be on networks that drop out for a while.
            if self.trusts(peer.ip()) {
                engine::keep_alive(stream);
            }
        }
        Some((socket, permit))
    }

    /// Returns true if `peer` is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.proxies.iter().any(|network| network.contains(peer))
    }

    /// The client of a request, through trusted proxies.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        let client = ClientAddress::new(peer, headers, &self.proxies);
        self.has_warned_of_proxy
            .look(&client, peer, headers, &self.proxies);
        client
    }

    /// Returns the prefix that the proxy removed from the path, if `peer` is a trusted proxy.
    pub fn prefix(&self, peer: IpAddr, headers: &HeaderMap) -> Option<ForwardedPrefix> {
        ForwardedPrefix::read(headers).filter(|_| self.trusts(peer))
    }

    /// Refuses a request by its head.
    pub fn check(&self, parts: &Parts) -> Result<(), Failure> {
        self.hosts.load().check(parts)?;
        refusing::check(parts, &self.base)
    }

    /// The request body for the route, within its limits.
    pub fn arriving(&self, body: Incoming, record: &Arc<Record>) -> (Arriving, Arc<Outcome>) {
        Arriving::new(body, &self.bodies, record)
    }

    /// The request body for a route that reads it while it arrives and sets its own limits.
    pub fn streaming(&self, body: Incoming, record: &Arc<Record>) -> (Streaming, Arc<Outcome>) {
        Streaming::new(body, record)
    }

    /// Reads the body directly, within its limits.
    pub async fn read(&self, body: &mut PlainBody, record: &Record) -> Result<Bytes, Failure> {
        body.read(&self.bodies, record).await
    }

    pub fn dress(&self, path: &str, headers: &mut HeaderMap) {
        dressing::dress(path, &self.base, headers);
    }

    /// The client's own request id, if it has only harmless characters.
    pub fn sent_id(headers: &HeaderMap) -> Option<HeaderValue> {
        let sent = headers.get(REQUEST_ID).filter(|id| is_sane(id))?;
        // Copied, because a slice would keep the receive buffer alive during a long response.
        sent.to_str().ok().map(header_text)
    }

    /// Returns true if a web page under this name and port can only be ours.
    pub fn is_certain(&self, authority: &str) -> bool {
        self.hosts.load().is_certain(authority)
    }

    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Loads the certificate again if its files have changed. Blocks.
    fn look_again(&self) {
        if let Some(tls) = &self.tls {
            tls.look_again();
        }
    }
}

/// Dropped last, to write the remaining lines of the access log. Blocks for a short time.
pub struct LastLines(pub Arc<Edge>);

impl Drop for LastLines {
    fn drop(&mut self) {
        if let Some(log) = &self.0.access {
            log.finish();
        }
    }
}

/// Accepts only characters that are safe in logs and headers.
fn is_sane(id: &HeaderValue) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(is_plain)
}

/// Never waits, because a refused connection must cost no time.
fn turn_away(socket: Socket, has_tls: bool) {
    tracing::debug!("connection refused: limit reached (server.connections_max)");
    if !has_tls {
        socket.write_and_close(FULL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_limit_response_has_the_content_length_it_declares() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{}",
            body.len()
        );
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "connections_max");
    }

    #[test]
    fn a_client_request_id_is_accepted_only_if_it_is_short_and_plain() {
        for (id, sane) in [
            ("abc-123", true),
            ("trace:1/2+3==", true),
            ("", false),
            ("a b", false),
            ("<script>", false),
            ("a\"b", false),
        ] {
            assert_eq!(is_sane(&HeaderValue::from_str(id).unwrap()), sane, "{id}");
        }
        let long = "x".repeat(ID_BYTES_MAX + 1);
        assert!(!is_sane(&HeaderValue::from_str(&long).unwrap()));
    }
}
