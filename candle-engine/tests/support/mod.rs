//! A running engine for the tests and a small HTTP client on its socket.
#![allow(dead_code, reason = "every test binary uses a different part")]

pub mod process;

use bytes::Bytes;
use candle_engine::{EngineError, EngineOptions, Listen, NumberTypes, ProductType, serve};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const MODEL: &str = "test-model";
pub const CONTEXT_TOKENS: usize = 256;

pub const CHAT: &str = "/v1/chat/completions";
/// The demo model responds to it with [`RESPONSE`].
pub const QUESTION: &str = "Where is Swagger UI?";
pub const RESPONSE: &str =
    "Swagger UI is at /llm/docs, and the OpenAPI document is at /llm/openapi.json.";

/// A chat request with [`QUESTION`], and more fields.
pub fn ask(more: &Value) -> Value {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// A request that runs to the end of the context, because end tokens are banned.
pub fn endless(more: &Value) -> Value {
    let mut body = ask(&json!({"temperature": 2.0, "logit_bias": {"0": -100, "2": -100}}));
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// The text of a non-streaming response.
pub fn text(response: &Value) -> &str {
    response["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {response}"))
}

/// The folder of a demo model.
pub fn demo_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../demo/models")
        .join(name)
}

pub fn options(model_dir: &Path, listen: Listen) -> EngineOptions {
    EngineOptions {
        context_tokens: CONTEXT_TOKENS,
        concurrency: 2,
        // Results are compared with an F32 reference, so they are computed in F32 on every processor.
        numbers: NumberTypes {
            products: ProductType::F32,
            ..NumberTypes::default()
        },
        ..EngineOptions::new(model_dir, MODEL, listen)
    }
}

/// An engine in this process, on a separate Unix socket.
pub struct Engine {
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), EngineError>>,
}

impl Engine {
    /// Starts an engine and waits until it is ready.
    pub async fn start(concurrency: usize) -> Self {
        Self::start_loading(concurrency).until_ready().await
    }

    /// Starts an engine with these options; `folder` holds its socket, named `socket`.
    pub async fn start_with(options: EngineOptions, folder: TempDir) -> Self {
        Self::spawn(options, folder).until_ready().await
    }

    async fn until_ready(self) -> Self {
        let mut engine = self;
        while engine.connect().await.is_none() || engine.get("/health").await.0 != StatusCode::OK {
            if engine.served.is_finished() {
                panic!("the engine ended: {:?}", (&mut engine.served).await);
            }
            tokio::task::yield_now().await;
        }
        engine
    }

    pub fn start_loading(concurrency: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = EngineOptions {
            concurrency,
            ..options(
                &demo_model("tiny-chat"),
                Listen::Unix(folder.path().join("socket")),
            )
        };
        Self::spawn(options, folder)
    }

    fn spawn(options: EngineOptions, folder: TempDir) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        #[expect(
            clippy::disallowed_methods,
            reason = "the test owns the engine and awaits it in `stop`"
        )]
        let served = tokio::spawn(serve(options, async { drop(stopped.await) }));
        Self {
            folder,
            stop: Some(stop),
            served,
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    async fn connect(&self) -> Option<UnixStream> {
        UnixStream::connect(self.socket()).await.ok()
    }

    /// Shuts the engine down and waits for its end.
    pub async fn stop(mut self) -> Result<(), EngineError> {
        drop(self.stop.take());
        self.served.await.expect("serve does not panic")
    }

    /// Starts the shutdown without waiting.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        whole(
            self.send(Request::get(path).body(Full::default()).expect("a request"))
                .await,
        )
        .await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.post_bytes(path, body.to_string()).await
    }

    pub async fn post_bytes(&self, path: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        whole(self.open(path, body).await).await
    }

    /// Posts a request and returns its events one by one.
    pub async fn stream(&self, path: &str, body: &Value) -> Events {
        let response = self.open(path, body.to_string()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            body: response.into_body(),
            text: String::new(),
        }
    }

    /// Posts a form with a recording.
    pub async fn form(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        file: &[u8],
    ) -> Response<Incoming> {
        let mut body = Vec::new();
        for (name, value) in fields {
            let head = format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            body.extend([head.as_bytes(), value.as_bytes(), b"\r\n"].concat());
        }
        let head =
            "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"recording\"\r\n\r\n";
        body.extend([head.as_bytes(), file, b"\r\n--x--\r\n"].concat());
        let request = Request::post(path).header("content-type", "multipart/form-data; boundary=x");
        self.send(request.body(Full::new(body.into())).expect("a request"))
            .await
    }

    /// The events of a response.
    pub fn events(response: Response<Incoming>) -> Events {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            body: response.into_body(),
            text: String::new(),
        }
    }

    async fn open(&self, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(Full::new(body.into())).expect("a request"))
            .await
    }

    async fn send(&self, mut request: Request<Full<Bytes>>) -> Response<Incoming> {
        request
            .headers_mut()
            .insert("host", "engine".parse().expect("a header"));
        let stream = self.connect().await.expect("the engine listens");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .expect("a connection");
        #[expect(
            clippy::disallowed_methods,
            reason = "the connection ends with its last response"
        )]
        tokio::spawn(connection);
        sender.send_request(request).await.expect("a response")
    }
}

pub async fn whole(response: Response<Incoming>) -> (StatusCode, Value) {
    let status = response.status();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    (
        status,
        serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned())),
    )
}

/// The events of a stream. Dropping it disconnects the client.
pub struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    /// The data of the next event; `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(data) = event.strip_prefix("data: ") {
                    return Some(data.to_owned());
                }
                continue;
            }
            let frame = self.body.frame().await?.expect("a frame");
            self.text += std::str::from_utf8(frame.data_ref().expect("data"))
                .expect("every frame is complete UTF-8");
        }
    }

    /// Collects all chunks, and asserts that the stream ends with `[DONE]`.
    pub async fn collect(mut self) -> Vec<Value> {
        let mut chunks = Vec::new();
        while let Some(data) = self.next().await {
            if data == "[DONE]" {
                assert_eq!(self.next().await, None, "nothing comes after [DONE]");
                return chunks;
            }
            chunks.push(serde_json::from_str(&data).expect("a chunk is JSON"));
        }
        panic!("the stream ended without [DONE]: {chunks:?}");
    }
}
