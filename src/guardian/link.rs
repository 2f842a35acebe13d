//! The connection to one controller: complete messages in, messages out, without blocking. A controller that
//! reads too slowly loses only the oldest lines of output.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;

use super::protocol::{MESSAGE_BYTES_MAX, News, Order};

/// Maximum size of output that waits for the controller.
const LINES_BYTES_MAX: usize = 1 << 20;

pub struct Link {
    socket: UnixStream,
    incoming: Vec<u8>,
    /// The message being written.
    outgoing: Vec<u8>,
    written: usize,
    queue: VecDeque<News>,
    lines_bytes: usize,
    /// The other side is gone, and everything it sent has been read.
    pub ended: bool,
    /// Writing failed because the other side is gone. Its earlier messages may still be unread.
    peer_gone: bool,
}

impl Link {
    pub fn new(socket: UnixStream) -> io::Result<Link> {
        socket.set_nonblocking(true)?;
        Ok(Link {
            socket,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            written: 0,
            queue: VecDeque::new(),
            lines_bytes: 0,
            ended: false,
            peer_gone: false,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn has_unsent(&self) -> bool {
        !self.ended && !self.peer_gone && (!self.outgoing.is_empty() || !self.queue.is_empty())
    }

    /// The messages that have arrived; an invalid one is skipped.
    pub fn read(&mut self) -> Vec<Order> {
        let mut chunk = [0; 16 << 10];
        while !self.ended {
            match self.socket.read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(count) => self.incoming.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.ended = true,
            }
            self.ended |= self.incoming.len() > MESSAGE_BYTES_MAX;
        }
        complete_messages(&mut self.incoming)
    }

    pub fn send(&mut self, news: News) {
        if let News::Line(line) = &news {
            self.lines_bytes += line.text.len();
        }
        self.queue.push_back(news);
        while self.lines_bytes > LINES_BYTES_MAX {
            let is_line = |news: &News| matches!(news, News::Line(_));
            let Some(oldest) = self.queue.iter().position(is_line) else {
                break;
            };
            if let Some(News::Line(line)) = self.queue.remove(oldest) {
                self.lines_bytes -= line.text.len();
            }
        }
        self.write();
    }

    /// Writes as much as the socket takes.
    pub fn write(&mut self) {
        while self.has_unsent() {
            if self.outgoing.is_empty() {
                let Some(news) = self.queue.pop_front() else {
                    return;
                };
                if let News::Line(line) = &news {
                    self.lines_bytes -= line.text.len();
                }
                // Plain data with text keys: JSON can represent all of it.
                self.outgoing = serde_json::to_vec(&news).unwrap_or_default();
                self.outgoing.push(b'\n');
                self.written = 0;
            }
            match self.socket.write(&self.outgoing[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    if self.written == self.outgoing.len() {
                        self.outgoing.clear();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.peer_gone = true,
            }
        }
    }
}

/// Removes the complete lines; a line that is not a message is skipped.
pub(super) fn complete_messages<M: DeserializeOwned>(incoming: &mut Vec<u8>) -> Vec<M> {
    let Some(end) = memchr::memrchr(b'\n', incoming) else {
        return Vec::new();
    };
    let lines = incoming[..end].split(|byte| *byte == b'\n');
    let messages = lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    incoming.drain(..=end);
    messages
}

/// Checks the peer's user again: the folder is already accessible only to ours.
pub fn is_ours(socket: &UnixStream) -> bool {
    #[cfg(target_os = "linux")]
    {
        let own = rustix::process::geteuid();
        rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{End, Line, Stream};
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn a_controllers_last_order_is_read_after_the_link_can_no_longer_send() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut link = Link::new(ours).expect("a link");
        theirs.write_all(b"{\"order\":\"ready\"}\n").expect("said");
        drop(theirs);
        link.send(News::Exited(End::default()));
        assert!(!link.ended && !link.has_unsent());
        assert!(matches!(link.read().as_slice(), [Order::Ready]));
        assert!(link.ended);
    }

    #[test]
    fn a_slow_controller_loses_the_oldest_lines_and_sees_the_gap() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut link = Link::new(ours).expect("a link");
        for sequence in 0..5_000 {
            let text = "x".repeat(1 << 10);
            link.send(News::Line(Line {
                sequence,
                at_ms: 0,
                stream: Stream::Stdout,
                text,
            }));
        }
        link.send(News::Exited(End::default()));
        assert!(link.lines_bytes <= LINES_BYTES_MAX);
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(theirs).lines().map_while(Result::ok);
            let news = lines.map(|line| serde_json::from_str(&line).expect("news"));
            news.collect::<Vec<News>>()
        });
        while link.has_unsent() {
            link.write();
            std::thread::yield_now();
        }
        drop(link);
        let news = reader.join().expect("read");
        let sequences: Vec<u64> = news
            .iter()
            .filter_map(|news| match news {
                News::Line(line) => Some(line.sequence),
                _ => None,
            })
            .collect();
        assert_eq!(sequences[0], 0);
        assert_eq!(sequences.last(), Some(&4_999), "the newest comes");
        assert!(sequences.len() < 4_000, "{}", sequences.len());
        assert!(matches!(news.last(), Some(News::Exited(_))));
    }
}
