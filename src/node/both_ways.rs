//! Bytes between a gateway and an engine, both ways in one task, as they are: each piece goes on as it comes, and nothing is read
//! while the other side does not take it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Of each direction of a connection.
const BUFFER_BYTES: usize = 16 << 10;

/// The end of either side ends both, as a client that leaves does without a node in between. `moved` counts what goes to the
/// gateway.
pub(super) async fn both_ways(
    gateway: &mut (impl AsyncRead + AsyncWrite + Unpin),
    engine: &mut (impl AsyncRead + AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> io::Result<()> {
    let (mut up, mut down) = (Direction::new(), Direction::new());
    let nothing = AtomicU64::new(0);
    let ended_by = poll_fn(|context| {
        if let Poll::Ready(done) = up.move_on(context, &mut *gateway, &mut *engine, &nothing) {
            return Poll::Ready(EndedBy::Gateway(done));
        }
        down.move_on(context, &mut *engine, &mut *gateway, moved)
            .map(EndedBy::Engine)
    });
    match ended_by.await {
        EndedBy::Gateway(done) => done,
        EndedBy::Engine(done) => {
            let _ = gateway.shutdown().await;
            done
        }
    }
}

enum EndedBy {
    Gateway(io::Result<()>),
    Engine(io::Result<()>),
}

struct Direction {
    buffer: Box<[u8]>,
    /// What of the buffer is still to be written.
    begin: usize,
    end: usize,
    is_flushed: bool,
}

impl Direction {
    fn new() -> Direction {
        Direction {
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            begin: 0,
            end: 0,
            is_flushed: true,
        }
    }

    /// Moves what there is; ready when `from` has ended and all of it has gone on.
    fn move_on(
        &mut self,
        context: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        moved: &AtomicU64,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.begin < self.end {
                let piece = &self.buffer[self.begin..self.end];
                let written = ready!(Pin::new(&mut *to).poll_write(context, piece))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.begin += written;
                moved.fetch_add(written as u64, Ordering::Relaxed);
            }
            if !self.is_flushed {
                ready!(Pin::new(&mut *to).poll_flush(context))?;
                self.is_flushed = true;
            }
            let mut piece = ReadBuf::new(&mut self.buffer);
            ready!(Pin::new(&mut *from).poll_read(context, &mut piece))?;
            let read = piece.filled().len();
            if read == 0 {
                return Poll::Ready(Ok(()));
            }
            (self.begin, self.end, self.is_flushed) = (0, read, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, BufWriter, DuplexStream, duplex};
    use tokio::time::timeout;

    const ROOM: usize = 1 << 10;

    async fn read(from: &mut DuplexStream, bytes: usize) -> String {
        let mut piece = vec![0; bytes];
        from.read_exact(&mut piece).await.expect("a piece");
        String::from_utf8(piece).expect("text")
    }

    #[tokio::test]
    async fn each_piece_goes_on_as_it_comes_even_by_a_writer_that_would_keep_it() {
        let ((mut gateway, near_gateway), (mut engine, near_engine)) = (duplex(ROOM), duplex(ROOM));
        let mut near_gateway = BufWriter::new(near_gateway);
        let mut near_engine = BufWriter::new(near_engine);
        let moved = AtomicU64::new(0);
        let talking = async {
            for (question, answer) in [("one?", "1"), ("two?", "2")] {
                gateway.write_all(question.as_bytes()).await.expect("taken");
                assert_eq!(read(&mut engine, 4).await, question);
                engine.write_all(answer.as_bytes()).await.expect("taken");
                assert_eq!(read(&mut gateway, 1).await, answer);
            }
        };
        tokio::select! {
            ended = both_ways(&mut near_gateway, &mut near_engine, &moved) => panic!("{ended:?}"),
            talked = timeout(Duration::from_secs(10), talking) => talked.expect("in time"),
        }
        assert_eq!(moved.load(Ordering::Relaxed), 2, "of the engine alone");
    }

    #[test]
    fn nothing_is_read_while_the_other_side_takes_nothing_and_its_leaving_is_noticed() {
        let (gateway, mut near_gateway) = duplex(ROOM);
        let (mut engine, mut near_engine) = duplex(ROOM);
        let moved = AtomicU64::new(0);
        let mut carrying = pin!(both_ways(&mut near_gateway, &mut near_engine, &moved));
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = 0;
        while taken < 100 * ROOM {
            assert!(carrying.as_mut().poll(&mut context).is_pending());
            match Pin::new(&mut engine).poll_write(&mut context, &[b'x'; ROOM]) {
                Poll::Ready(written) => taken += written.expect("it is open"),
                Poll::Pending => break,
            }
        }
        assert!(taken <= 3 * ROOM, "{taken}");
        drop(gateway);
        assert!(carrying.as_mut().poll(&mut context).is_ready());
    }

    #[tokio::test]
    async fn the_end_of_an_engine_comes_behind_its_last_bytes() {
        let ((mut gateway, near_gateway), (mut engine, mut near_engine)) =
            (duplex(ROOM), duplex(ROOM));
        let mut near_gateway = BufWriter::new(near_gateway);
        engine.write_all(b"the last").await.expect("taken");
        drop(engine);
        let moved = AtomicU64::new(0);
        let carried = both_ways(&mut near_gateway, &mut near_engine, &moved).await;
        carried.expect("carried");
        let mut all = Vec::new();
        let ended = timeout(Duration::from_secs(10), gateway.read_to_end(&mut all)).await;
        ended.expect("it has an end").expect("read");
        assert_eq!(all, b"the last");
    }
}
