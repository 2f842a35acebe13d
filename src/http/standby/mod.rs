//! The server of a standby controller (D4): it reports its own state and forwards every other request to the leader. It decides
//! nothing, reads no body, and queues no request: without a leader, it responds with 503.
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
use api_types::error::{ErrorKind, Failure};
use controller::Clock;
use edge::listener::Listener;
use edge::shares::{Caller, Capacity, Class, Permit, Shares};
use edge::{ConnectionService, Edge, Exchange, REQUEST_ID, Sent, Turn, throw_away};
use gateway::request_ids::RequestIds;
use node_link::STANDBY_CODE;

/// Largest number of simultaneously forwarded requests; each takes a connection to the leader.
pub(crate) const PASSED_ON_MAX: u64 = 4096;

/// A standby controller. Cheap to clone.
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

/// The known leader.
struct Lead {
    /// The last known leader, which may still complete responses.
    last: Option<Arc<Leader>>,
    /// The reason why there is currently no leader.
    leaderless: Option<String>,
}

/// The handling of a request.
enum Course {
    Here(Response<Body>),
    On(Arc<Leader>, Permit),
}

impl Standby {
    /// `base`: `server.base_path`.
    pub fn new(edge: Arc<Edge>, clock: Clock, base: &str) -> Standby {
        let unknown = Lead {
            last: None,
            leaderless: Some("the leader is not known yet".to_owned()),
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

    /// Forwards requests to the leader at this address from now on. Returns true if the leader has changed.
    ///
    /// # Errors
    /// A description of the problem with the address. There is then no leader.
    pub fn follow(&self, address: &str, fingerprint: Option<&str>) -> Result<bool, String> {
        let now = self.0.lead.load_full();
        let last = now.last.as_ref();
        let same = last.filter(|leader| leader.is_at(address, fingerprint));
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
        if let Some(former) = last.filter(|former| !Arc::ptr_eq(former, &leader)) {
            former.gone.cancel();
        }
        self.0.lead.store(Arc::new(Lead {
            last: Some(leader),
            leaderless: None,
        }));
        Ok(true)
    }

    /// Records the loss of the leader. Responses in progress continue, because the leader may still run when only the database is
    /// unreachable.
    pub fn wait(&self, why: &str) {
        let now = self.0.lead.load_full();
        if now.leaderless.as_deref() != Some(why) {
            self.0.lead.store(Arc::new(Lead {
                last: now.last.clone(),
                leaderless: Some(why.to_owned()),
            }));
        }
    }

    /// Records that this process is now the leader. Responses of the former leader are cut.
    pub fn leads(&self) {
        let former = self.0.lead.swap(Arc::new(Lead {
            last: None,
            leaderless: Some("this controller is becoming the leader".to_owned()),
        }));
        if let Some(former) = &former.last {
            former.gone.cancel();
        }
    }

    /// Serves until `stop` fires. Responses in progress then continue for as long as the caller allows.
    pub async fn serve(self, listener: Listener, stop: CancellationToken) {
        edge::accept(listener, self, stop).await;
    }
}

impl Own {
    fn course(&self, parts: &Parts, caller: Caller) -> Course {
        if let Err(failure) = self.edge.check(parts) {
            return Course::Here(failure.into_response());
        }
        let lead = self.lead.load_full();
        if let Some(response) = self.own_response(parts, &lead) {
            return Course::Here(response);
        }
        if parts.headers.contains_key(PASSED_ON) {
            let message = "the leader's address points to a standby controller; correct state.standby.advertise of the leader";
            return Course::Here(unavailable("no_leader", message).into_response());
        }
        let leader = match (&lead.last, &lead.leaderless) {
            (Some(leader), None) => Arc::clone(leader),
            (_, why) => {
                let why = why.as_deref().unwrap_or_default();
                let message = format!(
                    "there is currently no leader: {why}; send the request again in a few seconds"
                );
                return Course::Here(unavailable("no_leader", &message).into_response());
            }
        };
        let now = self.clock.now();
        match self.permits.try_hold(caller, Class::Small, 1, now) {
            Some(permit) => Course::On(leader, permit),
            None => {
                let message = format!(
                    "this standby controller forwards at most {PASSED_ON_MAX} requests, shared between addresses; retry later, or send requests to the leader"
                );
                Course::Here(unavailable("standby_busy", &message).into_response())
            }
        }
    }

    /// Responses about this process rather than the pool.
    fn own_response(&self, parts: &Parts, lead: &Lead) -> Option<Response<Body>> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return None;
        }
        let path = parts.uri.path();
        let below = path.strip_prefix(&self.base);
        let why = lead.leaderless.as_deref();
        let leader = lead.last.as_ref().filter(|_| why.is_none());
        let address = leader.map(|leader| leader.address.as_str());
        match (path, below) {
            ("/health", _) | (_, Some("/health")) => {
                let body = json!({"status": "ok", "role": "standby", "leader": address});
                Some(Json(body).into_response())
            }
            (_, Some("/ready")) => {
                let status = match address {
                    Some(_) => StatusCode::OK,
                    None => ErrorKind::Unavailable.status(),
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
                        "this controller is a standby, and {address} is the leader; start the node with both in --controller"
                    ),
                    (None, why) => format!(
                        "this controller is a standby, and there is no leader: {}",
                        why.unwrap_or_default()
                    ),
                };
                Some(unavailable(STANDBY_CODE, &message).into_response())
            }
            _ => None,
        }
    }
}

/// The only metric of a standby.
const METRICS: &str = "# HELP model_pool_leader 1 if this controller is the leader; 0 if it is a standby.\n# TYPE model_pool_leader gauge\nmodel_pool_leader 0\n";

fn unavailable(code: &'static str, message: &str) -> Failure {
    Failure::new(ErrorKind::Unavailable, code, message).again_in(AGAIN_IN)
}

impl ConnectionService for Standby {
    fn edge(&self) -> &Arc<Edge> {
        &self.0.edge
    }

    fn clock(&self) -> Clock {
        self.0.clock
    }

    async fn respond(
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
                let passed = forward(leader, permit, (parts, body), &sender).await;
                (passed.unwrap_or_else(Failure::into_response), true)
            }
        };
        if !is_over && version < Version::HTTP_2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response.headers_mut().insert(REQUEST_ID, id);
        let status = response.status().as_u16();
        response.map(|body| exchange.respond(status, body))
    }
}
