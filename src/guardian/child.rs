//! The engine as a child process: start, signals, and cleanup. As its subreaper, the guardian becomes the
//! parent of every process that the engine's processes leave behind, so all remains are children of the
//! guardian.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid, setsid};

use super::cgroup;
use super::proc;
use super::protocol::{Launch, ProcessId};

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The process that leads the engine's session and group, not reaped yet.
pub struct Engine {
    pub id: ProcessId,
    child: Child,
    /// Held while the engine may run: when it closes, the engine knows that the guardian has died.
    _lifeline: Option<ChildStdin>,
}

/// Our ends of the engine's output pipes.
pub struct Pipes {
    pub stdout: Option<File>,
    pub stderr: Option<File>,
}

/// Makes orphaned descendants our children. Does nothing where the system does not support it.
pub fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

impl Engine {
    /// Starts the engine. Call on the main thread: the system would end the engine when the calling thread ends. Errors are the
    /// system's: `NotFound` if the program does not exist.
    pub fn spawn(launch: &Launch) -> io::Result<(Engine, Pipes)> {
        let mut child = command(launch).spawn()?;
        let id = ProcessId::new(child.id());
        let file = |end: OwnedFd| {
            let flags = nix::fcntl::OFlag::O_NONBLOCK;
            nix::fcntl::fcntl(&end, nix::fcntl::FcntlArg::F_SETFL(flags))?;
            io::Result::Ok(File::from(end))
        };
        let stdout = child.stdout.take().map(|end| file(end.into())).transpose();
        let stderr = child.stderr.take().map(|end| file(end.into())).transpose();
        let engine = Engine {
            id,
            _lifeline: child.stdin.take(),
            child,
        };
        match (stdout, stderr) {
            (Ok(stdout), Ok(stderr)) => Ok((engine, Pipes { stdout, stderr })),
            (Err(error), _) | (_, Err(error)) => {
                engine.signal(Signal::SIGKILL);
                let _ = engine.reap();
                Err(error)
            }
        }
    }

    /// Signals the process group. Ignores a group that is already gone.
    pub fn signal(&self, signal: Signal) {
        let _ = killpg(raw(self.id.pid), signal);
    }

    /// Sends SIGTERM, and SIGCONT to let a stopped process act on it.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Returns true if the leader has ended. Does not reap it, which keeps its number and its group's number reserved.
    #[cfg(target_os = "linux")]
    pub fn has_ended(&self) -> bool {
        use nix::sys::wait::{Id, waitid};
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::Pid(raw(self.id.pid)), flags) {
                Ok(WaitStatus::StillAlive) => return false,
                Err(Errno::EINTR) => {}
                _ => return true,
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn has_ended(&self) -> bool {
        kill(raw(self.id.pid), None).is_err()
    }

    /// Reaps the ended leader and returns its status, such as `exit status 1` or `signal 9`. Kills the rest of its group first,
    /// while the number is still reserved.
    pub fn reap(mut self) -> String {
        self.signal(Signal::SIGKILL);
        self.child.wait().map_or_else(
            |error| format!("ended with unknown status: {error}"),
            describe,
        )
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Reaps dead children, except the engine's leader, whose number must not be reused.
#[cfg(target_os = "linux")]
pub fn reap_others(leader: Option<&Engine>) {
    use nix::sys::wait::{Id, waitid};
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        let ended = match waitid(Id::All, flags) {
            Ok(status) => status.pid(),
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        let is_leader = |pid: Pid| leader.is_some_and(|engine| raw(engine.id.pid) == pid);
        match ended {
            Some(pid) if !is_leader(pid) => drop(reap_one(Some(pid))),
            _ => return,
        }
    }
}

/// Without a subreaper, this process has no other children.
#[cfg(not(target_os = "linux"))]
pub fn reap_others(_leader: Option<&Engine>) {}

enum ReapResult {
    One,
    NoneYet,
    NoChildren,
}

fn reap_one(which: Option<Pid>) -> ReapResult {
    loop {
        return match waitpid(which, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => ReapResult::NoneYet,
            Ok(_) => ReapResult::One,
            Err(Errno::EINTR) => continue,
            Err(_) => ReapResult::NoChildren,
        };
    }
}

/// Kills every process that is left once the leader has been reaped. Returns true if none is left: the system has no child to wait
/// for, and the control group is empty.
pub fn sweep(group: Option<&Path>) -> bool {
    // Usually the leader was the only process, and removing an empty group costs a fifth of killing it.
    if let Some(folder) = group.filter(|folder| !cgroup::remove(folder)) {
        cgroup::kill(folder);
    }
    loop {
        match reap_one(None) {
            ReapResult::One => {}
            ReapResult::NoChildren => return group.is_none_or(cgroup::remove),
            ReapResult::NoneYet => break,
        }
    }
    // These children have not been reaped, so their numbers cannot have been reused.
    for pid in children() {
        let _ = kill(raw(pid), Signal::SIGKILL);
    }
    false
}

/// Runs a command and ignores its result; an empty command does nothing. A command that takes longer is killed.
pub fn run_to_its_end(command: &[String], within: Duration) {
    let [program, arguments @ ..] = command else {
        return;
    };
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else { return };
    let mut waited = Duration::ZERO;
    while matches!(child.try_wait(), Ok(None)) {
        if waited >= within {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::park_timeout(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}

/// The child processes of this process.
pub fn children() -> Vec<u32> {
    let own = std::process::id();
    // Some kernels list them; on others the parent of every process is read.
    let list = format!("/proc/{own}/task/{own}/children");
    if let Ok(list) = std::fs::read_to_string(list) {
        return list
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
    }
    let mut all = proc::all();
    all.retain(|&pid| proc::parent_of(pid) == Some(own));
    all
}

#[expect(
    unsafe_code,
    reason = "what must happen in the child before exec has no safe interface"
)]
fn command(launch: &Launch) -> Command {
    let mut command_line = launch.argv.iter().cloned().map(std::ffi::OsString::from);
    let mut command = Command::new(command_line.next().unwrap_or_default());
    command
        .args(command_line)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.working_dir)
        .stdin(if launch.lifeline {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let guardian = getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `setsid`, `prctl`, `getppid`, `close_range`, `fcntl`
    // and `getrlimit` are plain system calls; the closure does not allocate, lock or panic, and the errors are built from numbers.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            #[cfg(target_os = "linux")]
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The guardian may have died before the line above took effect.
            if getppid() != guardian {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            close_all_on_exec();
            Ok(())
        })
    };
    command
}

/// Marks every descriptor except standard input, output and error to be closed by exec. The standard library
/// marks its own; other libraries and inherited descriptors may not be marked. May be called between fork and
/// exec.
#[expect(unsafe_code, reason = "no safe interface marks a range of descriptors")]
pub fn close_all_on_exec() {
    const FIRST: libc::c_uint = 3;
    #[cfg(target_os = "linux")]
    {
        // SAFETY: only sets a flag on descriptors. It closes nothing in this process, which leaves open the pipe by which the
        // standard library learns of a failed exec.
        let done = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if done == 0 {
            return;
        }
    }
    // A system without that call: one descriptor at a time, up to the limit.
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills in the structure it receives.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let end = if known {
        limit.rlim_cur.min(65_536)
    } else {
        1_024
    };
    for descriptor in FIRST as libc::c_int..end as libc::c_int {
        // SAFETY: only sets a flag. A number that is not a descriptor gives an error.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}
