//! Between the edge and the routes: every request gets its id, client address and limits here, and every response its headers.
//! Responses of the Messages API get Anthropic's `request-id`, and their errors Anthropic's form, because a request can be refused
//! before its route runs; errors of Ollama's API get Ollama's form.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Method, Request, Response, Version, header};
use axum::response::IntoResponse;
use futures_util::FutureExt;
use hyper::body::Body as _;
use hyper::body::Incoming;
use tower::{Layer, Service};
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::aliases;
use api_types::error::{ErrorKind, Failure};
use config::{ServerSection, WebOrigin};
use controller::Clock;
use dialect::{anthropic, ollama};
use edge::record::{self, Record};
use edge::{ConnectionService, Edge, Exchange, PlainBody, REQUEST_ID, Sent, Turn, throw_away};
use gateway::auth::actor::RequestId;
use gateway::batches;
use gateway::deployments;
use gateway::inference::stages;
use gateway::state::App;

/// State needed by every connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Front {
    pub app: App,
    pub router: Router,
}

impl ConnectionService for Front {
    fn edge(&self) -> &Arc<Edge> {
        &self.app.edge
    }

    fn clock(&self) -> Clock {
        self.app.handle.clock()
    }

    async fn respond(
        self,
        request: Request<Incoming>,
        peer: SocketAddr,
        turn: Turn,
    ) -> Response<Sent> {
        let Front { app, router } = self;
        let edge = Arc::clone(&app.edge);
        let connection = turn.connection();
        let (mut parts, body) = request.into_parts();
        let alias = aliases::resolve(parts.uri.path(), app.base());
        let mut deployment = None;
        if let Some(alias) = alias
            && let Some(uri) = aliases::with_path(&parts.uri, &alias.path)
        {
            parts.uri = uri;
            deployment = alias.model;
        }
        let id = Edge::sent_id(&parts.headers);
        let id = id.unwrap_or_else(|| app.request_ids.next());
        let client = edge.client(peer.ip(), &parts.headers);
        let clock = app.handle.clock();
        let trace = app.traces.as_ref().and_then(|traces| traces.begin(&parts));
        let ids = (id.clone(), trace);
        let exchange = Exchange::begin(&edge, turn, clock, ids, &parts, client);
        let (uri, version) = (parts.uri.clone(), parts.version);
        let path = uri.path();
        let checked = edge.check(&parts);
        let is_inference = edge.is_inference(path);
        let cors = is_inference
            .then(|| cors_layer(&app.config().server))
            .flatten();
        let usual = stages::direct_route(&parts, app.base());
        let is_anthropic = usual.is_none()
            && (anthropic::is_route(path)
                || (anthropic::is_models_route(path) && anthropic::speaks(&parts.headers)));
        let waits = parts.headers.contains_key(header::EXPECT);
        let usual = usual.filter(|_| cors.is_none() && deployment.is_none());
        let (mut response, is_over) = match (checked, usual) {
            (Err(failure), _) => {
                let is_whole = failure.kind != ErrorKind::HeadTooLarge;
                let is_read = body.is_end_stream() || (!waits && throw_away(body).await);
                (failure.into_response(), is_whole && is_read)
            }
            (Ok(()), Some(route)) => {
                let (mut body, record) = (PlainBody::new(body), &exchange.record);
                // Boxed to keep connections without a request small.
                let responded =
                    stages::respond_directly(app.clone(), parts, &mut body, record, route);
                let response = work(Box::pin(responded), record).await;
                (response, body.takes_another(waits).await)
            }
            (Ok(()), None) => {
                if let Some(prefix) = edge.prefix(peer.ip(), &parts.headers) {
                    parts.extensions.insert(prefix);
                }
                parts.extensions.insert(ConnectInfo(peer));
                parts.extensions.insert(RequestId(id.clone()));
                let (body, outcome) = if body.is_end_stream() {
                    (Body::empty(), None)
                } else if batches::is_upload(&parts, app.base()) {
                    let (body, outcome) = edge.streaming(body, &exchange.record);
                    (Body::new(body), Some(outcome))
                } else {
                    let (body, outcome) = edge.arriving(body, &exchange.record);
                    (Body::new(body), Some(outcome))
                };
                let request = Request::from_parts(parts, body);
                let record = &exchange.record;
                // Boxed to keep the future small for requests that bypass the router.
                let request = match deployment.filter(|_| request.method() == Method::POST) {
                    None => Ok(request),
                    Some(model) => {
                        let named = Box::pin(deployments::named(&app, request, model));
                        record::within(Arc::clone(record), named).await
                    }
                };
                let response = match (request, cors) {
                    (Err(failure), _) => failure.into_response(),
                    // Wraps the entire router, including fallbacks.
                    (Ok(request), Some(cors)) => {
                        let routed = Box::pin(routed(cors.layer(router), request));
                        work(routed, record).await
                    }
                    (Ok(request), None) => work(Box::pin(routed(router, request)), record).await,
                };
                match outcome {
                    None => (response, true),
                    Some(outcome) => {
                        // The reason why a body did not arrive is more precise than the handler's error.
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
        if is_anthropic {
            response = anthropic::retold(response, &id).await;
        }
        if app.config().compat.ollama && ollama::is_route(path, app.base()) {
            response = ollama::retold(response).await;
        }
        response.headers_mut().insert(REQUEST_ID, id);
        edge.dress(path, response.headers_mut());
        let status = response.status().as_u16();
        connection.moving.take(response.extensions_mut(), version);
        response.map(|body| exchange.respond(status, body))
    }
}

/// Runs the router.
async fn routed<S>(router: S, request: Request<Body>) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    match tower::ServiceExt::oneshot(router, request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Awaits the response. If the handler panics, responds with 500.
async fn work(
    responded: impl Future<Output = Response<Body>>,
    record: &Arc<Record>,
) -> Response<Body> {
    let responded = AssertUnwindSafe(responded).catch_unwind();
    let responded = async {
        responded.await.unwrap_or_else(|_| {
            tracing::error!("a handler panicked");
            let message = "internal error; see the server log";
            Failure::internal(message).into_response()
        })
    };
    record::within(Arc::clone(record), responded).await
}

/// Allows browsers on pages of the configured origins (`server.cors`). They send no cookies, so every caller needs a key as usual.
/// Built per request, because a reload may change the configuration.
fn cors_layer(server: &ServerSection) -> Option<CorsLayer> {
    let section = server.cors.as_ref()?;
    let origins = if section.origins.iter().any(WebOrigin::is_any) {
        AllowOrigin::any()
    } else {
        let section = section.clone();
        AllowOrigin::predicate(move |origin, _| {
            origin.to_str().is_ok_and(|origin| section.allows(origin))
        })
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
        // OpenAI's clients send a dozen custom headers.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
        .max_age(section.max_age.duration());
    Some(layer)
}
