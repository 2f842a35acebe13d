//! A gateway and an engine between which bytes go as they are, for a thread that moves many such pairs: nothing here waits. Each
//! piece goes on as it comes, and nothing is read while the other side does not take it.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::relay_sides::{Engine, Gateway, Socket, Taker, done};
use engine::LocalSocket;

/// A gateway that has all of the answer and its end closes the connection at once; one that is gone never does.
const LINGERS_MAX: Duration = Duration::from_secs(5);
/// An engine that reads nothing does not see that the gateway has left. (Where the gateway's last bytes have found no room, its end
/// comes only when the kernel of its machine gives them up, and shows by keepalive.)
const LEFT_MAX: Duration = Duration::from_secs(5);
/// Pieces that one pair moves in a row before the others have their turn.
const PIECES_A_TURN: usize = 32;
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// What a turn has come to.
#[derive(Debug)]
pub(super) enum Turn {
    /// Something has to happen first.
    Waits,
    /// The same, and not for longer than until then.
    WaitsUntil(Instant),
    /// There is more to do at once.
    Again,
    Ended(io::Result<()>),
}

/// The end of either side ends both, as a client that leaves does without a node in between.
pub(super) struct Pair {
    gateway: Gateway,
    engine: Engine,
    up: Direction,
    down: Direction,
    /// The engine takes no more of the request. What it has answered may still be on its way.
    refused: bool,
    /// The engine has ended so, and the gateway has all but the end, or has that, too.
    closing: Option<io::Result<()>>,
    /// It is not waited for longer.
    ends_at: Option<Instant>,
    /// Bytes that went to gateways.
    moved: Arc<AtomicU64>,
}

impl Pair {
    pub fn new(gateway: Gateway, engine: LocalSocket, moved: Arc<AtomicU64>) -> Pair {
        Pair {
            gateway,
            engine: match engine {
                LocalSocket::Unix(socket) => {
                    Engine::Unix(Socket::new(UnixStream::from_std(socket)))
                }
                LocalSocket::Tcp(socket) => Engine::Tcp(Socket::new(TcpStream::from_std(socket))),
            },
            up: Direction::default(),
            down: Direction::default(),
            refused: false,
            closing: None,
            ends_at: None,
            moved,
        }
    }

    pub fn register(
        &mut self,
        registry: &Registry,
        gateway: Token,
        engine: Token,
    ) -> io::Result<()> {
        registry.register(&mut self.gateway.socket.stream, gateway, BOTH)?;
        match &mut self.engine {
            Engine::Unix(socket) => registry.register(&mut socket.stream, engine, BOTH),
            Engine::Tcp(socket) => registry.register(&mut socket.stream, engine, BOTH),
        }
    }

    pub fn gateway_event(&mut self, event: &Event) {
        self.gateway.socket.heard(event);
    }

    pub fn engine_event(&mut self, event: &Event) {
        match &mut self.engine {
            Engine::Unix(socket) => socket.heard(event),
            Engine::Tcp(socket) => socket.heard(event),
        }
    }

    /// Moves what there is to move.
    pub fn turn(&mut self, buffer: &mut [u8], now: Instant) -> Turn {
        if self.ends_at.is_some_and(|at| at <= now) {
            return self.ended();
        }
        let mut is_again = false;
        if self.closing.is_none() {
            let (gateway, engine) = (&mut self.gateway, &mut self.engine);
            let moved = Some(&*self.moved);
            match self.down.move_on(engine, gateway, buffer, moved) {
                Ok(Step::Waits) => {}
                Ok(Step::Again) => is_again = true,
                Ok(Step::Ended) => self.close(Ok(())),
                Err(error) => self.close(Err(error)),
            }
        }
        if self.closing.is_some() {
            return self.linger(buffer, now);
        }
        let mut taker = Taker {
            engine: &mut self.engine,
            refused: &mut self.refused,
        };
        match self.up.move_on(&mut self.gateway, &mut taker, buffer, None) {
            Ok(Step::Waits) => {}
            Ok(Step::Again) => is_again = true,
            Ok(Step::Ended) => return Turn::Ended(Ok(())),
            Err(error) => return Turn::Ended(Err(error)),
        }
        if is_again {
            return Turn::Again;
        }
        // The end of what the gateway has sent comes behind what the engine does not take.
        if self.gateway.socket.is_closed && self.up.holds() {
            return Turn::WaitsUntil(*self.ends_at.get_or_insert(now + LEFT_MAX));
        }
        Turn::Waits
    }

