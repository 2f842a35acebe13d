//! Sends HTTP requests to the real binary over plain sockets, each on a separate connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::Pool;
use crate::openapi_check;
use crate::streamed_response::{Stream, split};

/// Read timeout of a client. Longer than a node is frozen in a test, which ensures that the client never gives up first.
const RESPONSE_PATIENCE: Duration = Duration::from_secs(90);

impl Pool {
    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        let (status, body, _) = self.request("POST", path, body, None);
        (status, body)
    }

    /// Sends a request on a separate connection and returns status, body and lower-case head.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
        key: Option<&str>,
    ) -> (u16, String, String) {
        let mut socket = self.send(method, path, body, key);
        let mut response = Vec::new();
        // A refused large body may reset the connection after the response was sent.
        let _ = socket.read_to_end(&mut response);
        self.described(method, path, body, split(&response))
    }

    /// Status and JSON response of a call; null sends no body. A response that is not JSON is returned as a string.
    pub fn call(&self, key: Option<&str>, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, text, _) = self.request(method, path, &body, key);
        let response = serde_json::from_str(&text);
        (status, response.unwrap_or(Value::String(text)))
    }

    /// As `call`, with an administrator's key.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.call(Some(&self.admin_key()), method, path, body)
    }

    /// As `admin`, with a text as the body.
    pub fn admin_text(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, text, _) = self.request(method, path, body, Some(&self.admin_key()));
        let response = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, response)
    }

    /// Creates an administrator's key.
    pub fn new_key(&self, name: &str) -> (u16, Value) {
        let body = json!({"name": name, "role": "admin"});
        self.admin("POST", "/llm/admin/keys", &body)
    }

    /// Returns true if this new key is accepted.
    pub fn accepts(&self, key: &Value) -> bool {
        self.request("GET", "/llm/admin/keys", "", key["key"].as_str())
            .0
            == 200
    }

    pub fn set_priority(&self, model: &str, priority: u32) -> (u16, Value) {
        let path = format!("/llm/admin/models?model={model}");
        self.admin("PATCH", &path, &json!({"priority": priority}))
    }

    /// Status and text of `/llm/ready`.
    pub fn ready(&self) -> (u16, String) {
        let (status, text, _) = self.request("GET", "/llm/ready", "", None);
        (status, text)
    }

    /// As `request` without a key, and without a check against the OpenAPI document.
    pub fn request_unchecked(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let (mut response, mut socket) = (Vec::new(), self.send(method, path, body, None));
        let _ = socket.read_to_end(&mut response);
        split(&response)
    }

    /// An exchange that is checked against the OpenAPI document.
    fn described(
        &self,
        method: &str,
        path: &str,
        body: &str,
        response: (u16, String, String),
    ) -> (u16, String, String) {
        if method == "POST" {
            openapi_check::check(self, path, body, (response.0, &response.1, &response.2));
        }
        response
    }

    /// As `request`, with additional header lines.
    pub fn request_with(
        &self,
        method: &str,
        path: &str,
        body: &str,
        lines: &[(&str, &str)],
    ) -> (u16, String, String) {
        let (mut response, mut socket) = (Vec::new(), self.send_with(method, path, body, lines));
        let _ = socket.read_to_end(&mut response);
        self.described(method, path, body, split(&response))
    }

    /// As `request`, for a POST whose body is not JSON.
    pub fn request_as(&self, kind: &str, path: &str, body: &str) -> (u16, String, String) {
        let mut response = Vec::new();
        let mut socket = self.send_as(kind, "POST", path, body, &[]);
        let _ = socket.read_to_end(&mut response);
        split(&response)
    }

    fn send(&self, method: &str, path: &str, body: &str, key: Option<&str>) -> TcpStream {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let line = bearer.as_deref().map(|bearer| ("Authorization", bearer));
        self.send_with(method, path, body, line.as_slice())
    }

    fn send_with(&self, method: &str, path: &str, body: &str, lines: &[(&str, &str)]) -> TcpStream {
        self.send_as("application/json", method, path, body, lines)
    }

    fn send_as(
        &self,
        kind: &str,
        method: &str,
        path: &str,
        body: &str,
        lines: &[(&str, &str)],
    ) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(RESPONSE_PATIENCE)).unwrap();
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        let key: String = lines.iter().map(line).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{key}Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let _ = socket.write_all(body.as_bytes());
        socket
    }

    /// Sends a request and returns its response as a stream. Dropping it disconnects the client.
    pub fn stream(&self, path: &str, body: &str) -> Stream {
        self.stream_with(path, body, &[])
    }

    pub fn stream_with(&self, path: &str, body: &str, lines: &[(&str, &str)]) -> Stream {
        let socket = self.send_with("POST", path, body, lines);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (into, mut from) = (Arc::clone(&bytes), socket.try_clone().unwrap());
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                match from.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(count) => into.lock().unwrap().extend_from_slice(&chunk[..count]),
                    // With a timeout, a read ends like this after the process was stopped and continued.
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        eprintln!("the stream broke off: {error}");
                        break;
                    }
                }
            }
        });
        Stream {
            socket,
            bytes,
            reader: Some(reader),
        }
    }
}
