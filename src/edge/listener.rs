//! The listening socket of the service: TCP, or a Unix socket with its permissions. Peers of a Unix socket count as 127.0.0.1,
//! because they are on this machine; the rules for local proxies apply to them.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use config::{Listen, ServerSection};

#[derive(Debug, Error)]
#[error(
    "cannot listen on {listen}: {source}; choose another address with server.listen or MODEL_POOL__SERVER__LISTEN"
)]
pub struct ListenError {
    pub listen: Listen,
    pub source: io::Error,
}

/// Largest number of connections waiting to be accepted. The system caps it (`net.core.somaxconn`, 4,096 on Linux).
const BACKLOG: u32 = 4096;
/// Modes of a Unix socket without and with a configured group.
const MODE_OF_OWNER: u32 = 0o600;
const MODE_OF_GROUP: u32 = 0o660;
const GROUPS: &str = "/etc/group";

/// A bound listener.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds the address. Connections queue until they are served.
    pub async fn bind(server: &ServerSection) -> Result<Listener, ListenError> {
        let bound = match &server.listen {
            Listen::Address(address) => tcp(*address).map(Listener::Tcp),
            Listen::Unix(path) => unix(path, server).map(Listener::Unix),
        };
        bound.map_err(|source| ListenError {
            listen: server.listen.clone(),
            source,
        })
    }

    /// Adopts a listening socket of another process if it matches the configuration.
    pub fn inherited(socket: OwnedFd, configured: &Listen) -> io::Result<Option<Listener>> {
        match configured {
            Listen::Address(configured) => {
                let listener = std::net::TcpListener::from(socket);
                let Ok(actual) = listener.local_addr() else {
                    return Ok(None);
                };
                let is_same = actual.ip() == configured.ip()
                    && (configured.port() == 0 || actual.port() == configured.port());
                if !is_same {
                    return Ok(None);
                }
                listener.set_nonblocking(true)?;
                Ok(Some(Listener::Tcp(TcpListener::from_std(listener)?)))
            }
            Listen::Unix(configured) => {
                let listener = std::os::unix::net::UnixListener::from(socket);
                let actual = listener.local_addr().ok();
                let actual = actual.as_ref().and_then(|address| address.as_pathname());
                if actual != Some(configured) || !configured.exists() {
                    return Ok(None);
                }
                listener.set_nonblocking(true)?;
                Ok(Some(Listener::Unix(UnixListener::from_std(listener)?)))
            }
        }
    }

    /// Duplicates the socket.
    pub fn try_clone(&self) -> io::Result<Listener> {
        let socket = self.as_fd().try_clone_to_owned()?;
        Ok(match self {
            Listener::Tcp(_) => Listener::Tcp(TcpListener::from_std(socket.into())?),
            Listener::Unix(_) => Listener::Unix(UnixListener::from_std(socket.into())?),
        })
    }

    /// The URL for display: `http://127.0.0.1:8080`, or `http://unix:/run/pool.sock:` in nginx's form. `scheme` is `http` or
    /// `https`.
    pub fn shown(&self, scheme: &str) -> io::Result<String> {
        Ok(match self {
            Listener::Tcp(listener) => format!("{scheme}://{}", listener.local_addr()?),
            Listener::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().unwrap_or(Path::new("?"));
                format!("{scheme}://unix:{}:", path.display())
            }
        })
    }

    pub async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Socket::Tcp(stream), peer))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                Ok((Socket::Unix(stream), here))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A listener with a queue for bursts of clients. The standard library's queue has 128 places, and further clients only retry after
/// a second.
fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As in the standard library: allows binding immediately after a restart.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listens only after the permissions are set; earlier connections are refused.
fn unix(path: &Path, server: &ServerSection) -> io::Result<UnixListener> {
    let group = server.socket_group.as_deref().map(group_id).transpose()?;
    let mode = server.socket_mode.map(|mode| mode.0);
    let mode = mode.unwrap_or(match group {
        None => MODE_OF_OWNER,
        Some(_) => MODE_OF_GROUP,
    });
    remove_abandoned(path)?;
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let permitted = std::os::unix::fs::chown(path, None, group)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)));
    if let Err(error) = permitted {
        let _ = std::fs::remove_file(path);
        let text = format!("its group or mode cannot be set: {error}");
        return Err(io::Error::new(error.kind(), text));
    }
    rustix::net::listen(&socket, BACKLOG as i32)?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Removes the socket of a process that has ended. Keeps any other file.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let in_use = |text: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    if !found.file_type().is_socket() {
        return in_use("a file that is not a socket has this path");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => in_use("another process listens there"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

/// The id of a group, given as a number or as a name in /etc/group.
fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let groups = std::fs::read_to_string(GROUPS)?;
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_named = fields.next() == Some(group);
        is_named.then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| {
        let text =
            format!("{GROUPS} has no group `{group}`; write its number in server.socket_group");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// The file of a Unix socket. Removed on drop, if it is still the same file.
pub struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    /// `None` for TCP.
    pub fn new(listen: &Listen) -> Option<SocketFile> {
        let Listen::Unix(path) = listen else {
            return None;
        };
        let inode = inode(path)?;
        Some(SocketFile {
            path: path.clone(),
            inode,
        })
    }

    /// Keeps the file for another process that now listens there.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path) == Some(self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// An accepted connection.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Socket::Tcp(stream) => Some(stream),
            Socket::Unix(_) => None,
        }
    }

    /// Writes as much as possible without waiting, and closes the connection.
    pub(crate) fn write_and_close(self, bytes: &[u8]) {
        let _ = match self {
            Socket::Tcp(stream) => stream.into_std().map(|mut stream| stream.write(bytes)),
            Socket::Unix(stream) => stream.into_std().map(|mut stream| stream.write(bytes)),
        };
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
