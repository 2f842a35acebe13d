//! The threads that move bytes between gateways and engines. Each is a bare loop over its sockets: a chunk wakes only the thread
//! that moves it, which takes one read and one write, and no other work of the node delays it. Only pairs whose gateway has proved
//! the secret reach these threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};
use tokio::sync::oneshot;

use super::relay_pair::{Pair, Turn};

/// One thread moves some ten thousand chunks of streams per second. Machines with more GPUs have more processors.
const PROCESSORS_EACH: usize = 8;
const THREADS_MAX: usize = 8;
const EVENTS_AT_ONCE: usize = 256;
/// All pairs of a thread read into one buffer.
const BUFFER_BYTES: usize = 16 << 10;
const ORDERS: Token = Token(usize::MAX);

/// Dropping it ends the threads and their pairs.
pub(super) struct RelayThreads {
    all: Vec<Arc<Line>>,
    next: AtomicUsize,
}

/// The channel to one thread.
struct Line {
    orders: Sender<Order>,
    waker: Waker,
}

enum Order {
    Carry(usize, Box<Pair>, oneshot::Sender<io::Result<()>>),
    End(usize),
    EndAll,
}

/// A pair handled by a thread. Dropping it ends the pair.
pub(super) struct RelayedPair {
    id: usize,
    line: Arc<Line>,
    ended: oneshot::Receiver<io::Result<()>>,
    is_over: bool,
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

    /// Hands the pair to the threads in turn.
    pub fn carry(&self, pair: Pair) -> RelayedPair {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let line = Arc::clone(&self.all[id % self.all.len()]);
        let (over, ended) = oneshot::channel();
        line.send(Order::Carry(id, Box::new(pair), over));
        RelayedPair {
            id,
            line,
            ended,
            is_over: false,
        }
    }
}

impl Drop for RelayThreads {
    fn drop(&mut self) {
        self.all.iter().for_each(|line| line.send(Order::EndAll));
    }
}

impl Line {
    fn send(&self, order: Order) {
        // Fails if the thread has ended, and its pairs with it.
        if self.orders.send(order).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

impl RelayedPair {
    /// Waits for the end of the pair and returns its result.
    pub async fn ended(mut self) -> io::Result<()> {
        let ended = (&mut self.ended).await;
        self.is_over = true;
        ended.unwrap_or_else(|_| Err(ErrorKind::ConnectionAborted.into()))
    }
}

impl Drop for RelayedPair {
    fn drop(&mut self) {
        if !self.is_over {
            self.line.send(Order::End(self.id));
        }
    }
}

fn count(processors: usize) -> usize {
    (processors / PROCESSORS_EACH).clamp(1, THREADS_MAX)
}

fn start(nth: usize) -> io::Result<Arc<Line>> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), ORDERS)?;
    let (orders, received) = channel();
    let mut relay = Loop {
        poll,
        orders: received,
        pairs: BTreeMap::new(),
        turns: Vec::new(),
        due: BTreeSet::new(),
        buffer: vec![0; BUFFER_BYTES],
    };
    thread::Builder::new()
        .name(format!("relay-{nth}"))
        .spawn(move || {
            if let Err(error) = relay.run() {
                tracing::error!(%error, "a thread that relays to engines has ended");
            }
        })?;
    Ok(Arc::new(Line { orders, waker }))
}

struct Loop {
    poll: Poll,
    orders: Receiver<Order>,
    pairs: BTreeMap<usize, (Box<Pair>, oneshot::Sender<io::Result<()>>)>,
    /// Pairs that can make progress.
    turns: Vec<usize>,
    /// Deadlines of pairs. Pairs may have ended already: numbers are never reused.
    due: BTreeSet<(Instant, usize)>,
    buffer: Vec<u8>,
}

