//! The threads that move bytes between gateways and engines, each with a runtime of its own: a piece wakes the one thread that
//! moves it on, and no other work of the node stands in its way. Only connections that have proved the secret come here.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// One thread moves some ten thousand pieces of streams each second. Machines with more GPUs have more processors.
const PROCESSORS_EACH: usize = 8;
const THREADS_MAX: usize = 8;

/// Dropped, they end, and so does what they carry.
pub(super) struct RelayThreads {
    all: Vec<RelayThread>,
    next: AtomicUsize,
}

struct RelayThread {
    handle: Handle,
    /// The thread waits for its end.
    _running: oneshot::Sender<()>,
}

impl RelayThreads {
    pub fn start() -> io::Result<RelayThreads> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let all = (0..count(processors)).map(start);
        Ok(RelayThreads {
            all: all.collect::<io::Result<_>>()?,
            next: AtomicUsize::new(0),
        })
    }

    /// Each in turn.
    pub fn next(&self) -> Handle {
        let nth = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len();
        self.all[nth].handle.clone()
    }
}

/// Has that thread wait for what comes by this socket, wherever it is read.
pub(super) fn watched_by(thread: &Handle, socket: TcpStream) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    let _entered = thread.enter();
    TcpStream::from_std(socket)
}

fn count(processors: usize) -> usize {
    (processors / PROCESSORS_EACH).clamp(1, THREADS_MAX)
}

fn start(nth: usize) -> io::Result<RelayThread> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (running, ended) = oneshot::channel::<()>();
    thread::Builder::new()
        .name(format!("relay-{nth}"))
        .spawn(move || {
            // An error: the sender is gone.
            let _ = runtime.block_on(ended);
        })?;
    Ok(RelayThread {
        handle,
        _running: running,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_has_one_and_a_large_one_several() {
        assert_eq!([1, 2, 15, 16, 64, 256].map(count), [1, 1, 1, 2, 8, 8]);
    }

    #[tokio::test]
    async fn dropped_they_end_with_what_they_carry() {
        let threads = RelayThreads::start().expect("threads");
        let (held, ended) = oneshot::channel::<()>();
        let _carried = threads.next().spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(threads);
        assert!(ended.await.is_err(), "what was carried is dropped");
    }
}
