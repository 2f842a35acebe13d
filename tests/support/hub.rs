//! A server with the download API of the Hugging Face hub and faults on demand. It serves from memory and records its requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde_json::{Value, json};
use sha1::Digest as _;

use crate::http_server;
use crate::service::Pool;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Variables that set the hub's address and the download credentials.
const VARIABLES: &[&str] = &[
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
];
/// Size of one chunk of a body.
const CHUNK: usize = 8 << 10;

/// Faults and variations of the server.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// Requests without this token get the gated-model error.
    pub token: Option<String>,
    /// Each file response ends after this many bytes.
    pub cut_after: Option<usize>,
    /// The next responses with this file, as many as given, have a wrong byte in the middle.
    pub corrupt: Option<(String, u32)>,
    /// Number of next requests that get 503.
    pub busy: u32,
    /// Seconds in `Retry-After` of these.
    pub retry_after: Option<u32>,
    /// Files stop after this many bytes until this is reset.
    pub hold_after: Option<usize>,
    /// Large files are redirected to another host.
    pub redirect: bool,
    /// Range requests get the complete file.
    pub no_ranges: bool,
}

/// A request for a file.
#[derive(Clone, Debug)]
pub struct HubRequest {
    pub path: String,
    pub from: usize,
    pub authorization: Option<String>,
    pub host: String,
}

#[derive(Default)]
struct Inner {
    repositories: BTreeMap<String, BTreeMap<String, Bytes>>,
    manners: Manners,
    asked: Vec<HubRequest>,
    listed: u32,
    bytes_sent: usize,
}

#[derive(Clone)]
pub struct Hub {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

impl Hub {
    /// Starts on a free local port, and runs until the process ends.
    pub fn start() -> Hub {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let state = Arc::clone(&inner);
        let routes = Router::new()
            .route("/api/models", get(search))
            .route("/api/models/{org}/{name}/revision/{revision}", get(list))
            .route("/{org}/{name}/resolve/{commit}/{*path}", get(file))
            .with_state(state);
        Hub {
            inner,
            address: http_server::serve(routes),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A pool that downloads from this hub into the given cache, independent of the machine's hub variables. `config` adds
    /// sections.
    pub fn pool(
        &self,
        cache: &std::path::Path,
        files: &[(String, String)],
        config: &str,
        env: &[(&str, &str)],
    ) -> Pool {
        let config = format!(
            "sources: {{cache_dir: {cache:?}, hub: {:?}, keep_free: 1MiB}}\n{config}",
            self.url()
        );
        let mut all: Vec<(&str, &str)> = VARIABLES.iter().map(|name| (*name, "")).collect();
        all.extend(env);
        Pool::with_env(files, &config, &all)
    }

    pub fn add(&self, repository: &str, files: &[(&str, Vec<u8>)]) {
        let files = files.iter();
        let files = files.map(|(name, content)| ((*name).to_owned(), Bytes::from(content.clone())));
        let mut inner = self.inner.lock().unwrap();
        inner
            .repositories
            .insert(repository.to_owned(), files.collect());
    }

    /// Every file of a folder.
    pub fn add_folder(&self, repository: &str, folder: &std::path::Path) {
        let files = crate::folder::files_of(folder);
        let files: Vec<(&str, Vec<u8>)> = files
            .iter()
            .map(|(name, content)| (name.as_str(), content.clone()))
            .collect();
        self.add(repository, &files);
    }

    pub fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.inner.lock().unwrap().manners);
    }

    /// The requested files, in order.
    pub fn asked(&self) -> Vec<HubRequest> {
        self.inner.lock().unwrap().asked.clone()
    }

    /// Number of requests for the file list of a repository.
    pub fn listed(&self) -> u32 {
        self.inner.lock().unwrap().listed
    }

    /// Total bytes of files in all responses.
    pub fn bytes_sent(&self) -> usize {
        self.inner.lock().unwrap().bytes_sent
    }
}

type Shared = State<Arc<Mutex<Inner>>>;

fn error(status: u16, code: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("x-error-code", code.to_owned())], "{}").into_response()
}

