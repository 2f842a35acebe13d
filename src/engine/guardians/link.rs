//! The controller's end of the connection to one guardian: reads messages and writes orders.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use guardian::protocol::{MESSAGE_BYTES_MAX, News, Order};
use pool::ReplicaId;

/// Reads messages from the guardian.
pub(crate) struct GuardianReader {
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

/// Writes orders to the guardian.
pub(crate) struct GuardianWriter {
    writer: OwnedWriteHalf,
}

pub(crate) fn talk(socket: UnixStream) -> (GuardianReader, GuardianWriter) {
    let (reader, writer) = socket.into_split();
    let reader = BufReader::with_capacity(64 << 10, reader);
    let line = Vec::new();
    (GuardianReader { reader, line }, GuardianWriter { writer })
}

/// The file name of a guardian's socket in the runtime directory.
pub(crate) fn socket_name(replica: ReplicaId) -> String {
    format!("g-{replica}.sock")
}

/// Connects to a guardian's socket. Works for folders whose path exceeds the system's limit for a socket.
pub(crate) async fn connect_guardian(folder: &Path, name: &str) -> io::Result<UnixStream> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let folder = std::fs::File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
        UnixStream::connect(path).await
    }
    #[cfg(not(target_os = "linux"))]
    UnixStream::connect(folder.join(name)).await
}

impl GuardianReader {
    /// The next message; `None` when the guardian is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            let read = self.reader.read_until(b'\n', &mut self.line).await;
            let is_complete = self.line.ends_with(b"\n");
            if !matches!(read, Ok(1..)) || !is_complete || self.line.len() > MESSAGE_BYTES_MAX {
                return None;
            }
            let news = serde_json::from_slice(&self.line);
            self.line.clear();
            match news {
                Ok(news) => return Some(news),
                Err(error) => tracing::debug!(%error, "cannot parse a guardian's message"),
            }
        }
    }

    pub async fn next_within(&mut self, timeout: Duration) -> Option<News> {
        tokio::time::timeout(timeout, self.next())
            .await
            .ok()
            .flatten()
    }
}

impl GuardianWriter {
    pub async fn send(&mut self, order: &Order) -> io::Result<()> {
        self.writer.write_all(&line_of(order)?).await
    }

    /// Writes as much as possible without waiting, for use in `Drop`.
    pub fn send_now(&self, order: &Order) {
        if let Ok(line) = line_of(order) {
            // A guardian that no longer reads cannot be reached anyway.
            let _ = self.writer.try_write(&line);
        }
    }
}

fn line_of(order: &Order) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    Ok(line)
}
