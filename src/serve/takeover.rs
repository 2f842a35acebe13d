//! The exchange by which a new model-pool replaces an old one without a refused connection. `serve` and `node`
//! decide what the old one closes, and when.
//!
//! ```text
//!  new                                   old
//!   │ connects to run/takeover.sock       │ serves; checks that the peer has the same user
//!   │◀── its listening socket ────────────│
//!   │─── received ───────────────────────▶│ stops accepting: new connections wait in the kernel
//!   │                                     │ lets requests that wait for a load get a slot, 10 s at most
//!   │                                     │ ends its loop, notifies the guardians, closes the store,
//!   │                                     │ releases its locks
//!   │◀── free ────────────────────────────│ its streams continue, directly from the engines, until
//!   │ locks, opens the store, adopts,     │ they end or `evening.drain` is over
//!   │ accepts on the same socket          │
//!   │─── serving ────────────────────────▶│ exits with success; without this message with a failure,
//!   │                                     ▼ so that a service manager restarts it and finds the engines
//! ```
//!
//! A stream that continues in the old process keeps its slot in the new one (see `seats`).
//!
//! The state has one owner at every moment: it is free only when the old process can no longer write.
//! If the new process dies before it has the socket, the old one continues. An old node continues even if the new process dies
//! later, because it can open its state again.

mod messages;

use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use self::messages::Role;
use self::messages::{Message, own_message, receive, receive_with, send, send_with};
use super::notify;
use config::Listen;
use http::Listener;

const SOCKET: &str = "takeover.sock";
/// Timeout for each message of the other side.
const MESSAGE_WITHIN: Duration = Duration::from_secs(10);
/// Timeout until the old process frees the state. It includes the wait for queued requests.
const FREE_WITHIN: Duration = Duration::from_secs(60);
/// Timeout until the new process has adopted the engines and serves.
const SERVING_WITHIN: Duration = Duration::from_secs(60);

/// The old side: the socket to which a new process connects.
pub(crate) struct TakeoverSocket {
    listener: tokio::net::UnixListener,
    path: PathBuf,
    role: Role,
}

/// A new process that has received our listening socket.
pub(crate) struct Successor {
    socket: UnixStream,
    pub pid: u32,
    role: Role,
}

impl TakeoverSocket {
    /// Creates the socket in `runtime_dir`, which is accessible only to our user.
    pub fn open(runtime_dir: &Path, role: Role) -> io::Result<TakeoverSocket> {
        let path = runtime_dir.join(SOCKET);
        // We hold the lock, so the process that created it is gone.
        let _ = std::fs::remove_file(&path);
        let short = ShortPath::new(runtime_dir)?;
        let listener = UnixListener::bind(short.path(SOCKET))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(TakeoverSocket {
            listener,
            path,
            role,
        })
    }

