//! Sends a request on a separate connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use support::service::{Pool, split};

/// The request to send.
#[derive(Clone, Copy)]
pub struct WireRequest<'a> {
    /// `None` for the address of the pool.
    pub host: Option<&'a str>,
    pub method: &'a str,
    pub path: &'a str,
    /// Content type of the body; empty to omit it.
    pub kind: &'a str,
    pub body: &'a str,
    pub lines: &'a [(&'a str, &'a str)],
}

/// Status and body of the response.
pub fn say(pool: &Pool, said: WireRequest) -> (u16, String) {
    let (status, body, _) = split(&send(pool, said));
    (status, body)
}

/// The cookie of the response, as a browser sends it back.
pub fn cookie(pool: &Pool, said: WireRequest) -> Option<String> {
    let response = String::from_utf8_lossy(&send(pool, said)).into_owned();
    let mut lines = response.lines();
    let line = lines.find_map(|line| line.strip_prefix("set-cookie: "))?;
    Some(line.split(';').next()?.to_owned())
}

fn send(pool: &Pool, said: WireRequest) -> Vec<u8> {
    let mut socket = TcpStream::connect(pool.address()).unwrap();
    let patience = Duration::from_secs(30);
    socket.set_read_timeout(Some(patience)).unwrap();
    let (host, length) = (said.host.unwrap_or(pool.address()), said.body.len());
    let mut head = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", said.method, said.path);
    if !said.kind.is_empty() {
        head += &format!("Content-Type: {}\r\n", said.kind);
    }
    for (name, value) in said.lines {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {length}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    // A body may remain unread if the head is refused.
    let _ = socket.write_all(said.body.as_bytes());
    let mut response = Vec::new();
    let _ = socket.read_to_end(&mut response);
    response
}
