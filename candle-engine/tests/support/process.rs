//! An engine in a separate process, for tests that inspect its memory or its exit, and a client for it. The process is the test
//! binary itself, in which an ignored test calls [`serve_if_asked`].

use super::{Events, MODEL, whole};
use candle_engine::{EngineOptions, Listen, Speculation, TokenBudgets, serve};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// The environment variable with the child's settings.
const VARIABLE: &str = "ENGINE_OF_A_TEST";

/// The settings of the process's engine.
pub struct ProcessSettings<'a> {
    pub model: &'a Path,
    pub context_tokens: usize,
    pub concurrency: usize,
    /// Limit on the tokens of all running requests.
    pub total_tokens: usize,
    /// Enable speculative decoding.
    pub speculates: bool,
}

/// In the child, serves until standard input ends. Does nothing in any other process.
pub fn serve_if_asked() {
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return;
    };
    let wanted: Value = serde_json::from_str(&wanted).expect("JSON");
    let path = |name: &str| PathBuf::from(wanted[name].as_str().expect("a path"));
    let count = |name: &str| wanted[name].as_u64().expect("a count") as usize;
    let options = EngineOptions {
        context_tokens: count("context_tokens"),
        concurrency: count("concurrency"),
        budgets: TokenBudgets {
            total: Some(count("total_tokens")),
            ..TokenBudgets::default()
        },
        speculation: if wanted["speculates"] == true {
            Speculation::default()
        } else {
            Speculation::OFF
        },
        ..super::options(&path("model"), Listen::Unix(path("socket")))
    };
    let (stop, stopped) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(stop);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime
        .block_on(serve(options, async { drop(stopped.await) }))
        .expect("serves");
}

/// A child process, killed on drop.
pub struct Process {
    folder: TempDir,
    child: Child,
}

impl Process {
    /// Starts the process with the name of the ignored test that calls [`serve_if_asked`], and waits until it is ready.
    pub async fn start(test: &str, wanted: &ProcessSettings<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let said = json!({
            "model": wanted.model, "socket": folder.path().join("socket"), "context_tokens": wanted.context_tokens,
            "concurrency": wanted.concurrency, "total_tokens": wanted.total_tokens, "speculates": wanted.speculates,
        });
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, said.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let mut process = Self { folder, child };
        while !process.client().is_ready().await {
            let ended = process.child.try_wait().expect("a status");
            assert!(ended.is_none(), "the engine ended: {ended:?}");
            tokio::task::yield_now().await;
        }
        process
    }

    pub fn client(&self) -> Client {
        Client {
            socket: self.folder.path().join("socket"),
        }
    }

    /// Resident memory in bytes: anonymous, and of mapped files.
    pub fn resident_bytes(&self) -> (u64, u64) {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let bytes = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .expect("the line");
            line.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .expect("a number")
                * 1024
        };
        (bytes("RssAnon:") + bytes("RssShmem:"), bytes("RssFile:"))
    }

    /// Shuts the process down and waits for its end.
    pub fn stop(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("a status");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends requests to an engine's socket, each over a new connection.
#[derive(Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A response that is not JSON.
    pub async fn text(&self, path: &str) -> String {
        let request = Request::get(path).body(Full::default()).expect("a request");
        let response = self.send(request).await.expect("the engine answers");
        let body = response
            .into_body()
            .collect()
            .await
            .expect("a complete body");
        String::from_utf8_lossy(&body.to_bytes()).into_owned()
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        let request = Request::get(path).body(Full::default()).expect("a request");
        whole(self.send(request).await.expect("the engine answers")).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        whole(self.open(path, body).await).await
    }

    pub async fn stream(&self, path: &str, body: &Value) -> Events {
        let response = self.open(path, body).await;
        assert_eq!(response.status(), StatusCode::OK, "{body}");
        Events {
            body: response.into_body(),
            text: String::new(),
        }
    }

    async fn open(&self, path: &str, body: &Value) -> Response<Incoming> {
        let mut body = body.clone();
        body["model"] = json!(MODEL);
        let request = Request::post(path).header("content-type", "application/json");
        let request = request
            .body(Full::new(body.to_string().into()))
            .expect("a request");
        self.send(request).await.expect("the engine answers")
    }

    async fn is_ready(&self) -> bool {
        let request = Request::get("/health")
            .body(Full::default())
            .expect("a request");
        self.send(request)
            .await
            .is_some_and(|response| response.status() == StatusCode::OK)
    }

    /// Returns `None` if nothing listens on the socket.
    async fn send(&self, mut request: Request<Full<bytes::Bytes>>) -> Option<Response<Incoming>> {
        request
            .headers_mut()
            .insert("host", "engine".parse().expect("a header"));
        let stream = UnixStream::connect(&self.socket).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the connection ends with its last response"
        )]
        tokio::spawn(connection);
        sender.send_request(request).await.ok()
    }
}
