//! What a controller answers while it stands by (D4): it says of itself that it does, and passes every other request on to the
//! one that leads. It decides nothing, reads no body, and keeps no request waiting: without a leader the answer is 503.
//!
//! ```text
//! client ─▶ edge ─▶ health, ready, metrics, node ─▶ answered here
//!                 └▶ everything else ─▶ the leader's address, from the table `leadership`
//! ```

mod bodies;
mod forward;
mod leader;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Json;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use axum::response::IntoResponse;
use hyper::body::Body as _;
use hyper::body::Incoming;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::bodies::Sending;
use self::forward::{AGAIN_IN, PASSED_ON, Sender, forward};
use self::leader::Leader;
use crate::accepting::accept;
use crate::edge::{self, Answer, Edge, Exchange, REQUEST_ID, Sent, Turn, throw_away};
use crate::error::Failure;
use crate::listener::{Listener, Socket};
use crate::request_ids::RequestIds;
use crate::shares::{Caller, Capacity, Class, Permit, Shares};
use controller::Clock;
use node_link::STANDBY_CODE;

/// Requests that are passed on simultaneously; each takes a connection to the leader.
pub(crate) const PASSED_ON_MAX: u64 = 4096;

/// A controller that stands by. Cheap to clone.
#[derive(Clone)]
pub struct Standby(Arc<Own>);

struct Own {
    edge: Arc<Edge>,
    clock: Clock,
    base: String,
    ids: RequestIds,
    lead: ArcSwap<Lead>,
    permits: Arc<Shares>,
}

/// Who leads, as far as it is known.
struct Lead {
    /// The last that did. It may still answer what it has begun.
    last: Option<Arc<Leader>>,
    /// Why there is no leader now.
    leaderless: Option<String>,
}

/// What becomes of a request.
enum Course {
    Here(Response<Body>),
    On(Arc<Leader>, Permit),
}

impl Standby {
    /// `base`: `server.base_path`.
    pub fn new(edge: Arc<Edge>, clock: Clock, base: &str) -> Standby {
        let unknown = Lead {
            last: None,
            leaderless: Some("it is not known yet who leads".to_owned()),
        };
        Standby(Arc::new(Own {
            edge,
            clock,
            base: base.to_owned(),
            ids: RequestIds::default(),
            lead: ArcSwap::from_pointee(unknown),
            permits: Shares::new(Capacity::divided(PASSED_ON_MAX)),
        }))
    }

    /// Passes requests on to the one at this address from now on. Whether that is news.
    ///
    /// # Errors
    /// What is wrong with the address; then there is no leader.
    pub fn follow(&self, address: &str, fingerprint: Option<&str>) -> Result<bool, String> {
        let now = self.0.lead.load_full();
        let last = now.last.as_ref();
        let same = last.filter(|it| it.is_at(address, fingerprint));
        if same.is_some() && now.leaderless.is_none() {
            return Ok(false);
        }
        let leader = match same {
            Some(same) => Arc::clone(same),
            None => match Leader::at(address, fingerprint) {
                Ok(leader) => Arc::new(leader),
                Err(why) => {
                    self.wait(&why);
                    return Err(why);
                }
            },
        };
        if let Some(former) = last.filter(|it| !Arc::ptr_eq(it, &leader)) {
            former.gone.cancel();
        }
        self.0.lead.store(Arc::new(Lead {
            last: Some(leader),
            leaderless: None,
        }));
        Ok(true)
    }

    /// There is no leader. What the former leader still answers goes on: it may be there, and only the database is not.
    pub fn wait(&self, why: &str) {
        let now = self.0.lead.load_full();
        if now.leaderless.as_deref() != Some(why) {
            self.0.lead.store(Arc::new(Lead {
                last: now.last.clone(),
                leaderless: Some(why.to_owned()),
            }));
        }
    }

    /// This process leads from now on: answers of the former leader do not go on.
    pub fn leads(&self) {
        let former = self.0.lead.swap(Arc::new(Lead {
            last: None,
            leaderless: Some("this controller begins to lead".to_owned()),
        }));
        if let Some(former) = &former.last {
            former.gone.cancel();
        }
    }

    /// Serves until `stop` fires; then answers that have begun go on, for as long as the caller lets them.
    pub async fn serve(self, listener: Listener, stop: CancellationToken) {
        let edge = Arc::clone(&self.0.edge);
        let connection =
            |socket, peer| -> Option<_> { self.connection(socket, peer, stop.clone()) };
        accept(listener, edge, stop.clone(), connection).await;
    }

    fn connection(
        &self,
        socket: Socket,
        peer: SocketAddr,
        stop: CancellationToken,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (socket, permit) = self.0.edge.admit(socket, peer)?;
        Some(edge::serve(socket, peer, self.clone(), permit, stop))
    }
}

