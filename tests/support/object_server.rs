//! A server with the part of S3's API that files of batches need, for objects of one request each. It keeps them in memory, and
//! refuses requests on demand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::buckets::{KEY, SECRET};
use crate::http_server;

#[derive(Default)]
struct Inner {
    /// By bucket and key, `lab/files/a`.
    objects: BTreeMap<String, Bytes>,
    refuses: bool,
}

/// The server, which runs until the process ends.
#[derive(Clone)]
pub struct ObjectServer {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

impl ObjectServer {
    pub fn start() -> ObjectServer {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let routes = Router::new()
            .fallback(respond)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&inner));
        let address = http_server::serve(routes);
        ObjectServer { inner, address }
    }

    /// The variables by which a pool finds the server.
    pub fn env(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Refuses all requests, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.inner.lock().unwrap().refuses = refuses;
    }

    pub fn object(&self, path: &str) -> Option<Bytes> {
        self.inner.lock().unwrap().objects.get(path).cloned()
    }

    pub fn remove(&self, path: &str) {
        self.inner.lock().unwrap().objects.remove(path);
    }

    /// The buckets and keys of all objects.
    pub fn paths(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        inner.objects.keys().cloned().collect()
    }
}

async fn respond(
    State(inner): State<Arc<Mutex<Inner>>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let mut inner = inner.lock().unwrap();
    if inner.refuses {
        return error(StatusCode::FORBIDDEN, "AccessDenied");
    }
    let path = uri.path().trim_start_matches('/').to_owned();
    let tag = [(header::ETAG, "\"1\"")];
    match method {
        Method::PUT => {
            inner.objects.insert(path, body);
            (StatusCode::OK, tag).into_response()
        }
        Method::GET => match inner.objects.get(&path) {
            Some(content) => (StatusCode::OK, tag, content.clone()).into_response(),
            None => error(StatusCode::NOT_FOUND, "NoSuchKey"),
        },
        Method::DELETE => {
            inner.objects.remove(&path);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }
}

fn error(status: StatusCode, code: &str) -> Response {
    let body = format!("<Error><Code>{code}</Code><Message>{KEY}</Message></Error>");
    (status, body).into_response()
}
