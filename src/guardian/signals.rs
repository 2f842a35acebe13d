//! Turns signals into a readable descriptor: a child has ended, or this process should end. The handlers only write one byte.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static WAKE: AtomicI32 = AtomicI32::new(-1);
static TERMINATE_RECEIVED: AtomicBool = AtomicBool::new(false);

pub struct Signals {
    reader: File,
    _writer: OwnedFd,
}

#[expect(
    unsafe_code,
    reason = "a signal handler can only write to a raw descriptor"
)]
extern "C" fn wake(signal: libc::c_int) {
    if signal == Signal::SIGTERM as libc::c_int {
        TERMINATE_RECEIVED.store(true, Ordering::Relaxed);
    }
    let descriptor = WAKE.load(Ordering::Relaxed);
    // SAFETY: `write` is async-signal-safe, and the byte outlives the call. A full pipe or an
    // interrupted call loses nothing: the reader is awake already.
    unsafe { libc::write(descriptor, [1_u8].as_ptr().cast(), 1) };
}

impl Signals {
    /// SIGCHLD and SIGTERM wake the reader; signals that a terminal sends to its programs are ignored.
    #[expect(unsafe_code, reason = "no safe interface installs a signal handler")]
    pub fn install() -> io::Result<Signals> {
        let (reader, writer) = nix::unistd::pipe()?;
        for end in [&reader, &writer] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        WAKE.store(writer.as_raw_fd(), Ordering::Relaxed);
        let set = |signal, handler, flags| {
            let action = SigAction::new(handler, flags, SigSet::empty());
            // SAFETY: the handler above is async-signal-safe.
            unsafe { sigaction(signal, &action) }
        };
        let restart = SaFlags::SA_RESTART | SaFlags::SA_NOCLDSTOP;
        set(Signal::SIGCHLD, SigHandler::Handler(wake), restart)?;
        set(Signal::SIGTERM, SigHandler::Handler(wake), restart)?;
        for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
            set(signal, SigHandler::Handler(wake), restart)?;
        }
        Ok(Signals {
            reader: File::from(reader),
            _writer: writer,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Clears the descriptor. Returns true if SIGTERM has arrived since the last call.
    pub fn take(&mut self) -> bool {
        let mut bytes = [0; 64];
        while matches!(self.reader.read(&mut bytes), Ok(64)) {}
        TERMINATE_RECEIVED.swap(false, Ordering::Relaxed)
    }
}
