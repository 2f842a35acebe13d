//! Clients for tests of the real program: raw sockets that may send anything, and HTTP/2. Also reads the stub engine's statistics.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::service::Pool;
use crate::stub::model;

const PATIENCE: Duration = Duration::from_secs(30);

/// A model with the stub engine and additional flags, on half a GiB.
pub fn stub(name: &str, flags: &[&str]) -> (String, String) {
    model(name, flags, "memory_gib: 0.5")
}

pub fn chat(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"What is a priority?"}}]}}"#
    )
}

/// The head of a request with a JSON body of this length, and additional lines.
pub fn head(method: &str, target: &str, more: &str) -> String {
    let kind = match method {
        "POST" => "Content-Type: application/json\r\n",
        _ => "",
    };
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{kind}{more}\r\n")
}

pub fn connect(pool: &Pool) -> TcpStream {
    let socket = TcpStream::connect(pool.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Reads until the service closes the connection; a reset also counts as the end.
pub fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match socket.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            // With a timeout, a read ends like this after the process was stopped and continued.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the service neither answered nor closed")
            }
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends these bytes on a separate connection, and reads until it is closed.
pub fn raw(pool: &Pool, bytes: &[u8]) -> String {
    let mut socket = connect(pool);
    let _ = socket.write_all(bytes);
    rest(&mut socket)
}

/// Sends a request that closes its connection. Returns the status and the complete response.
pub fn ask(pool: &Pool, method: &str, target: &str, more: &str) -> (u16, String) {
    let text = raw(
        pool,
        head(method, target, &format!("Connection: close\r\n{more}")).as_bytes(),
    );
    (status(&text), text)
}

pub fn status(response: &str) -> u16 {
    let word = response.split_whitespace().nth(1).unwrap_or_default();
    word.parse().unwrap_or(0)
}

/// The address of the engine of a loaded model.
pub fn engine(pool: &Pool, model: &str) -> String {
    let records = pool.journal();
    let record = records.iter().find(|record| record["model"] == model);
    let record = record.unwrap_or_else(|| panic!("no engine of {model} in {records:?}"));
    record["endpoint"]["tcp"].as_str().unwrap().to_owned()
}

/// The stub's request counters: running, completed, abandoned, tokens.
pub fn stats(engine: &str) -> Value {
    let mut socket = TcpStream::connect(engine).unwrap();
    let ask = "GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(ask.as_bytes()).unwrap();
    let text = rest(&mut socket);
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

pub type Client = SendRequest<Full<Bytes>>;

pub async fn h2(pool: &Pool) -> Client {
    let socket = tokio::net::TcpStream::connect(pool.address()).await;
    h2_over(socket.unwrap()).await
}

pub async fn h2_over<S>(stream: S) -> Client
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    h2_with(stream, &http2::Builder::new(TokioExecutor::new())).await
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client's connection ends with the test's runtime"
)]
pub async fn h2_with<S>(stream: S, builder: &http2::Builder<TokioExecutor>) -> Client
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

pub fn post(uri: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post(uri).header("content-type", "application/json");
    let body = Full::new(Bytes::from(body.to_owned()));
    request.body(body).unwrap()
}

pub async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}

pub fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// Raises the limit of open files of this process as far as allowed, and returns it. Child processes inherit it.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// The resident memory of a process in KiB.
pub fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let word = line.unwrap().split_whitespace().nth(1).unwrap();
    word.parse().unwrap()
}
