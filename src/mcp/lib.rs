//! The Model Context Protocol at `/mcp`, over streamable HTTP without sessions: tools that read what administrators read, and changes
//! in two steps. A plan shows the effect and returns a token; `apply` carries out exactly that plan, or refuses.

mod caller;
mod plans;
mod requests;
mod schemas;
mod server;
mod tools;

pub use plans::{PLANS_PER_KEY_MAX, TOKEN_LIFETIME};

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use utoipa::openapi::OpenApi;

use crate::caller::Caller;
use crate::plans::Plans;
use crate::schemas::Schemas;
use crate::server::{CurrentRecord, PoolServer, Shared};
use api_types::error::Failure;
use dialect::shape::may_be_a_tree;
use edge::record;
use gateway::auth::cross_site;
use gateway::auth::identity::note_administrator;
use gateway::fields::read_body;
use gateway::state::App;

type Service = StreamableHttpService<PoolServer, NeverSessionManager>;

/// The route, relative to the base path. `routes` are the admin routes with their audit, and `document` describes them.
pub fn router(app: &App, routes: Router, document: &OpenApi) -> Router<App> {
    let shared = Arc::new(Shared {
        app: app.clone(),
        routes,
        tools: tools::all(&Schemas::new(document)),
        plans: Plans::default(),
    });
    let app = app.clone();
    let service = service(shared);
    let respond = move |request: Request| {
        // Boxed to keep the futures of other requests small.
        Box::pin(respond(service.clone(), app.clone(), request))
    };
    Router::new().route(tools::MCP, post(respond))
}

fn service(shared: Arc<Shared>) -> Service {
    // The edge and `cross_site` check hosts and origins, and `read_body` bounds the body.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let handler = move || Ok(PoolServer(Arc::clone(&shared)));
    StreamableHttpService::new(handler, Arc::new(NeverSessionManager::default()), config)
}

async fn respond(service: Service, app: App, request: Request) -> Response {
    match admitted(&app, request).await {
        Ok(request) => service.handle(request).await.map(Body::new),
        Err(failure) => failure.into_response(),
    }
}

/// The request with its caller and its complete body.
async fn admitted(app: &App, request: Request) -> Result<Request, Failure> {
    let (mut parts, body) = request.into_parts();
    cross_site::check(&parts, app).map_err(for_pages)?;
    let caller = Caller::new(&mut parts, app).await?;
    note_administrator(&parts, app).await;
    let bytes = read_body(Request::new(body), app).await?;
    let checked = bytes.clone();
    let check = move || may_be_a_tree(&checked);
    app.reading.run(bytes.len(), check).await?;
    parts.extensions.insert(caller);
    if let Some(record) = record::current() {
        parts.extensions.insert(CurrentRecord(record));
    }
    // The protocol requires both types; programs that accept everything mean them, too.
    let accept = parts.headers.get(header::ACCEPT);
    if accept.is_none_or(|accept| accept.as_bytes() == b"*/*") {
        let both = HeaderValue::from_static("application/json, text/event-stream");
        parts.headers.insert(header::ACCEPT, both);
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// The check is for requests without a key, and a key does not help here.
fn for_pages(mut failure: Failure) -> Failure {
    if failure.body.error.code == Some("cross_site") {
        "MCP refuses web pages of other sites, with and without a key; an administrator can list the page in server.cors, and a name of this machine in server.hosts"
            .clone_into(&mut failure.body.error.message);
    }
    failure
}
