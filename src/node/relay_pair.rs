//! Passes bytes unchanged between a gateway and an engine, without blocking, for a thread that moves many such pairs. Each chunk is
//! passed on as it arrives, and nothing is read while the other side does not take it.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::relay_sides::{Engine, EngineWriter, Gateway, Socket, done};
use engine::LocalSocket;

/// A gateway that has received the complete response and its end closes the connection immediately; a dead gateway never does.
const LINGERS_MAX: Duration = Duration::from_secs(5);
/// Time limit after the gateway has left, since an engine that reads nothing does not notice. (If the gateway's last bytes found no
/// room, its end shows only when the kernel of its machine gives them up, by keepalive.)
const LEFT_MAX: Duration = Duration::from_secs(5);
/// Chunks that one pair moves in a row before other pairs get their turn.
const PIECES_A_TURN: usize = 32;
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Result of a turn.
#[derive(Debug)]
pub(super) enum Turn {
    /// Waits for an event.
    Waits,
    /// Waits for an event, at most until this time.
    WaitsUntil(Instant),
    /// More can be done immediately.
    Again,
    Ended(io::Result<()>),
}

/// The end of either side ends both, as without a node in between.
pub(super) struct Pair {
    gateway: Gateway,
    engine: Engine,
    up: Direction,
    down: Direction,
    /// The engine takes no more of the request. Parts of its response may still be in transit.
    refused: bool,
    /// Result of the engine's end. The gateway may still need the rest of the response or its end.
    closing: Option<io::Result<()>>,
    /// Time at which the pair ends in any case.
    ends_at: Option<Instant>,
    /// Bytes sent to gateways.
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

    /// Moves all bytes that can be moved now.
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
        let mut taker = EngineWriter {
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
        // The gateway's end comes after bytes that the engine does not take.
        if self.gateway.socket.is_closed && self.up.holds() {
            return Turn::WaitsUntil(*self.ends_at.get_or_insert(now + LEFT_MAX));
        }
        Turn::Waits
    }

    fn close(&mut self, how: io::Result<()>) {
        self.closing = Some(how);
        // The engine need not wait until the gateway has ended, too.
        self.engine.shut();
        self.gateway.close();
    }

    /// Sends the rest to the gateway after the engine's end, then the end. Drops what the gateway still sends until it has ended,
    /// too: closing a socket with unread data discards data that is still being sent (RFC 9112, 9.6).
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
                // The gateway may have left, which a write shows before the event arrives.
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
    /// Bytes read and not yet taken, from `begin` on.
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

/// Writes until the other side takes no more. Returns the number of bytes written.
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
