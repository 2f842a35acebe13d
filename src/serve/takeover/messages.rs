//! The messages of the exchange: lines of JSON on a Unix socket. The first carries the listening socket.

use std::io::{self, BufRead, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::super::notify::{self, Manager};

const VERSION: u32 = 1;
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Engines must not inherit the socket. On other systems, starting a program closes all descriptors anyway.
#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// The command that takes part in the exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Also that of a process that sends none: earlier versions of `serve` do not.
    #[default]
    Serve,
    Node,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Role::Serve => "model-pool serve",
            Role::Node => "model-pool node",
        }
    }
}

/// A message of either side. Unknown fields of other versions are ignored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub version: u32,
    pub role: Role,
    pub pid: u32,
    pub received: bool,
    pub free: bool,
    pub serving: bool,
    /// The connection to the service manager, which a new process may not know.
    pub manager: Option<Manager>,
}

impl Message {
    /// Checks that the sender can exchange messages with this process.
    pub fn check(&self, role: Role) -> io::Result<()> {
        if self.role != role {
            return Err(io::Error::other(format!(
                "process {} is `{}`, and this one is `{}`: they need separate folders",
                self.pid,
                self.role.command(),
                role.command()
            )));
        }
        if self.version == VERSION {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "process {} speaks version {} of the exchange, and this one {VERSION}; stop the old process and start the new one",
            self.pid, self.version
        )))
    }
}

pub(super) fn own_message(role: Role) -> Message {
    Message {
        version: VERSION,
        role,
        pid: std::process::id(),
        manager: notify::manager(),
        ..Message::default()
    }
}

fn line_of(message: &Message) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

pub(super) fn send(mut socket: &UnixStream, message: &Message) -> io::Result<()> {
    socket.write_all(&line_of(message)?)
}

pub(super) fn receive(reader: &mut impl BufRead) -> io::Result<Message> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}

pub(super) fn send_with(
    socket: &UnixStream,
    message: &Message,
    descriptor: &OwnedFd,
) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let line = line_of(message)?;
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&line)],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    // A line is far smaller than the socket's buffer.
    if sent == line.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

pub(super) fn receive_with(socket: &UnixStream) -> io::Result<(Message, OwnedFd)> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        CLOSE_ON_EXEC,
    );
    let count = match received {
        Ok(received) => received.bytes,
        Err(Errno::CONNRESET) => 0,
        Err(error) => return Err(error.into()),
    };
    if count == 0 {
        let text = "the old process has closed the connection: it ends, or another process takes over from it";
        return Err(io::Error::other(text));
    }
    let message = serde_json::from_slice(&bytes[..count])?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.next().and_then(|mut all| all.next());
    let descriptor =
        descriptor.ok_or_else(|| io::Error::other("the old process sent no listening socket"))?;
    Ok((message, descriptor))
}