/// The refusal of a request, if any.
fn refused(inner: &mut Inner, headers: &HeaderMap) -> Option<Response> {
    if inner.manners.busy > 0 {
        inner.manners.busy -= 1;
        let mut refusal = error(503, "");
        if let Some(seconds) = inner.manners.retry_after {
            let headers = refusal.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        return Some(refusal);
    }
    let wanted = inner.manners.token.as_ref()?;
    let sent = headers.get(header::AUTHORIZATION);
    let sent = sent.and_then(|sent| sent.to_str().ok());
    if sent == Some(&format!("Bearer {wanted}")) {
        None
    } else if sent.is_some() {
        Some(error(403, "GatedRepo"))
    } else {
        Some(error(401, "GatedRepo"))
    }
}

async fn list(
    state: Shared,
    Path((org, name, revision)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    let mut inner = state.lock().unwrap();
    inner.listed += 1;
    if let Some(refused) = refused(&mut inner, &headers) {
        return refused;
    }
    let Some(files) = inner.repositories.get(&format!("{org}/{name}")) else {
        return error(401, "RepoNotFound");
    };
    if !["main", "v1", COMMIT].contains(&revision.as_str()) {
        return error(404, "RevisionNotFound");
    }
    let siblings: Vec<Value> = files
        .iter()
        .map(|(name, content)| {
            let mut about = json!({
                "rfilename": name, "size": content.len(), "blobId": git_sha1(content),
            });
            if name.ends_with(".safetensors") || name.ends_with(".bin") {
                let sha256 = hex(&sha2::Sha256::digest(content));
                about["lfs"] = json!({"sha256": sha256, "size": content.len(), "pointerSize": 134});
            }
            about
        })
        .collect();
    axum::Json(json!({"sha": COMMIT, "siblings": siblings})).into_response()
}

/// Repositories whose names contain the text, in the hub's `expand` format; longer names have more downloads.
async fn search(
    state: Shared,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let mut inner = state.lock().unwrap();
    if let Some(refused) = refused(&mut inner, &headers) {
        return refused;
    }
    let named = |name: &str| {
        let mut values = query.iter().filter(|(key, _)| key == name);
        values.next().map(|(_, value)| value.to_lowercase())
    };
    let wanted = named("search").unwrap_or_default();
    let limit: usize = named("limit")
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(1000);
    let has_all = |id: &String| {
        let id = id.to_lowercase();
        wanted.split_whitespace().all(|word| id.contains(word))
    };
    let mut ids: Vec<&String> = inner.repositories.keys().filter(|id| has_all(id)).collect();
    if named("sort").as_deref() == Some("downloads") {
        ids.sort_by_key(|id| std::cmp::Reverse(id.len()));
    }
    let models = ids.into_iter().take(limit).map(|id| {
        let files = &inner.repositories[id];
        let is_gguf = files.keys().any(|file| file.ends_with(".gguf"));
        let mut about = json!({"_id": "0", "id": id});
        for (_, field) in query.iter().filter(|(key, _)| key == "expand") {
            about[field] = match field.as_str() {
                "downloads" => json!(id.len() * 1000),
                "tags" => json!([if is_gguf { "gguf" } else { "safetensors" }, "region:us"]),
                "pipeline_tag" => json!("text-generation"),
                "gated" => json!(false),
                _ => return Value::Null,
            };
        }
        about
    });
    axum::Json(models.collect::<Vec<Value>>()).into_response()
}

async fn file(
    state: Shared,
    Path((org, name, commit, path)): Path<(String, String, String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let text = |name: header::HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let range = text(header::RANGE).and_then(|range| {
        let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
        from.parse::<usize>().ok()
    });
    let (content, manners, from) = {
        let mut inner = state.lock().unwrap();
        let is_redirected = query.contains_key("elsewhere");
        inner.asked.push(HubRequest {
            path: path.clone(),
            from: range.unwrap_or(0),
            authorization: text(header::AUTHORIZATION),
            host: text(header::HOST).unwrap_or_default(),
        });
        if !is_redirected && let Some(refused) = refused(&mut inner, &headers) {
            return refused;
        }
        let files = inner.repositories.get(&format!("{org}/{name}"));
        let Some(content) = files.and_then(|files| files.get(&path)).cloned() else {
            return error(404, "EntryNotFound");
        };
        if inner.manners.redirect && path.ends_with(".safetensors") && !is_redirected {
            let host = text(header::HOST).unwrap_or_default();
            let host = host.replace("127.0.0.1", "localhost");
            let to = format!("http://{host}/{org}/{name}/resolve/{commit}/{path}?elsewhere=1");
            return (StatusCode::FOUND, [(header::LOCATION, to)], "").into_response();
        }
        let mut manners = inner.manners.clone();
        match &mut inner.manners.corrupt {
            Some((of, times)) if *of == path && *times > 0 => *times -= 1,
            _ => manners.corrupt = None,
        }
        let from = if manners.no_ranges {
            0
        } else {
            range.unwrap_or(0)
        };
        (content, manners, from)
    };
    let mut content = content.slice(from.min(content.len())..);
    let length = content.len();
    if manners.corrupt.is_some() && length > 0 {
        let mut wrong = content.to_vec();
        wrong[length / 2] ^= 1;
        content = wrong.into();
    }
    let status = match from {
        0 => StatusCode::OK,
        _ => StatusCode::PARTIAL_CONTENT,
    };
    let body = Body::from_stream(chunks(content, from, manners, state.0));
    (status, [(header::CONTENT_LENGTH, length)], body).into_response()
}

/// The rest of a file, chunk by chunk, with the configured faults.
fn chunks(
    content: Bytes,
    from: usize,
    manners: Manners,
    state: Arc<Mutex<Inner>>,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::unfold(0_usize, move |sent| {
        let (content, manners, state) = (content.clone(), manners.clone(), Arc::clone(&state));
        async move {
            let held = || {
                let inner = state.lock().unwrap();
                inner
                    .manners
                    .hold_after
                    .is_some_and(|after| from + sent >= after)
            };
            while sent < content.len() && held() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if manners.cut_after.is_some_and(|after| sent >= after) && sent < content.len() {
                // Lets the data before arrive.
                tokio::time::sleep(Duration::from_millis(5)).await;
                return Some((Err(std::io::Error::other("cut")), content.len()));
            }
            let end = (sent + CHUNK).min(content.len());
            if sent >= end {
                return None;
            }
            state.lock().unwrap().bytes_sent += end - sent;
            Some((Ok(content.slice(sent..end)), end))
        }
    })
}

fn git_sha1(content: &[u8]) -> String {
    let mut digest = sha1::Sha1::new();
    digest.update(format!("blob {}\0", content.len()));
    digest.update(content);
    hex(&digest.finalize())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
