//! Serves complete files of this node's cache to other nodes of the pool, over the listener that also relays requests to engines:
//! HTTP/1.1, each request with a token of the controller for one model. Sends few files simultaneously, and none while an engine
//! loads here, which needs the same disk.
//!
//! `GET /weights/MODEL/BLOB`: MODEL is the model's folder in the cache and BLOB the name of the content there.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, RANGE,
    RETRY_AFTER,
};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::machine::Machine;
use super::peer_body::PeerBody;
use engine::RelaySecret;
use node_link::is_peer_token;

/// The first part of the path, also used by the client.
pub(super) const ROUTE: &str = "/weights/";
/// A connection without any movement for this time is closed, which releases its file's seat.
const STALL_MAX: Duration = Duration::from_secs(60);
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of a request's head.
const HEAD_MAX: usize = 16 << 10;
/// Maximum length of the name of a model's folder.
const NAME_MAX: usize = 200;

pub(super) struct PeerServer {
    /// The folder with all models, if it exists.
    cache: Option<PathBuf>,
    secret: RelaySecret,
    at_once: u32,
    seats: Arc<Semaphore>,
    machine: Arc<Machine>,
}

/// The reason a file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NoToken,
    NotThere,
    /// The file ends before the offset.
    BeyondEnd,
    Busy,
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Refusal::NoToken => StatusCode::UNAUTHORIZED,
            Refusal::NotThere => StatusCode::NOT_FOUND,
            Refusal::BeyondEnd => StatusCode::RANGE_NOT_SATISFIABLE,
            Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Refusal::NoToken => {
                "this node sends weights only to nodes of its pool, with a token of their controller for each transfer\n"
            }
            Refusal::NotThere => "this node does not have the complete file\n",
            Refusal::BeyondEnd => "the file ends before that offset\n",
            Refusal::Busy => {
                "this node is sending as many files as node.peers_at_once allows, or is loading an engine; try again later\n"
            }
        }
    }
}

/// A file that may be sent, positioned at the requested offset.
struct GrantedFile {
    file: File,
    offset: u64,
    size: u64,
    seat: OwnedSemaphorePermit,
}

impl PeerServer {
    pub fn new(
        cache: Option<PathBuf>,
        secret: RelaySecret,
        at_once: u32,
        machine: Arc<Machine>,
    ) -> PeerServer {
        PeerServer {
            cache,
            secret,
            at_once,
            seats: Arc::new(Semaphore::new(at_once as usize)),
            machine,
        }
    }

    pub fn at_once(&self) -> u32 {
        self.at_once
    }

    /// Number of files being sent.
    pub fn serving(&self) -> u32 {
        let free = u32::try_from(self.seats.available_permits()).unwrap_or(u32::MAX);
        self.at_once.saturating_sub(free)
    }

