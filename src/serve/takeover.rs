//! One model-pool takes the place of another without a refused connection. It owns the exchange
//! between the two; what the old one must have closed before, `serve` says.
//!
//! ```text
//!  new                                   old
//!   │ connects to run/takeover.sock       │ serves; asks the system who that is: the same user
//!   │◀── its listening socket ────────────│
//!   │─── received ───────────────────────▶│ accepts no more: new connections wait in the kernel
//!   │                                     │ lets who waits for a load get a seat, 10 s at most
//!   │                                     │ ends its loop, tells the guardians, closes the store,
//!   │                                     │ gives its locks back
//!   │◀── free ────────────────────────────│ streams that have begun go on in it, straight from the
//!   │ locks, opens the store, adopts,     │ engines, until they end or `evening.drain` is over
//!   │ accepts on the same socket          │
//!   │─── serving ────────────────────────▶│ ends well; without that word it ends as failed, so that
//!   │                                     ▼ a service manager starts anew and finds the engines
//! ```
//!
//! A stream that goes on in the old one keeps its seat at the new one's gate; how the new one knows of
//! it stands in `seats`.
//!
//! The state has one owner at every moment: it is free only when the old one cannot write any more.
//! A new one that dies before it has the socket costs nothing; the old one goes on.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::notify::{self, Manager};

const SOCKET: &str = "takeover.sock";
const VERSION: u32 = 1;
/// For each word of the other side.
const WORD_MAX: Duration = Duration::from_secs(10);
/// For all that the old one does before the state is free: who waits for a load is waited for.
const FREE_MAX: Duration = Duration::from_secs(60);
/// For the new one to adopt the engines and to serve.
const SERVING_MAX: Duration = Duration::from_secs(60);
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Engines must not inherit it. OtherProcesses what starts programs closes everything anyway.
#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// What both say; unknown fields of another version are skipped.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Word {
    version: u32,
    pid: u32,
    received: bool,
    free: bool,
    serving: bool,
    /// What the service manager told the old one, which it does not tell every new one.
    manager: Option<Manager>,
}

/// The old side: where a new one asks.
pub(super) struct TakeoverSocket {
    listener: tokio::net::UnixListener,
    path: PathBuf,
}

/// A new one that has our listening socket.
pub(super) struct Successor {
    socket: UnixStream,
    pub pid: u32,
}

impl TakeoverSocket {
    /// The folder is for our user alone. Errors when the socket cannot be made.
    pub fn open(runtime_dir: &Path) -> io::Result<TakeoverSocket> {
        let path = runtime_dir.join(SOCKET);
        // We hold the lock: whoever made it is gone.
        let _ = std::fs::remove_file(&path);
        let short = Short::of(runtime_dir)?;
        let listener = UnixListener::bind(short.path(SOCKET))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(TakeoverSocket { listener, path })
    }