    fn close(&mut self, how: io::Result<()>) {
        self.closing = Some(how);
        // It need not wait until the gateway has ended, too.
        self.engine.shut();
        self.gateway.close();
    }

    /// After the engine's end the gateway gets what is left for it, and the end. What it still sends is dropped until it has
    /// ended, too: a socket that is closed before all is read discards what is still on its way out (RFC 9112, 9.6).
    fn linger(&mut self, buffer: &mut [u8], now: Instant) -> Turn {
        match done(self.gateway.flush()) {
            Ok(Some(())) => {}
            Ok(None) => return Turn::Waits,
            Err(_) => return self.ended(),
        }
        let at = match self.ends_at {
            Some(at) => at,
            None => {
                self.gateway.shut();
                // It may have left, which a write has shown before its event.
                self.gateway.socket.is_readable = true;
                *self.ends_at.insert(now + LINGERS_MAX)
            }
        };
        for _ in 0..PIECES_A_TURN {
            match done(self.gateway.socket.read(buffer)) {
                Ok(Some(1..)) => {}
                Ok(None) => return Turn::WaitsUntil(at),
                Ok(Some(0)) | Err(_) => return self.ended(),
            }
        }
        Turn::Again
    }

    fn ended(&mut self) -> Turn {
        let late = || Err(ErrorKind::TimedOut.into());
        Turn::Ended(self.closing.take().unwrap_or_else(late))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waits,
    Again,
    Ended,
}

#[derive(Default)]
struct Direction {
    /// What has been read and not been taken, from `begin` on.
    rest: Vec<u8>,
    begin: usize,
    is_unflushed: bool,
}

impl Direction {
    fn holds(&self) -> bool {
        self.begin < self.rest.len()
    }

    fn move_on(
        &mut self,
        from: &mut impl Read,
        to: &mut impl Write,
        buffer: &mut [u8],
        moved: Option<&AtomicU64>,
    ) -> io::Result<Step> {
        for _ in 0..PIECES_A_TURN {
            if self.holds() {
                self.begin += write(to, &self.rest[self.begin..], moved)?;
                if self.holds() {
                    return Ok(Step::Waits);
                }
                (self.rest, self.begin) = (Vec::new(), 0);
            }
            if self.is_unflushed {
                if done(to.flush())?.is_none() {
                    return Ok(Step::Waits);
                }
                self.is_unflushed = false;
            }
            let Some(read) = done(from.read(buffer))? else {
                return Ok(Step::Waits);
            };
            if read == 0 {
                return Ok(Step::Ended);
            }
            let piece = &buffer[..read];
            let written = write(to, piece, moved)?;
            self.is_unflushed = true;
            if written < read {
                self.rest = piece[written..].to_vec();
            }
        }
        Ok(Step::Again)
    }
}

/// How much of the piece went on before no more was taken.
fn write(to: &mut impl Write, piece: &[u8], moved: Option<&AtomicU64>) -> io::Result<usize> {
    let mut written = 0;
    while written < piece.len() {
        match done(to.write(&piece[written..]))? {
            Some(0) => return Err(ErrorKind::WriteZero.into()),
            Some(bytes) => written += bytes,
            None => break,
        }
    }
    if let Some(moved) = moved {
        moved.fetch_add(written as u64, Ordering::Relaxed);
    }
    Ok(written)
}

#[cfg(test)]
mod tests;
