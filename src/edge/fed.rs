//! The body of a response that is produced while it is sent. In HTTP/1.1, the work that produces it runs in the task of the
//! client's connection: a piece passes from the engine's socket to the client's without another task, and the connection also
//! drives the work while its client reads nothing. In HTTP/2, where the library has a task per response, the work has a separate
//! task. Among 64 streams a token costs 1.1 times the processor time of nginx; with a task and a channel for each stream it cost 1.6
//! to 2.3 times (docs/internals/benchmarks.md).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use axum::body::{Body as AnyBody, Bytes};
use axum::http::{Extensions, Version};
use hyper::body::{Body, Frame};

use crate::quiet::quiet;

/// Number of pieces that may wait for a slow client before the work is held back.
const PIECES_MAX: usize = 16;

/// Pieces produced but not sent.
#[derive(Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    /// Number of pieces that the client has taken.
    taken: u64,
    /// No more pieces will be added.
    is_ended: bool,
    /// The client has stopped reading.
    is_closed: bool,
    /// Tasks that wait for a piece, for room, and for the client to disconnect.
    body: Option<Waker>,
    room: Option<Waker>,
    left: Option<Waker>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_in(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The producer's end of the queue. Dropping it ends the body.
pub struct Frames(Arc<Mutex<Queue>>);

/// A piece that was not queued.
#[derive(Debug)]
pub enum Unsent {
    Full(Bytes),
    /// The client has disconnected.
    Left,
}

impl Frames {
    pub fn try_send(&self, piece: Bytes) -> Result<(), Unsent> {
        let mut queue = locked(&self.0);
        if queue.is_closed {
            return Err(Unsent::Left);
        }
        if queue.pieces.len() >= PIECES_MAX {
            return Err(Unsent::Full(piece));
        }
        queue.pieces.push_back(piece);
        let body = queue.body.take();
        drop(queue);
        wake(body);
        Ok(())
    }

    /// Queues a piece beyond the limit. The caller accounts for its memory.
    pub fn send_beyond(&self, piece: Bytes) {
        let mut queue = locked(&self.0);
        if !queue.is_closed {
            queue.pieces.push_back(piece);
            let body = queue.body.take();
            drop(queue);
            wake(body);
        }
    }

    /// The number of pieces that the client has taken.
    #[inline]
    pub fn taken(&self) -> u64 {
        locked(&self.0).taken
    }

    /// Waits for room. Returns false if the client has disconnected.
    pub async fn send(&self, piece: Bytes) -> bool {
        let mut waiting = Some(piece);
        poll_fn(|context| {
            let Some(piece) = waiting.take() else {
                return Poll::Ready(true);
            };
            // Checked under the lock that registers the waker, so no wake-up is missed.
            {
                let mut queue = locked(&self.0);
                if queue.pieces.len() >= PIECES_MAX && !queue.is_closed {
                    wait_in(&mut queue.room, context);
                    waiting = Some(piece);
                    return Poll::Pending;
                }
            }
            match self.try_send(piece) {
                Ok(()) => Poll::Ready(true),
                Err(Unsent::Left) => Poll::Ready(false),
                // Unreachable: only this task adds pieces.
                Err(Unsent::Full(_)) => Poll::Ready(true),
            }
        })
        .await
    }

    /// Waits until the client has disconnected.
    pub async fn closed(&self) {
        poll_fn(|context| {
            let mut queue = locked(&self.0);
            if queue.is_closed {
                return Poll::Ready(());
            }
            wait_in(&mut queue.left, context);
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let mut queue = locked(&self.0);
        queue.is_ended = true;
        let body = queue.body.take();
        drop(queue);
        wake(body);
    }
}

/// The work that produces pieces, until it has ended or has been moved to a task.
struct Worker {
    work: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// The body has polled the work since the connection last did.
    was_moved: AtomicBool,
}

impl Worker {
    fn move_on(&self, context: &mut Context<'_>) {
        let mut work = locked(&self.work);
        if let Some(moving) = &mut *work
            && moving.as_mut().poll(context).is_ready()
        {
            *work = None;
        }
    }
}

/// Hands the work to the connection in the extensions of the response. The connection drives the work while the client reads
/// nothing.
#[derive(Clone)]
struct Unmoved(Weak<Worker>);

/// Marks an HTTP/1.1 response whose body is produced while it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed;

/// A response body together with the work that produces it.
pub struct Fed {
    body: AnyBody,
    unmoved: Unmoved,
}

/// Creates a queue and returns its two ends.
#[inline]
pub fn frames() -> (Frames, Feed) {
    let queue = Arc::default();
    (Frames(Arc::clone(&queue)), Feed(queue))
}

pub struct Feed(Arc<Mutex<Queue>>);

impl Feed {
    /// The body that this work produces. It ends with the work, and the work is dropped when the client disconnects.
    pub fn by(self, work: impl Future<Output = ()> + Send + 'static) -> Fed {
        let worker = Arc::new(Worker {
            work: Mutex::new(Some(Box::pin(work))),
            was_moved: AtomicBool::new(false),
        });
        let unmoved = Unmoved(Arc::downgrade(&worker));
        let body = AnyBody::new(FedBody {
            worker,
            queue: self.0,
        });
        Fed { body, unmoved }
    }
}

impl Fed {
    /// Returns the body and stores the work for the connection in `extensions`.
    pub fn into_body(self, extensions: &mut Extensions) -> AnyBody {
        extensions.insert(self.unmoved);
        self.body
    }
}

struct FedBody {
    /// Dropped before the queue.
    worker: Arc<Worker>,
    queue: Arc<Mutex<Queue>>,
}

impl Body for FedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let is_empty = {
            let mut queue = locked(&self.queue);
            // Pieces that the work adds during this poll are taken below. Waking this task for them would poll everything again.
            queue.body = None;
            queue.pieces.is_empty()
        };
        if is_empty {
            self.worker.was_moved.store(true, Ordering::Relaxed);
            self.worker.move_on(context);
        }
        let mut queue = locked(&self.queue);
        match queue.pieces.pop_front() {
            Some(piece) => {
                queue.taken += 1;
                // Pieces beyond the limit must leave before there is room.
                let has_room = queue.pieces.len() < PIECES_MAX;
                let room = has_room.then(|| queue.room.take()).flatten();
                drop(queue);
                wake(room);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            None if queue.is_ended => Poll::Ready(None),
            None => {
                wait_in(&mut queue.body, context);
                Poll::Pending
            }
        }
    }
}

impl Drop for FedBody {
    fn drop(&mut self) {
        let mut queue = locked(&self.queue);
        queue.is_closed = true;
        queue.pieces.clear();
        let waiting = [queue.room.take(), queue.left.take()];
        drop(queue);
        waiting.into_iter().for_each(wake);
    }
}

/// The work of the current response on an HTTP/1.1 connection, which the connection drives in addition to its I/O.
#[derive(Default)]
pub struct Moving(Mutex<Weak<Worker>>);

impl std::fmt::Debug for Moving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moving")
    }
}

impl Moving {
    /// Takes the work of a response with a produced body: kept for HTTP/1.1, spawned for HTTP/2.
    pub fn take(&self, extensions: &mut Extensions, version: Version) {
        let Some(Unmoved(worker)) = extensions.remove::<Unmoved>() else {
            return;
        };
        if version < Version::HTTP_2 {
            *locked(&self.0) = worker;
            extensions.insert(Streamed);
            return;
        }
        if let Some(work) = worker
            .upgrade()
            .and_then(|worker| locked(&worker.work).take())
        {
            spawn(work);
        }
    }

    /// Polls the work unless the body did so in this round. If the client reads nothing, the body is not polled, but the work must
    /// still notice a cut.
    pub fn move_on(&self, context: &mut Context<'_>) {
        let worker = locked(&self.0).upgrade();
        if let Some(worker) = worker
            && !worker.was_moved.swap(false, Ordering::Relaxed)
        {
            worker.move_on(context);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "ends with the body it feeds; a shutdown drains leases first"
)]
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(quiet(work));
}

#[cfg(test)]
#[path = "fed/tests.rs"]
mod tests;
