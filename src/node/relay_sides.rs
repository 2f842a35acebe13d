//! The two sides of a connection between a gateway and an engine, for a thread that never blocks: sockets that remember their
//! events, and TLS on the gateway's side.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::event::{Event, Source};
use mio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::ServerConnection;

/// Returns `None` if the call would block.
pub(super) fn done<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A socket with its readiness: an event reports only once that data has arrived or that there is room.
pub(super) struct Socket<S> {
    pub stream: S,
    pub is_readable: bool,
    is_writable: bool,
    /// No more data will arrive. Data that has arrived can still be read.
    pub is_closed: bool,
}

impl<S: Source> Socket<S> {
    /// Starts as ready, to try before the first event.
    pub fn new(stream: S) -> Socket<S> {
        Socket {
            stream,
            is_readable: true,
            is_writable: true,
            is_closed: false,
        }
    }

    pub fn heard(&mut self, event: &Event) {
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
                    // A short read: the socket is empty now, and later data causes another event.
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
pub(super) enum Engine {
    Unix(Socket<UnixStream>),
    Tcp(Socket<TcpStream>),
}

impl Engine {
    /// Ends reading and writing.
    pub fn shut(&mut self) {
        // The peer may have left already.
        let _ = match self {
            Engine::Unix(socket) => socket.stream.shutdown(Shutdown::Both),
            Engine::Tcp(socket) => socket.stream.shutdown(Shutdown::Both),
        };
    }
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

/// Passes a request to the engine. An engine may refuse it, respond and close before it has read everything: then the rest is
/// dropped, and the result shows after its response.
pub(super) struct EngineWriter<'a, T> {
    pub engine: &'a mut T,
    pub refused: &'a mut bool,
}

impl<T: Write> Write for EngineWriter<'_, T> {
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

/// The gateway's side, in clear or inside TLS after the handshake.
pub(super) struct Gateway {
    pub socket: Socket<TcpStream>,
    tls: Option<Box<ServerConnection>>,
}

impl Gateway {
    pub fn new(socket: std::net::TcpStream, tls: Option<ServerConnection>) -> Gateway {
        Gateway {
            socket: Socket::new(TcpStream::from_std(socket)),
            tls: tls.map(Box::new),
        }
    }

    /// Ends writing. Inside TLS, the close notification still has to be flushed.
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
    }

    /// Ends writing after everything has been flushed. Reading continues.
    pub fn shut(&mut self) {
        // The peer may have left already.
        let _ = self.socket.stream.shutdown(Shutdown::Write);
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
                // Sends the reason to the other side, if there is room.
                let _ = tls.write_tls(&mut self.socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }
}

impl Write for Gateway {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        // Earlier encrypted bytes go first: never take more than the socket accepts.
        self.flush()?;
        let Some(tls) = &mut self.tls else {
            return self.socket.write(piece);
        };
        let bytes = tls.writer().write(piece)?;
        // Bytes that cannot be sent now are flushed later.
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
