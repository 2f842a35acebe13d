//! The border between the network and the routes: connections and their limits, TLS, the client's address, the names
//! of this service, request bodies, and the access log. Every request passes here before its route runs.
//!
//! Keys, models and limits of use are for the routes. The edge knows a route only by its path, and only for this: web
//! pages of other origins may be allowed to call `/v1/`; `/docs` and `/admin` get security headers (`dressing`); a name
//! in `/v1/models/` may have an encoded slash (`refusing`); answers of the Messages API get Anthropic's `request-id`,
//! and their errors Anthropic's form, because a request can be refused before its route runs.
//!
//! ```text
//! socket ─▶ seats ─▶ tls ─▶ connection ───────────▶ Front::answer ─▶ the routes
//!                             │ connection_watch      │ client, hosts, refusing
//!                             ▼                       ▼ arriving on the way in; dressing, exchange on the way out
//!                           cut or close            access_log
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
mod hosts;
pub(super) mod record;
mod refusing;
mod seats;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use axum::response::IntoResponse;
use futures_util::FutureExt;
use hyper::body::Body as _;
use hyper::body::Incoming;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::access_log::{AccessLog, AccessLogError};
use self::arriving::{Arriving, throw_away};
use self::bodies::Bodies;
pub(super) use self::client::ClientAddress;
use self::connection_watch::{IdleTimeouts, Turn};
use self::exchange::{Exchange, Sent};
use self::hosts::Hosts;
use self::record::Record;
use self::seats::Seats;
use self::tls::{Tls, TlsError};
use super::dialect::anthropic;
use super::error::Failure;
use super::state::App;
use config::{Config, Network};
use controller::Clock;

/// A client's own request id is taken up to this length.
const ID_BYTES_MAX: usize = 128;
/// What a client hears for which there is no connection.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 165\r\n\r\n{\"error\":{\"message\":\"there are as many connections as may be (server.connections_max); come back later\",\"type\":\"server_error\",\"param\":null,\"code\":\"connections_max\"}}";

#[derive(Debug, Error)]
pub enum EdgeError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
}

/// What all connections share.
pub struct Edge {
    tls: Option<Tls>,
    access: Option<AccessLog>,
    bodies: Arc<Bodies>,
    hosts: Hosts,
    proxies: Vec<Network>,
    patience: IdleTimeouts,
    seats: Arc<Seats>,
    base: String,
    told_of_proxy: OnceFlag,
}

/// What is wrong with a proxy is said once: it is the same for each of its requests.
#[derive(Debug, Default)]
struct OnceFlag(AtomicBool);

