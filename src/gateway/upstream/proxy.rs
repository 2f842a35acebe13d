//! Sends requests to engines while the lease lives, with as little parsing as possible. Dropping either end closes the other.

use std::sync::Arc;

use axum::body::Bytes;
use hyper::{Method, Request, Response, Uri, header};

use crate::upstream::connection_pool::ConnectionPool;
pub use crate::upstream::connection_pool::Incoming;
use crate::upstream::engine_connection::SendError;
use crate::upstream::remote;
use crate::upstream::stream_support::StreamSupport;
use controller::Lease;
use edge::header_text::header_text;
use edge::record;

/// The client side of all engines: a connection pool keyed by replica.
#[derive(Debug, Default)]
pub struct Upstream {
    wires: Arc<ConnectionPool>,
    /// Engines known to refuse streams.
    pub support: StreamSupport,
}

impl Upstream {
    /// Sends one request to the lease's engine. `kind` is its `content-type`. Errors cover connecting and the response head.
    ///
    /// If a reused connection ends without a response, the engine closed it while the request was on its way, as llama-server does
    /// after each stream; the request is sent again on another connection. On a new connection, the request may have reached the
    /// engine, so the failure is reported. Requests to remote endpoints, which may bill them, are never sent twice.
    pub async fn send(
        &self,
        lease: &Lease,
        method: Method,
        path: &str,
        (kind, body): (&header::HeaderValue, Bytes),
    ) -> Result<Response<Incoming>, SendError> {
        let replica = lease.replica();
        let remote = remote::of_lease(lease);
        let there = remote.map(|remote| remote.path(path));
        let uri = uri_of(there.as_deref().unwrap_or(path));
        let context = record::trace(|trace| trace.attempt(path, replica.0));
        let mut tries = 0;
        loop {
            let mut wire = self.wires.take(replica, lease.endpoint()).await?;
            let mut headers = wire.head_map();
            headers.insert(header::CONTENT_TYPE, kind.clone());
            if !body.is_empty() {
                headers.insert(header::CONTENT_LENGTH, header_text(body.len()));
            }
            match remote {
                Some(remote) => headers.extend(remote.headers()),
                None => {
                    let host = header::HeaderValue::from_static("localhost");
                    headers.insert(header::HOST, host);
                    if let Some(context) = &context {
                        context.write(&mut headers);
                    }
                }
            }
            let mut request = Request::new(body.clone());
            request.uri_mut().clone_from(&uri);
            request.method_mut().clone_from(&method);
            *request.headers_mut() = headers;
            tries += 1;
            let responded_before = wire.responded;
            match wire.send(request).await {
                Ok(response) => return Ok(Incoming::new(response, wire, replica, &self.wires)),
                // The request has not reached the engine.
                Err(SendError::Unsent) if tries < TRIES_MAX => {}
                Err(error)
                    if tries < TRIES_MAX
                        && remote.is_none()
                        && responded_before
                        && error.is_without_response() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The most frequent routes, whose URIs need no allocation.
const USUAL: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"];

fn uri_of(path: &str) -> Uri {
    match USUAL.into_iter().find(|usual| *usual == path) {
        Some(usual) => Uri::from_static(usual),
        None => {
            let uri = Uri::builder().path_and_query(path).build();
            uri.expect("a route makes a URI")
        }
    }
}

/// Two idle connections may have been closed at the same time; three failures in a row are deliberate.
const TRIES_MAX: u32 = 3;