impl Loop {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_AT_ONCE);
        let mut turns = Vec::new();
        loop {
            let wait = self.waits();
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                let Token(token) = event.token();
                if event.token() == ORDERS {
                    if !self.obey() {
                        return Ok(());
                    }
                } else if let Some((pair, _)) = self.pairs.get_mut(&(token / 2)) {
                    match token % 2 {
                        0 => pair.gateway_event(event),
                        _ => pair.engine_event(event),
                    }
                    self.turns.push(token / 2);
                }
            }
            let now = now();
            while let Some(&(at, id)) = self.due.first()
                && at <= now
            {
                self.due.pop_first();
                self.turns.push(id);
            }
            std::mem::swap(&mut turns, &mut self.turns);
            for id in each_once(&mut turns) {
                self.turn(id, now);
            }
        }
    }

    /// Time until the next deadline, or zero if a pair can make progress.
    fn waits(&self) -> Option<Duration> {
        if !self.turns.is_empty() {
            return Some(Duration::ZERO);
        }
        let (at, _) = self.due.first()?;
        Some(at.saturating_duration_since(now()))
    }

    /// Carries out waiting orders. Returns false if the loop should end.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Carry(id, mut pair, over)) => {
                    let registry = self.poll.registry();
                    match pair.register(registry, Token(2 * id), Token(2 * id + 1)) {
                        Ok(()) => {
                            self.pairs.insert(id, (pair, over));
                            self.turns.push(id);
                        }
                        Err(error) => drop(over.send(Err(error))),
                    }
                }
                Ok(Order::End(id)) => drop(self.pairs.remove(&id)),
                Ok(Order::EndAll) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn turn(&mut self, id: usize, now: Instant) {
        let Some((pair, _)) = self.pairs.get_mut(&id) else {
            return;
        };
        match contained(|| pair.turn(&mut self.buffer, now)) {
            Turn::Waits => {}
            Turn::WaitsUntil(at) => {
                self.due.insert((at, id));
            }
            Turn::Again => self.turns.push(id),
            Turn::Ended(how) => {
                if let Some((pair, over)) = self.pairs.remove(&id) {
                    drop(pair);
                    let _ = over.send(how);
                }
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of this thread, by which it stops waiting for a side that is gone"
)]
fn now() -> Instant {
    Instant::now()
}

/// Contains a panic to the pair that caused it, so the thread's other pairs continue.
fn contained(turn: impl FnOnce() -> Turn) -> Turn {
    // The pair is not used again.
    let turned = catch_unwind(AssertUnwindSafe(turn));
    turned.unwrap_or_else(|_| Turn::Ended(Err(io::Error::other("a fault of the relay"))))
}

/// Removes duplicates: both sides of a pair and its last turn may have requested the next one, and the busiest pair would otherwise
/// get more and more turns.
fn each_once(turns: &mut Vec<usize>) -> impl Iterator<Item = usize> {
    turns.sort_unstable();
    turns.dedup();
    turns.drain(..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay_sides::Gateway;
    use engine::LocalSocket;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_number_of_relay_threads_grows_with_the_machine() {
        assert_eq!([1, 2, 15, 16, 64, 256].map(count), [1, 1, 1, 2, 8, 8]);
    }

    #[test]
    fn a_pair_gets_one_turn_for_any_number_of_events() {
        let mut turns = vec![7, 3, 7, 7, 3];
        assert_eq!(each_once(&mut turns).collect::<Vec<_>>(), [3, 7]);
        assert!(turns.is_empty());
    }

    #[test]
    fn a_panic_in_one_pair_does_not_end_its_thread() {
        let turned = contained(|| panic!("a fault"));
        assert!(matches!(turned, Turn::Ended(Err(_))), "{turned:?}");
    }

    /// A pair with its far ends.
    fn pair() -> (Pair, TcpStream, UnixStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let far_gateway = TcpStream::connect(address).expect("connected");
        let (gateway, _) = listener.accept().expect("one");
        let (engine, far_engine) = UnixStream::pair().expect("two ends");
        gateway.set_nonblocking(true).expect("set");
        engine.set_nonblocking(true).expect("set");
        let gateway = Gateway::new(gateway, None);
        let pair = Pair::new(gateway, LocalSocket::Unix(engine), Arc::default());
        (pair, far_gateway, far_engine)
    }

    #[tokio::test]
    async fn dropping_the_threads_ends_their_pairs() {
        let (pair, _far_gateway, _far_engine) = pair();
        let threads = RelayThreads::start().expect("threads");
        let carried = threads.carry(pair);
        drop(threads);
        assert!(carried.ended().await.is_err());
    }

    #[tokio::test]
    async fn a_gateway_that_stays_connected_after_its_engine_ended_is_closed_eventually() {
        let (pair, _far_gateway, far_engine) = pair();
        let threads = RelayThreads::start().expect("threads");
        let carried = threads.carry(pair);
        drop(far_engine);
        let ended = tokio::time::timeout(Duration::from_secs(30), carried.ended());
        assert!(ended.await.expect("an end").is_ok());
    }
}
