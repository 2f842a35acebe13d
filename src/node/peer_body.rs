//! The body of a response to another node: the rest of a file, read ahead by some chunks on a blocking thread.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Large reads are fast on disks, and few chunks wait for a slow network.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES_AHEAD: usize = 4;

/// A file being sent, or a short text.
pub(super) struct PeerBody {
    pieces: Option<mpsc::Receiver<io::Result<Bytes>>>,
    left: u64,
    /// Bytes sent on this connection.
    moved: Arc<AtomicU64>,
    /// Released when the body has been sent or its connection has ended.
    _seat: Option<OwnedSemaphorePermit>,
}

impl PeerBody {
    pub fn text(text: &str, moved: Arc<AtomicU64>) -> PeerBody {
        let (sender, pieces) = mpsc::channel(1);
        // The channel has room for one message.
        let _ = sender.try_send(Ok(Bytes::copy_from_slice(text.as_bytes())));
        PeerBody {
            pieces: Some(pieces),
            left: text.len() as u64,
            moved,
            _seat: None,
        }
    }

    /// The next `left` bytes of the file.
    pub fn file(
        file: File,
        left: u64,
        moved: Arc<AtomicU64>,
        seat: OwnedSemaphorePermit,
    ) -> PeerBody {
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        // Ends with the file, or when the body is dropped.
        tokio::task::spawn_blocking(move || read(file, left, &sender));
        PeerBody {
            pieces: Some(pieces),
            left,
            moved,
            _seat: Some(seat),
        }
    }
}

fn read(mut file: File, mut left: u64, pieces: &mpsc::Sender<io::Result<Bytes>>) {
    while left > 0 {
        let size = usize::try_from(left.min(PIECE_BYTES)).unwrap_or(usize::MAX);
        let mut piece = vec![0; size];
        let read = match file.read(&mut piece) {
            // The file has become shorter: the body ends with an error.
            Ok(0) => return,
            Ok(count) => {
                piece.truncate(count);
                left -= count as u64;
                Ok(Bytes::from(piece))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_over = read.is_err();
        if pieces.blocking_send(read).is_err() || is_over {
            return;
        }
    }
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let Some(pieces) = &mut this.pieces else {
            return Poll::Ready(None);
        };
        let piece = match ready!(pieces.poll_recv(context)) {
            Some(Ok(piece)) => {
                let count = piece.len() as u64;
                this.left = this.left.saturating_sub(count);
                this.moved.fetch_add(count, Ordering::Relaxed);
                Some(Ok(Frame::data(piece)))
            }
            Some(Err(error)) => Some(Err(error)),
            None if this.left > 0 => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            None => None,
        };
        if !matches!(piece, Some(Ok(_))) {
            this.pieces = None;
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::io::{Seek, SeekFrom, Write};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn the_rest_of_a_file_is_sent_completely_and_releases_its_seat() {
        let seats = Arc::new(Semaphore::new(1));
        let content: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|index| index as u8).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&content).expect("written");
        file.seek(SeekFrom::Start(7)).expect("a place");
        let seat = Arc::clone(&seats).try_acquire_owned().expect("a seat");
        let moved = Arc::default();
        let left = content.len() as u64 - 7;
        let body = PeerBody::file(file, left, Arc::clone(&moved), seat);
        assert_eq!(body.size_hint().exact(), Some(left));
        let sent = body.collect().await.expect("all of it").to_bytes();
        assert_eq!(sent, content[7..]);
        assert_eq!(moved.load(Ordering::Relaxed), left);
        assert_eq!(seats.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_file_that_ends_too_early_is_an_error() {
        let seats = Arc::new(Semaphore::new(1));
        let seat = Arc::clone(&seats).try_acquire_owned().expect("a seat");
        let file = tempfile::tempfile().expect("a file");
        let body = PeerBody::file(file, 9, Arc::default(), seat);
        assert!(body.collect().await.is_err());
    }
}
