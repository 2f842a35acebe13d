//! The body of an answer that is made while it is sent. Over HTTP/1.1 the work that makes it runs in the task of the client's
//! connection: a piece passes from the engine's socket to the client's without another task, and the connection moves the work on
//! while its client takes nothing, too. Over HTTP/2, where each answer has a task within the library, the work has one of its own.

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

use crate::inference::upstream::quiet::quiet;

/// Pieces that may wait for a slow reader before the work is held back.
const PIECES_MAX: usize = 16;

/// What has been made and not been sent.
#[derive(Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    /// Counts the pieces that the client has taken.
    taken: u64,
    /// No more will come.
    is_ended: bool,
    /// The client takes no more.
    is_closed: bool,
    /// Who waits for a piece, for room, and for the client to leave.
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

/// Where the work puts its pieces. Dropped, the body has ended.
pub(crate) struct Frames(Arc<Mutex<Queue>>);

/// Why a piece was not taken.
#[derive(Debug)]
pub(crate) enum Unsent {
    Full(Bytes),
    /// The client has left.
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

    /// Queues a piece beyond the bound, whose memory the caller of this has counted.
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
    pub fn taken(&self) -> u64 {
        locked(&self.0).taken
    }

    /// Waits for room; false if the client has left.
    pub async fn send(&self, piece: Bytes) -> bool {
        let mut waiting = Some(piece);
        poll_fn(|context| {
            let Some(piece) = waiting.take() else {
                return Poll::Ready(true);
            };
            // Looked at under one lock with the waiting, so that no room is missed.
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
                // Only this task puts pieces in.
                Err(Unsent::Full(_)) => Poll::Ready(true),
            }
        })
        .await
    }

    /// The client has left.
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

/// What makes the pieces, until it has ended or got a task of its own.
struct Worker {
    work: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// The body has moved it on since the connection looked last.
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

/// Goes with the response to the connection, which moves the work on while the client takes nothing.
#[derive(Clone)]
struct Unmoved(Weak<Worker>);

/// In the extensions of a response over HTTP/1.1 whose body is made while it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed;

/// An answer's body, and what makes it.
pub(crate) struct Fed {
    body: AnyBody,
    unmoved: Unmoved,
}

/// A place for pieces, and the other end of it.
pub(crate) fn frames() -> (Frames, Feed) {
    let queue = Arc::default();
    (Frames(Arc::clone(&queue)), Feed(queue))
}

pub(crate) struct Feed(Arc<Mutex<Queue>>);

impl Feed {
    /// The body that this work feeds. It ends with the work, and the work with it, when the client leaves.
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
    /// The body; its connection finds in `extensions` what it has to move on.
    pub fn into_body(self, extensions: &mut Extensions) -> AnyBody {
        extensions.insert(self.unmoved);
        self.body
    }
}

struct FedBody {
    /// Dropped first: it may put its last pieces nowhere.
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
            // What the work puts in while it is moved on here is taken below: to wake this task for it would poll all of it again.
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
                // Pieces beyond the bound leave before there is room.
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

/// What a connection of HTTP/1.1 moves on beside its bytes: the work of the answer that is being sent.
#[derive(Default)]
pub struct Moving(Mutex<Weak<Worker>>);

impl std::fmt::Debug for Moving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moving")
    }
}

impl Moving {
    /// Takes over what makes this response's body, if anything does.
    pub fn take(&self, extensions: &mut Extensions, version: Version) {
        let Some(Unmoved(worker)) = extensions.remove::<Unmoved>() else {
            return;
        };
        if version < Version::HTTP_2 {
            *locked(&self.0) = worker;
            extensions.insert(Streamed);
            return;
        }
        if let Some(work) = worker.upgrade().and_then(|it| locked(&it.work).take()) {
            spawn(work);
        }
    }

    /// Moves the work on, unless its body did so in this round: the client takes nothing then, and still the work has to see that
    /// it is cut.
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
