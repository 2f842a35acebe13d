//! Just enough HTTP/1.1: requests with a `Content-Length`, kept-alive connections, plain and
//! chunked answers. It owns the bytes on the wire and knows no route.

use std::io::{self, BufRead, BufReader, Read, Write};

use crate::answer;
use crate::flags::Flags;

const BODY_BYTES_MAX: usize = 16 << 20;

pub struct Request {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    close: bool,
}

/// Serves one connection until either side ends it.
pub fn serve<S>(stream: S, flags: &Flags)
where
    S: Read + Write,
{
    let mut stream = BufReader::new(stream);
    while let Ok(Some(request)) = read_request(&mut stream) {
        let close = request.close;
        if answer::answer(&request, flags, stream.get_mut()).is_err() {
            eprintln!("client left during {} {}", request.method, request.path);
            return;
        }
        if close {
            return;
        }
    }
}

/// `None` at the end of the connection.
fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut parts = line.split_whitespace();
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (method, path) = (part(), part());
    let mut length = 0;
    let mut close = false;
    loop {
        let mut header = String::new();
        if stream.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "connection" => close = value.trim().eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let mut body = vec![0; length.min(BODY_BYTES_MAX)];
    stream.read_exact(&mut body)?;
    Ok(Some(Request {
        method,
        path,
        body,
        close,
    }))
}

pub fn send_json(stream: &mut impl Write, status: u16, body: &serde_json::Value) -> io::Result<()> {
    let body = body.to_string();
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "Bad Request",
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    stream.flush()
}

/// A stream of server-sent events, each in a chunk of its own.
pub struct Events<'a, S: Write>(&'a mut S);

impl<'a, S: Write> Events<'a, S> {
    pub fn begin(stream: &'a mut S) -> io::Result<Self> {
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        )?;
        stream.flush()?;
        Ok(Events(stream))
    }

    pub fn send(&mut self, data: &str) -> io::Result<()> {
        let event = format!("data: {data}\n\n");
        write!(self.0, "{:x}\r\n{event}\r\n", event.len())?;
        self.0.flush()
    }

    pub fn end(self) -> io::Result<()> {
        write!(self.0, "0\r\n\r\n")?;
        self.0.flush()
    }
}
