//! Forwards a request to the leader, and its response to the client. Connection-specific headers are removed, and the client's
//! address is added, so limits and `loopback` apply as if the request had been sent to the leader.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::uri::{Scheme, Uri};
use axum::http::{HeaderMap, Request, Response, Version};

use super::bodies::{Responding, Sending};
use super::leader::{Leader, Route};
use api_types::error::{ErrorKind, Failure};
use edge::ClientAddress;
use edge::shares::Permit;
use pool::Span;

/// Set on forwarded requests. A request that has it already means that the leader's address points to a standby.
pub(super) const PASSED_ON: HeaderName = HeaderName::from_static("x-model-pool-passed-on");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED: &str = "x-forwarded-";
/// A controller that takes over serves within seconds.
pub(super) const AGAIN_IN: Span = Span::from_secs(5);

/// Hop-by-hop headers (RFC 9110, 7.6.1), in addition to those named by `Connection`. This side sends
/// `100 Continue` when the leader reads the body.
const OF_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The sender of a request.
pub(super) struct Sender {
    pub client: ClientAddress,
    /// The peer is a trusted proxy, so its forwarding headers are kept.
    pub is_trusted_proxy: bool,
    pub has_tls: bool,
}

/// The leader's response, or an error without one.
pub(super) async fn forward(
    leader: Arc<Leader>,
    permit: Permit,
    (parts, body): (Parts, Sending),
    sender: &Sender,
) -> Result<Response<Body>, Failure> {
    let request = onward(&leader, parts, sender)?.map(|()| body);
    let gone = leader.gone.clone();
    let route = Route::to(leader);
    tokio::select! {
        ready = route.ready() => ready.map_err(|error| unreachable(&route.leader, &error))?,
        () = gone.cancelled() => return Err(replaced(&route.leader)),
    }
    let responded = tokio::select! {
        responded = route.connections.client.request(request) => responded,
        () = gone.cancelled() => return Err(lost("it is no longer the leader")),
    };
    let response = responded.map_err(|error| {
        if error.is_connect() {
            return unreachable(&route.leader, &error);
        }
        if !is_of_client(&error) {
            route.discard();
        }
        lost(&with_sources(&error))
    })?;
    let (mut head, body) = response.into_parts();
    remove_of_connection(&mut head.headers);
    let kind = head.headers.get(header::CONTENT_TYPE);
    let is_events = kind.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    let body = Body::new(Responding::new(body, route, is_events, permit));
    let mut reply = Response::new(body);
    *reply.status_mut() = head.status;
    *reply.headers_mut() = head.headers;
    Ok(reply)
}

fn unreachable(leader: &Leader, error: &dyn std::error::Error) -> Failure {
    let message = format!(
        "this standby controller cannot reach the leader ({}), and takes over once the leader is gone: {}",
        leader.address,
        with_sources(error)
    );
    Failure::new(ErrorKind::Unavailable, "no_leader", message).again_in(AGAIN_IN)
}

fn replaced(leader: &Leader) -> Failure {
    let message = format!(
        "{} is no longer the leader; send the request again in a few seconds",
        leader.address
    );
    Failure::new(ErrorKind::Unavailable, "no_leader", message).again_in(AGAIN_IN)
}

fn lost(why: &str) -> Failure {
    Failure::new(
        ErrorKind::Upstream,
        "leader_lost",
        format!(
            "the leader did not respond: {why}; it may have started the request; send it again"
        ),
    )
    .again_in(AGAIN_IN)
}

/// The request to forward, without its body.
fn onward(leader: &Leader, parts: Parts, sender: &Sender) -> Result<Request<()>, Failure> {
    let scheme = if leader.is_https {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    };
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(leader.authority.clone())
        .path_and_query(path)
        .build()
        .map_err(|_| Failure::invalid(None, "the request's target is not a path"))?;
    let mut headers = parts.headers;
    // Keeps the client's host name, which HTTP/2 has in the target.
    if let Some(authority) = parts.uri.authority()
        && !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(header::HOST, host);
    }
    remove_of_connection(&mut headers);
    headers.remove(header::EXPECT);
    name_client(&mut headers, sender);
    headers.insert(PASSED_ON, HeaderValue::from_static("1"));
    let mut request = Request::new(());
    *request.method_mut() = parts.method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Ok(request)
}