impl Own {
    fn course(&self, parts: &Parts, caller: Caller) -> Course {
        if let Err(failure) = self.edge.check(parts) {
            return Course::Here(failure.into_response());
        }
        let lead = self.lead.load_full();
        if let Some(answer) = self.own_answer(parts, &lead) {
            return Course::Here(answer);
        }
        if parts.headers.contains_key(PASSED_ON) {
            let message = "the address of the controller that leads leads to one that stands by; correct state.standby.advertise of the one that leads";
            return Course::Here(unavailable("no_leader", message).into_response());
        }
        let leader = match (&lead.last, &lead.leaderless) {
            (Some(leader), None) => Arc::clone(leader),
            (_, why) => {
                let why = why.as_deref().unwrap_or_default();
                let message = format!(
                    "no controller leads at the moment: {why}; send the request again in some seconds"
                );
                return Course::Here(unavailable("no_leader", &message).into_response());
            }
        };
        let now = self.clock.now();
        match self.permits.try_hold(caller, Class::Small, 1, now) {
            Some(permit) => Course::On(leader, permit),
            None => {
                let message = format!(
                    "this controller stands by and passes on {PASSED_ON_MAX} requests at most, of which this address has its share; retry later, or ask the one that leads"
                );
                Course::Here(unavailable("standby_busy", &message).into_response())
            }
        }
    }

    /// What is asked of this process, and not of the pool.
    fn own_answer(&self, parts: &Parts, lead: &Lead) -> Option<Response<Body>> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return None;
        }
        let path = parts.uri.path();
        let below = path.strip_prefix(&self.base);
        let why = lead.leaderless.as_deref();
        let leader = lead.last.as_ref().filter(|_| why.is_none());
        let address = leader.map(|it| it.address.as_str());
        match (path, below) {
            ("/health", _) | (_, Some("/health")) => {
                let body = json!({"status": "ok", "role": "standby", "leader": address});
                Some(Json(body).into_response())
            }
            (_, Some("/ready")) => {
                let status = match address {
                    Some(_) => StatusCode::OK,
                    None => StatusCode::SERVICE_UNAVAILABLE,
                };
                let body = json!({
                    "ready": address.is_some(), "reason": why, "details": [], "role": "standby", "leader": address,
                });
                Some((status, Json(body)).into_response())
            }
            ("/metrics", _) => {
                let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4");
                Some(([kind], METRICS).into_response())
            }
            (_, Some("/node/connect")) => {
                let message = match (address, why) {
                    (Some(address), _) => format!(
                        "this controller stands by, and {address} leads; give the node both with --controller"
                    ),
                    (None, why) => format!(
                        "this controller stands by, and nobody leads: {}",
                        why.unwrap_or_default()
                    ),
                };
                Some(unavailable(STANDBY_CODE, &message).into_response())
            }
            _ => None,
        }
    }
}

/// All that this process counts.
const METRICS: &str = "# HELP model_pool_leader Whether this controller leads: 1; or stands by: 0.\n# TYPE model_pool_leader gauge\nmodel_pool_leader 0\n";

fn unavailable(code: &'static str, message: &str) -> Failure {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Failure::new(status, "server_error", code, message).again_in(AGAIN_IN)
}

impl Answer for Standby {
    fn edge(&self) -> &Arc<Edge> {
        &self.0.edge
    }

    fn clock(&self) -> Clock {
        self.0.clock
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
        turn: Turn,
    ) -> Response<Sent> {
        let own = self.0;
        let edge = Arc::clone(&own.edge);
        let (mut parts, body) = request.into_parts();
        let id = Edge::sent_id(&parts.headers).unwrap_or_else(|| own.ids.next());
        let client = edge.client(peer.ip(), &parts.headers);
        let ids = (id.clone(), None);
        let exchange = Exchange::begin(&edge, turn, own.clock, ids, &parts, client);
        let (path, version) = (parts.uri.path().to_owned(), parts.version);
        let waits = parts.headers.contains_key(header::EXPECT);
        let (mut response, is_over) = match own.course(&parts, Caller::at(client.address)) {
            Course::Here(mut response) => {
                edge.dress(&path, response.headers_mut());
                let is_over = body.is_end_stream() || (!waits && throw_away(body).await);
                (response, is_over)
            }
            Course::On(leader, permit) => {
                let sender = Sender {
                    client,
                    is_trusted_proxy: edge.trusts(peer.ip()),
                    has_tls: edge.has_tls(),
                };
                parts.headers.insert(REQUEST_ID, id.clone());
                let body = Sending {
                    body,
                    record: Arc::clone(&exchange.record),
                };
                let passed = forward(&leader, permit, (parts, body), &sender).await;
                (passed.unwrap_or_else(Failure::into_response), true)
            }
        };
        if !is_over && version < Version::HTTP_2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response.headers_mut().insert(REQUEST_ID, id);
        let status = response.status().as_u16();
        response.map(|body| exchange.answered(status, body))
    }
}