    /// Serves the requests of one connection until it ends or stalls.
    pub async fn serve(
        self: &Arc<PeerServer>,
        io: impl AsyncRead + AsyncWrite + Unpin + Send,
    ) -> io::Result<()> {
        let moved: Arc<AtomicU64> = Arc::default();
        let service = service_fn(|request: Request<Incoming>| {
            let (server, moved) = (Arc::clone(self), Arc::clone(&moved));
            let (head, _) = request.into_parts();
            async move { Ok::<_, Infallible>(server.respond(&head, moved).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(BEGIN_WITHIN)
            // One file per connection: idle connections without a token must not hold any.
            .keep_alive(false)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(io), service);
        let stalled = async {
            let mut before = 0;
            loop {
                tokio::time::sleep(STALL_MAX).await;
                let now = moved.load(Ordering::Relaxed);
                if now == before {
                    return;
                }
                before = now;
            }
        };
        tokio::select! {
            ended = connection => ended.map_err(io::Error::other),
            () = stalled => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn respond(&self, head: &Parts, moved: Arc<AtomicU64>) -> Response<PeerBody> {
        let path = head.uri.path();
        let is_get = head.method == Method::GET;
        let named = path.strip_prefix(ROUTE).filter(|_| is_get);
        let named = named.and_then(|rest| rest.split_once('/'));
        let headers = &head.headers;
        let granted = match named.filter(|(model, _)| self.may(headers, model)) {
            Some((model, blob)) => self.grant(model, blob, offset_of(headers)).await,
            None => Err(Refusal::NoToken),
        };
        let mut response = Response::new(PeerBody::text("", Arc::clone(&moved)));
        match granted {
            Ok(granted) => {
                let GrantedFile {
                    file,
                    offset,
                    size,
                    seat,
                } = granted;
                if offset > 0 {
                    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                    let range = format!("bytes {offset}-{}/{size}", size - 1);
                    put(&mut response, CONTENT_RANGE, &range);
                }
                put(&mut response, ACCEPT_RANGES, "bytes");
                let blob = path.rsplit('/').next().unwrap_or_default();
                put(&mut response, ETAG, &format!("\"{blob}\""));
                *response.body_mut() = PeerBody::file(file, size - offset, moved, seat);
            }
            Err(refusal) => {
                *response.status_mut() = refusal.status();
                if refusal == Refusal::Busy {
                    put(&mut response, RETRY_AFTER, "1");
                }
                *response.body_mut() = PeerBody::text(refusal.text(), moved);
            }
        }
        response
    }

    /// Returns true if the request carries a token for this model.
    fn may(&self, headers: &HeaderMap, model: &str) -> bool {
        let sent = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let token = sent.and_then(|value| value.strip_prefix("Bearer "));
        let now = self.machine.controller_time();
        let (Some(token), Some(now)) = (token, now) else {
            return false;
        };
        is_peer_token(&self.secret, token, model, now)
    }

    async fn grant(&self, model: &str, blob: &str, offset: u64) -> Result<GrantedFile, Refusal> {
        let path = self.path_of(model, blob).ok_or(Refusal::NotThere)?;
        if self.machine.loads_an_engine() {
            return Err(Refusal::Busy);
        }
        let seat = Arc::clone(&self.seats).try_acquire_owned();
        let seat = seat.map_err(|_| Refusal::Busy)?;
        let opened = tokio::task::spawn_blocking(move || open(path, offset)).await;
        let (file, size) = opened.map_err(|_| Refusal::NotThere)??;
        Ok(GrantedFile {
            file,
            offset,
            size,
            seat,
        })
    }

    /// The path of the content, or `None` for names that cannot occur in the cache. Incomplete files have other names, which end in
    /// `.incomplete`.
    fn path_of(&self, model: &str, blob: &str) -> Option<PathBuf> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_model =
            model.starts_with("models--") && model.len() <= NAME_MAX && model.bytes().all(plain);
        let is_blob =
            matches!(blob.len(), 40 | 64) && blob.bytes().all(|byte| byte.is_ascii_hexdigit());
        let cache = self.cache.as_ref().filter(|_| is_model && is_blob)?;
        Some(cache.join(model).join("blobs").join(blob))
    }
}

/// Opens only regular files: a link could lead out of the cache.
fn open(path: PathBuf, offset: u64) -> Result<(File, u64), Refusal> {
    let found = std::fs::symlink_metadata(&path).map_err(|_| Refusal::NotThere)?;
    if !found.is_file() {
        return Err(Refusal::NotThere);
    }
    let mut file = File::open(&path).map_err(|_| Refusal::NotThere)?;
    let size = file.metadata().map_err(|_| Refusal::NotThere)?.len();
    if offset > 0 && offset >= size {
        return Err(Refusal::BeyondEnd);
    }
    let placed = file.seek(SeekFrom::Start(offset));
    placed.map_err(|_| Refusal::NotThere)?;
    Ok((file, size))
}

/// The requested offset. Ranges of other forms get the complete file, as HTTP allows.
fn offset_of(headers: &HeaderMap) -> u64 {
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
    from.and_then(|from| from.parse().ok()).unwrap_or(0)
}

fn put(response: &mut Response<PeerBody>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests;
