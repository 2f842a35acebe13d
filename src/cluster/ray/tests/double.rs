//! A server with prepared responses that records its requests.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;

pub struct Double {
    pub address: String,
    calls: Arc<Mutex<Vec<RecordedRequest>>>,
    _tasks: JoinSet<()>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Method and path.
    pub call: String,
    pub authorization: Option<String>,
    pub body: Value,
}

/// Maps method and path to status and body.
type Responder = Arc<dyn Fn(&str) -> (u16, String) + Send + Sync>;

impl Double {
    pub async fn start(
        responses: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
    ) -> Double {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let calls = Arc::default();
        let (own, responses): (Arc<Mutex<Vec<RecordedRequest>>>, Responder) =
            (Arc::clone(&calls), Arc::new(responses));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                // Sequential is enough: each connection has one request.
                let _ = serve(stream, &own, &responses).await;
            }
        });
        Double {
            address,
            calls,
            _tasks: tasks,
        }
    }

    /// A client of this server that sends the token `secret-of-ray`.
    pub fn ray(&self, folder: &std::path::Path) -> Ray {
        let token = folder.join("ray-token");
        std::fs::write(&token, "secret-of-ray\n").expect("written");
        let mut section = section();
        section.ray.address = Some(self.address.clone());
        section.ray.token_file = Some(token);
        section.ray.timeout = Length::from_secs(5);
        Ray::new(&section)
    }

    pub fn sent(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *self.calls.lock().expect("not poisoned"))
    }

    /// The requests that change something.
    pub fn changes(&self) -> Vec<String> {
        let sent = self.sent().into_iter().map(|request| request.call);
        sent.filter(|call| !call.starts_with("GET")).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    calls: &Mutex<Vec<RecordedRequest>>,
    responses: &Responder,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length").and_then(|value| value.parse().ok());
            let end = head.len() + 4 + length.unwrap_or(0_usize);
            if bytes.len() >= end {
                break (head.to_owned(), end);
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let first: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    let call = format!("{} {}", first[0], first[1]);
    let body = serde_json::from_slice(&bytes[head.len() + 4..length]).unwrap_or_default();
    let authorization = header(&head, "authorization");
    let (status, text) = responses(&call);
    calls.lock().expect("not poisoned").push(RecordedRequest {
        call,
        authorization,
        body,
    });
    let response = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(response.as_bytes()).await
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned())
}
