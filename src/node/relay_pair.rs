//! A gateway and an engine between which bytes go as they are, for a thread that moves many such pairs: nothing here waits. Each
//! piece goes on as it comes, and nothing is read while the other side does not take it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mio::event::{Event, Source};
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use tokio_rustls::rustls::ServerConnection;

use engine::LocalSocket;

/// Pieces that one pair moves in a row before the others have their turn.
const PIECES_A_TURN: usize = 32;
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// What a turn has come to.
#[derive(Debug)]
pub(super) enum Turn {
    /// Something has to happen first.
    Waits,
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
    /// The engine has ended so, and the gateway has all but the end.
    closing: Option<io::Result<()>>,
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
    pub fn turn(&mut self, buffer: &mut [u8]) -> Turn {
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
        if self.closing.is_none() {
            let mut taker = Taker {
                engine: &mut self.engine,
                refused: &mut self.refused,
            };
            let moved = self.up.move_on(&mut self.gateway, &mut taker, buffer, None);
            match moved {
                Ok(Step::Waits) => {}
                Ok(Step::Again) => is_again = true,
                Ok(Step::Ended) => return Turn::Ended(Ok(())),
                Err(error) => return Turn::Ended(Err(error)),
            }
        }
        if self.closing.is_some() && !matches!(done(self.gateway.flush()), Ok(None)) {
            return Turn::Ended(self.closing.take().unwrap_or(Ok(())));
        }
        match is_again {
            true => Turn::Again,
            false => Turn::Waits,
        }
    }

    fn close(&mut self, how: io::Result<()>) {
        self.closing = Some(how);
        self.gateway.close();
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
    fn move_on(
        &mut self,
        from: &mut impl Read,
        to: &mut impl Write,
        buffer: &mut [u8],
        moved: Option<&AtomicU64>,
    ) -> io::Result<Step> {
        for _ in 0..PIECES_A_TURN {
            if self.begin < self.rest.len() {
                self.begin += write(to, &self.rest[self.begin..], moved)?;
                if self.begin < self.rest.len() {
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

/// `None`: it would have to wait.
fn done<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A socket, and what is known of it: an event says once that something came or that there is room.
struct Socket<S> {
    stream: S,
    is_readable: bool,
    is_writable: bool,
    /// No more comes; what has come is still to be read.
    is_closed: bool,
}

impl<S: Source> Socket<S> {
    /// Tried before the first event.
    fn new(stream: S) -> Socket<S> {
        Socket {
            stream,
            is_readable: true,
            is_writable: true,
            is_closed: false,
        }
    }

    fn heard(&mut self, event: &Event) {
        self.is_closed |= event.is_read_closed() || event.is_error();
        self.is_readable |= event.is_readable() || self.is_closed;
        self.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }
}

impl<S: Read> Read for Socket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_readable {
                return Err(ErrorKind::WouldBlock.into());
            }
            match self.stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_readable = false;
                    return Err(error);
                }
                Ok(bytes) => {
                    // Less than there was room for: it is empty now, and what comes later is another event.
                    self.is_readable = bytes == buffer.len() || self.is_closed;
                    return Ok(bytes);
                }
            }
        }
    }
}

impl<S: Write> Write for Socket<S> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        loop {
            if !self.is_writable {
                return Err(ErrorKind::WouldBlock.into());
            }
            match self.stream.write(piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_writable = false;
                    return Err(error);
                }
                Ok(bytes) => return Ok(bytes),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The engine's side, within this machine.
enum Engine {
    Unix(Socket<UnixStream>),
    Tcp(Socket<TcpStream>),
}

impl Read for Engine {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Engine::Unix(socket) => socket.read(buffer),
            Engine::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Engine {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self {
            Engine::Unix(socket) => socket.write(piece),
            Engine::Tcp(socket) => socket.write(piece),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What takes a request. An engine may refuse it, answer and close before it has read all: then the rest is dropped, and how
/// the engine has ended shows behind its answer.
struct Taker<'a, T> {
    engine: &'a mut T,
    refused: &'a mut bool,
}

impl<T: Write> Write for Taker<'_, T> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if !*self.refused {
            match self.engine.write(piece) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => *self.refused = true,
                written => return written,
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The gateway's side: in clear, or inside TLS with the handshake done.
pub(super) struct Gateway {
    socket: Socket<TcpStream>,
    tls: Option<Box<ServerConnection>>,
}

impl Gateway {
    pub fn new(socket: std::net::TcpStream, tls: Option<ServerConnection>) -> Gateway {
        Gateway {
            socket: Socket::new(TcpStream::from_std(socket)),
            tls: tls.map(Box::new),
        }
    }

    /// Says that no more comes; what says so inside TLS is still to be flushed.
    fn close(&mut self) {
        match &mut self.tls {
            Some(tls) => tls.send_close_notify(),
            // It may be closed already.
            None => drop(self.socket.stream.shutdown(Shutdown::Write)),
        }
    }
}

impl Read for Gateway {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.read(buffer);
        };
        loop {
            if let Some(bytes) = done(tls.reader().read(buffer))? {
                return Ok(bytes);
            }
            tls.read_tls(&mut self.socket)?;
            if let Err(error) = tls.process_new_packets() {
                // With the reason for the other side, if there is room.
                let _ = tls.write_tls(&mut self.socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }
}

impl Write for Gateway {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        // What was encrypted before goes first, so that not more is taken than the socket takes.
        self.flush()?;
        let Some(tls) = &mut self.tls else {
            return self.socket.write(piece);
        };
        let bytes = tls.writer().write(piece)?;
        // What does not go now is flushed later.
        done(self.flush())?;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            if tls.write_tls(&mut self.socket)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