fn remove_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Adds the client's address, which the leader accepts because it lists this controller in `server.trusted_proxies`. A client
/// hidden behind a proxy of this machine must not count as local to the leader either.
fn name_client(headers: &mut HeaderMap, sender: &Sender) {
    let named: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !sender.is_trusted_proxy && name.as_str().starts_with(FORWARDED))
        .cloned()
        .collect();
    for name in named.iter().chain([&header::FORWARDED, &FORWARDED_FOR]) {
        headers.remove(name);
    }
    let client = sender.client;
    let named = if client.is_hidden && client.address.is_loopback() {
        "unknown".to_owned()
    } else {
        client.address.to_string()
    };
    if let Ok(named) = HeaderValue::from_str(&named) {
        headers.insert(FORWARDED_FOR, named);
    }
    let scheme = if sender.has_tls { "https" } else { "http" };
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static(scheme));
}

/// The client's body broke, so the connection to the leader had to be closed.
fn is_of_client(error: &hyper_util::client::legacy::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_user)
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(address: &str, is_hidden: bool, is_trusted_proxy: bool) -> Sender {
        Sender {
            client: ClientAddress {
                address: address.parse().expect("an address"),
                is_hidden,
            },
            is_trusted_proxy,
            has_tls: true,
        }
    }

    fn parts(target: &str, headers: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn sent(
        target: &str,
        headers: &[(&'static str, &'static str)],
        sender: &Sender,
    ) -> Request<()> {
        let leader = Leader::at("https://pool-1:8443", None).unwrap_or_else(|why| panic!("{why}"));
        onward(&leader, parts(target, headers), sender)
            .unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn d4_a_request_is_forwarded_under_its_host_name_without_hop_by_hop_headers() {
        let request = sent(
            "/llm/v1/models?x=1",
            &[
                ("host", "pool.lab"),
                ("authorization", "Bearer key"),
                ("connection", "close, X-Own"),
                ("x-own", "1"),
                ("keep-alive", "timeout=5"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "websocket"),
                ("te", "trailers"),
                ("expect", "100-continue"),
            ],
            &sender("10.0.0.9", false, false),
        );
        assert_eq!(
            request.uri().to_string(),
            "https://pool-1:8443/llm/v1/models?x=1"
        );
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "authorization",
                "host",
                "x-forwarded-for",
                "x-forwarded-proto",
                "x-model-pool-passed-on"
            ]
        );
        assert_eq!(request.headers()["host"], "pool.lab");
        let of_h2 = sent(
            "https://pool.lab/v1",
            &[],
            &sender("10.0.0.9", false, false),
        );
        assert_eq!(of_h2.headers()["host"], "pool.lab");
    }

    #[test]
    fn d4_the_forwarded_client_address_is_set_by_this_side_and_cannot_be_spoofed() {
        let forwarded = [
            ("x-forwarded-for", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1"),
            ("x-forwarded-proto", "gopher"),
        ];
        for (sender, named, proto) in [
            (sender("10.0.0.9", true, false), "10.0.0.9", "https"),
            (sender("192.0.2.1", false, true), "192.0.2.1", "gopher"),
            // Behind an untrusted proxy of this machine.
            (sender("127.0.0.1", true, false), "unknown", "https"),
            (sender("127.0.0.1", false, false), "127.0.0.1", "https"),
        ] {
            let request = sent("/v1/models", &forwarded, &sender);
            let headers = request.headers();
            assert_eq!(headers["x-forwarded-for"], named);
            assert_eq!(headers["x-forwarded-proto"], proto);
            assert!(!headers.contains_key("forwarded"));
        }
    }
}
