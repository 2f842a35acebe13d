//! A streamed response as it arrives, and the parts of a response.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::service::wait_for;

pub struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    pub(crate) reader: Option<thread::JoinHandle<()>>,
}

impl Stream {
    /// The body so far.
    pub fn text(&self) -> String {
        split(&self.bytes.lock().unwrap()).1
    }

    /// The complete body.
    pub fn whole(&self) -> String {
        wait_for("the stream to end", || {
            self.reader
                .as_ref()
                .is_none_or(thread::JoinHandle::is_finished)
        });
        self.text()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Status, body without chunk framing, and lower-case head.
pub fn split(response: &[u8]) -> (u16, String, String) {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let head = head.to_lowercase();
    if !head.contains("transfer-encoding: chunked") {
        return (status, body.to_owned(), head);
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size || !after.is_char_boundary(size) {
            break;
        }
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    (status, whole, head)
}