impl OnceFlag {
    fn look(&self, client: &ClientAddress, peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) {
        // From elsewhere nobody is taken for this machine anyway.
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
    /// Reads the certificate and opens the log. `files_max` is how many files the system lets us open.
    pub fn open(config: &Config, clock: Clock, files_max: Option<u64>) -> Result<Edge, EdgeError> {
        let server = &config.server;
        Ok(Edge {
            tls: server.tls.as_ref().map(Tls::open).transpose()?,
            access: AccessLog::open(&server.access_log, server.access_log_max.0.0)?,
            bodies: Arc::new(Bodies::of(server, clock)),
            hosts: Hosts::of(server),
            proxies: server.trusted_proxies.clone(),
            patience: IdleTimeouts {
                idle: server.idle_timeout.duration(),
                write: server.write_timeout.duration(),
            },
            seats: Arc::new(Seats::of(server, files_max)),
            base: server.base_path.as_str().to_owned(),
            told_of_proxy: OnceFlag::default(),
        })
    }

    /// Reads the certificate again; why it could not be, if it could not. It blocks.
    pub(super) fn reload(&self) -> Option<String> {
        let failed = self.tls.as_ref()?.reload().err()?;
        tracing::warn!("{failed}; the certificate from before stays in use");
        Some(format!(
            "{failed}; the certificate from before stays in use"
        ))
    }

    /// Routes that web pages may be allowed to call.
    fn is_inference(&self, path: &str) -> bool {
        let below = path.strip_prefix(&self.base).unwrap_or(path);
        below.starts_with("/v1/")
    }

    /// Whether a web page under this name and port can only be ours.
    pub(super) fn is_certain(&self, authority: &str) -> bool {
        self.hosts.is_certain(authority)
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Takes the new certificate if its files have changed. It blocks.
    pub(super) fn look_again(&self) {
        if let Some(tls) = &self.tls {
            tls.look_again();
        }
    }
}

/// Dropped at the very end: the last lines of the access log are written. It blocks for a moment.
pub struct LastLines(pub Arc<Edge>);

impl Drop for LastLines {
    fn drop(&mut self) {
        if let Some(log) = &self.0.access {
            log.finish();
        }
    }
}

pub(super) const LOOK_EVERY: std::time::Duration = tls::LOOK_EVERY;

/// What every connection needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct Front {
    pub app: App,
    pub router: Router,
    /// The same for web pages of other origins, where any may ask.
    pub for_pages: Option<Router>,
}

impl Front {
    /// Serves a connection; nothing if there are too many, which the client is told.
    pub fn connection(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        stop: CancellationToken,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let edge = &self.app.edge;
        let Some(seat) = edge.seats.take(peer.ip()) else {
            turn_away(socket, edge.has_tls());
            return None;
        };
        // Small frames of a stream must not wait for the client's acknowledgements.
        let _ = socket.set_nodelay(true);
        Some(connection::serve(socket, peer, self.clone(), seat, stop))
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
        turn: Turn,
    ) -> Response<Sent> {
        let Front {
            app,
            router,
            for_pages,
        } = self;
        let edge = Arc::clone(&app.edge);
        let (mut parts, body) = request.into_parts();
        let sent = parts.headers.get("x-request-id");
        let id = sent.filter(|id| is_sane(id)).cloned();
        let id = id.unwrap_or_else(|| app.request_ids.next());
        let text = id.to_str().unwrap_or_default().to_owned();
        let client = ClientAddress::of(peer.ip(), &parts.headers, &edge.proxies);
        edge.told_of_proxy
            .look(&client, peer.ip(), &parts.headers, &edge.proxies);
        let clock = app.handle.clock();
        let span = tracing::info_span!("request", id = text);
        let exchange = Exchange::begin(&edge, turn, clock, text, &parts, client.address);
        let (path, version) = (parts.uri.path().to_owned(), parts.version);
        let checked = edge.hosts.check(&parts);
        let for_pages = for_pages.filter(|_| edge.is_inference(&path));
        let checked = checked.and_then(|()| refusing::check(&parts, &edge.base));
        let router = for_pages.unwrap_or(router);
        let waits = parts.headers.contains_key(header::EXPECT);
        let (mut response, is_over) = match checked {
            Err(failure) => {
                let is_over = body.is_end_stream() || (!waits && throw_away(body).await);
                (failure.into_response(), is_over)
            }
            Ok(()) => {
                parts.extensions.insert(ConnectInfo(peer));
                parts.extensions.insert(client);
                parts.extensions.insert(super::audit::RequestId(id.clone()));
                let (body, outcome) = match body.is_end_stream() {
                    true => (Body::empty(), None),
                    false => {
                        let (body, outcome) = Arriving::new(body, &edge.bodies, &exchange.record);
                        (Body::new(body), Some(outcome))
                    }
                };
                let request = Request::from_parts(parts, body);
                let worked = work(router, request, &exchange.record).instrument(span);
                let response = worked.await;
                match outcome {
                    None => (response, true),
                    Some(outcome) => {
                        // Why a body did not arrive is known better here than by who waited for it.
                        let refused = outcome.refused().map(Failure::into_response);
                        let is_over = outcome.is_over(waits).await;
                        (refused.unwrap_or(response), is_over)
                    }
                }
            }
        };
        if !is_over && version < Version::HTTP_2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if anthropic::is_route(&path) {
            response = anthropic::retold(response, &id).await;
        }
        response.headers_mut().insert("x-request-id", id);
        dressing::dress(&path, &edge.base, response.headers_mut());
        let status = response.status().as_u16();
        response.map(|body| exchange.answered(status, body))
    }
}

/// What the routes answer; a handler that panics is no reason to leave its client without an answer.
async fn work(router: Router, request: Request<Body>, record: &Arc<Record>) -> Response<Body> {
    let routed = tower::ServiceExt::oneshot(router, request);
    let routed = AssertUnwindSafe(routed).catch_unwind();
    match record::within(Arc::clone(record), routed).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => {
            tracing::error!("a handler panicked");
            let message = "something went wrong inside; the service's log says what";
            Failure::internal(message).into_response()
        }
    }
}

/// Letters and signs that no log and no header stumbles over.
fn is_sane(id: &HeaderValue) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(is_plain)
}

/// Without waiting: who has no seat may cost no time either.
fn turn_away(socket: TcpStream, has_tls: bool) {
    tracing::debug!("a connection was turned away: there are server.connections_max of them");
    let Ok(mut socket) = socket.into_std() else {
        return;
    };
    if !has_tls {
        let _ = std::io::Write::write(&mut socket, FULL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_for_who_is_turned_away_have_the_length_they_say() {
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
    fn a_clients_request_id_is_taken_only_if_it_is_plain() {
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