    /// Returns when a new process has our listening socket. Failed attempts are only logged.
    pub async fn successor(&self, listening: &OwnedFd) -> Successor {
        loop {
            match self.try_successor(listening).await {
                Ok(successor) => return successor,
                Err(error) => {
                    tracing::warn!(%error, "a takeover failed; this process continues to serve");
                    // The usual cause: no file descriptors are left.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn try_successor(&self, listening: &OwnedFd) -> io::Result<Successor> {
        let (socket, _) = self.listener.accept().await?;
        let peer = socket.peer_cred()?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            let text = format!("user {} is not the user of this process", peer.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let listening = listening.try_clone()?;
        let (socket, role) = (socket.into_std()?, self.role);
        tokio::task::spawn_blocking(move || {
            socket.set_nonblocking(false)?;
            socket.set_read_timeout(Some(MESSAGE_WITHIN))?;
            socket.set_write_timeout(Some(MESSAGE_WITHIN))?;
            send_with(&socket, &own_message(role), &listening)?;
            let response = receive(&mut BufReader::new(&socket))?;
            response.check(role)?;
            if response.received {
                Ok(Successor {
                    socket,
                    pid: response.pid,
                    role,
                })
            } else {
                Err(io::Error::other(
                    "the new process did not receive the socket",
                ))
            }
        })
        .await?
    }
}

/// A path to a socket that fits into a socket address (about 100 bytes), however deep the folder is.
pub(super) struct ShortPath {
    #[cfg(target_os = "linux")]
    folder: std::fs::File,
    #[cfg(not(target_os = "linux"))]
    folder: PathBuf,
}

impl ShortPath {
    #[cfg(target_os = "linux")]
    pub fn new(folder: &Path) -> io::Result<ShortPath> {
        let folder = std::fs::File::open(folder)?;
        Ok(ShortPath { folder })
    }

    #[cfg(target_os = "linux")]
    pub fn path(&self, name: &str) -> PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()).into()
    }

    #[cfg(not(target_os = "linux"))]
    pub fn new(folder: &Path) -> io::Result<ShortPath> {
        let folder = folder.to_owned();
        Ok(ShortPath { folder })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for TakeoverSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Successor {
    /// Reports that the state is closed and unlocked. Returns when the new process serves, or the reason it does not.
    pub async fn free(self) -> Result<(), String> {
        let message = Message {
            free: true,
            ..own_message(self.role)
        };
        if let Err(error) = send(&self.socket, &message) {
            tracing::warn!(%error, "cannot reach the new process; it starts when it can take the lock");
        }
        let pid = self.pid;
        let reply = tokio::task::spawn_blocking(move || {
            self.socket.set_read_timeout(Some(SERVING_WITHIN))?;
            receive(&mut BufReader::new(&self.socket))
        });
        match reply.await {
            // An earlier version sends no further message and closes the connection.
            Ok(Ok(message)) if message.serving => Ok(()),
            _ => Err(format!(
                "process {pid} took over but does not serve; start model-pool again within pool.adopt_within to keep the engines"
            )),
        }
    }
}

/// The state that a new process receives from the old one.
pub(crate) struct InheritedSocket {
    listener: OwnedFd,
    old: UnixStream,
    role: Role,
}

impl InheritedSocket {
    /// A copy of the socket.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone()
    }

    /// The socket, if it listens on the configured address.
    pub fn listener(&self, configured: &Listen) -> io::Result<Option<Listener>> {
        Listener::inherited(self.listener.try_clone()?, configured)
    }

    /// Reports to the old process that this one serves.
    pub fn serving(self) {
        let message = Message {
            serving: true,
            ..own_message(self.role)
        };
        // An old process that has exited needs no message.
        let _ = send(&self.old, &message);
    }
}

/// Takes over from the model-pool that serves from this folder. Returns when it has released everything, or `None` if none is
/// running.
pub(crate) async fn ask(runtime_dir: &Path, role: Role) -> Result<Option<InheritedSocket>, String> {
    let folder = runtime_dir.to_owned();
    let taken = tokio::task::spawn_blocking(move || try_take_over(&folder, role)).await;
    let taken = taken.unwrap_or_else(|error| Err(io::Error::other(error.to_string())));
    taken.map_err(|error| {
        format!("the takeover failed: {error}; check whether the old process still serves")
    })
}

fn try_take_over(folder: &Path, role: Role) -> io::Result<Option<InheritedSocket>> {
    let connected =
        ShortPath::new(folder).and_then(|short| UnixStream::connect(short.path(SOCKET)));
    let socket = match connected {
        Ok(socket) => socket,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            };
        }
    };
    socket.set_read_timeout(Some(MESSAGE_WITHIN))?;
    socket.set_write_timeout(Some(MESSAGE_WITHIN))?;
    let (old, listener) = receive_with(&socket)?;
    tracing::info!(
        "taking over from process {}, version {} of the exchange",
        old.pid,
        old.version
    );
    old.check(role)?;
    if let Some(manager) = old.manager {
        notify::inherit(manager);
    }
    let received = Message {
        received: true,
        ..own_message(role)
    };
    send(&socket, &received)?;
    socket.set_read_timeout(Some(FREE_WITHIN))?;
    // An old process that dies now has released everything too.
    let freed = receive(&mut BufReader::new(&socket));
    if !freed.is_ok_and(|message| message.free) {
        tracing::warn!("process {} did not report that the state is free", old.pid);
    }
    Ok(Some(InheritedSocket {
        listener,
        old: socket,
        role,
    }))
}

#[cfg(test)]
mod tests;