    /// Comes back when a new one has our listening socket. Whoever asks and fails is forgotten.
    pub async fn successor(&self, listening: &OwnedFd) -> Successor {
        loop {
            match self.try_successor(listening).await {
                Ok(successor) => return successor,
                Err(error) => {
                    tracing::warn!(%error, "a takeover was begun and not gone through with");
                    // Out of file descriptors, mostly.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn try_successor(&self, listening: &OwnedFd) -> io::Result<Successor> {
        let (socket, _) = self.listener.accept().await?;
        let peer = socket.peer_cred()?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            let text = format!("user {} is not ours", peer.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let listening = listening.try_clone()?;
        let socket = socket.into_std()?;
        tokio::task::spawn_blocking(move || {
            socket.set_nonblocking(false)?;
            socket.set_read_timeout(Some(WORD_MAX))?;
            socket.set_write_timeout(Some(WORD_MAX))?;
            send_with(&socket, &own_word(), &listening)?;
            let answer = hear(&mut BufReader::new(&socket))?;
            match answer.received {
                true => Ok(Successor {
                    socket,
                    pid: answer.pid,
                }),
                false => Err(io::Error::other("the new process did not take the socket")),
            }
        })
        .await?
    }
}

/// The socket by a path that fits into a socket's address (some 100 bytes), however deep the folder lies.
pub(super) struct Short {
    #[cfg(target_os = "linux")]
    folder: std::fs::File,
    #[cfg(not(target_os = "linux"))]
    folder: PathBuf,
}

impl Short {
    #[cfg(target_os = "linux")]
    pub fn of(folder: &Path) -> io::Result<Short> {
        let folder = std::fs::File::open(folder)?;
        Ok(Short { folder })
    }

    #[cfg(target_os = "linux")]
    pub fn path(&self, name: &str) -> PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()).into()
    }

    #[cfg(not(target_os = "linux"))]
    pub fn of(folder: &Path) -> io::Result<Short> {
        let folder = folder.to_owned();
        Ok(Short { folder })
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
    /// The state is closed and unlocked. Comes back when the new one serves, or with why it does not.
    pub async fn free(self) -> Result<(), String> {
        let word = Word {
            free: true,
            ..own_word()
        };
        if let Err(error) = say(&self.socket, &word) {
            tracing::warn!(%error, "the new process does not listen; it sees by the lock that it may begin");
        }
        let pid = self.pid;
        let heard = tokio::task::spawn_blocking(move || {
            self.socket.set_read_timeout(Some(SERVING_MAX))?;
            hear(&mut BufReader::new(&self.socket))
        });
        match heard.await {
            // One of an earlier version says nothing more, and ends the connection.
            Ok(Ok(word)) if word.serving => Ok(()),
            _ => Err(format!(
                "process {pid}, which took over, did not come to serve; start model-pool again: the engines wait for it for pool.adopt_within"
            )),
        }
    }
}

/// What a new one takes from the old one.
pub(super) struct Inherited {
    listener: TcpListener,
    old: UnixStream,
}

impl Inherited {
    /// The socket, if it listens where the configuration says.
    pub fn listener(&self, wanted: SocketAddr) -> Option<TcpListener> {
        let has = self.listener.local_addr().ok()?;
        let same = has.ip() == wanted.ip() && (wanted.port() == 0 || has.port() == wanted.port());
        self.listener.try_clone().ok().filter(|_| same)
    }

    /// Tells the old one that it is not needed any more.
    pub fn serving(self) {
        let word = Word {
            serving: true,
            ..own_word()
        };
        // One that has ended already needs no word.
        let _ = say(&self.old, &word);
    }
}

/// Asks the model-pool that serves from this folder for its place, and comes back when it has given
/// everything up. `None`: there is none.
pub(super) async fn ask(runtime_dir: &Path) -> Result<Option<Inherited>, String> {
    let folder = runtime_dir.to_owned();
    let asked = tokio::task::spawn_blocking(move || try_ask(&folder)).await;
    let asked = asked.unwrap_or_else(|error| Err(io::Error::other(error.to_string())));
    asked.map_err(|error| {
        format!("the takeover failed: {error}; look whether the old process still serves")
    })
}

fn try_ask(folder: &Path) -> io::Result<Option<Inherited>> {
    let connected = Short::of(folder).and_then(|short| UnixStream::connect(short.path(SOCKET)));
    let socket = match connected {
        Ok(socket) => socket,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            };
        }
    };
    socket.set_read_timeout(Some(WORD_MAX))?;
    socket.set_write_timeout(Some(WORD_MAX))?;
    let (old, listener) = receive_with(&socket)?;
    tracing::info!(
        "taking over from process {}, version {} of the exchange",
        old.pid,
        old.version
    );
    if let Some(manager) = old.manager {
        notify::inherit(manager);
    }
    let received = Word {
        received: true,
        ..own_word()
    };
    say(&socket, &received)?;
    socket.set_read_timeout(Some(FREE_MAX))?;
    // One that dies now has given everything up too.
    let freed = hear(&mut BufReader::new(&socket));
    if !freed.is_ok_and(|word| word.free) {
        tracing::warn!("process {} ended without a word", old.pid);
    }
    Ok(Some(Inherited {
        listener,
        old: socket,
    }))
}

fn own_word() -> Word {
    Word {
        version: VERSION,
        pid: std::process::id(),
        manager: notify::manager(),
        ..Word::default()
    }
}

fn line_of(word: &Word) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    Ok(line)
}

fn say(mut socket: &UnixStream, word: &Word) -> io::Result<()> {
    socket.write_all(&line_of(word)?)
}

fn hear(reader: &mut impl BufRead) -> io::Result<Word> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}

fn send_with(socket: &UnixStream, word: &Word, descriptor: &OwnedFd) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let line = line_of(word)?;
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&line)],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    // A line is far smaller than what a socket takes at once.
    match sent == line.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn receive_with(socket: &UnixStream) -> io::Result<(Word, TcpListener)> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        CLOSE_ON_EXEC,
    )?;
    let word = serde_json::from_slice(&bytes[..received.bytes])?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.next().and_then(|mut all| all.next());
    let descriptor =
        descriptor.ok_or_else(|| io::Error::other("the old process sent no listening socket"))?;
    let listener = TcpListener::from(descriptor);
    // Errors when it is another kind of socket.
    listener.local_addr()?;
    Ok((word, listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listening_socket_goes_over_and_connections_that_wait_in_it_too() {
        let home = tempfile::tempdir().expect("a folder");
        let door = TakeoverSocket::open(home.path()).expect("a door");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let folder = home.path().to_owned();
        let new = tokio::task::spawn_blocking(move || try_ask(&folder));
        let successor = door.successor(&OwnedFd::from(listener)).await;
        assert_eq!(successor.pid, std::process::id());
        let waits = std::net::TcpStream::connect(address).expect("nobody refuses");
        let new = async {
            let inherited = new.await.expect("no panic").expect("an exchange");
            let inherited = inherited.expect("an old one");
            let listener = inherited.listener(address).expect("the same address");
            let (_, peer) = listener.accept().expect("the connection that waited");
            assert_eq!(peer, waits.local_addr().expect("an address"));
            inherited.serving();
        };
        let (freed, ()) = tokio::join!(successor.free(), new);
        assert_eq!(freed, Ok(()));
        drop(door);
        let nobody = ask(home.path()).await.expect("no failure");
        assert!(nobody.is_none(), "the door is closed");
    }

    #[tokio::test]
    async fn a_new_one_that_ends_before_it_serves_is_told_as_a_failure() {
        let home = tempfile::tempdir().expect("a folder");
        let deep = home.path().join("deep".repeat(40));
        std::fs::create_dir(&deep).expect("a folder with a long name");
        let door = TakeoverSocket::open(&deep).expect("a door");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let new = tokio::task::spawn_blocking(move || try_ask(&deep));
        let successor = door.successor(&OwnedFd::from(listener)).await;
        let new = async { drop(new.await.expect("no panic").expect("an exchange")) };
        let (freed, ()) = tokio::join!(successor.free(), new);
        let told = freed.expect_err("nobody serves");
        assert!(told.contains("start model-pool again"), "{told}");
    }
}
