//! One process of the system: spawned into a session of its own, watched, reaped. It owns what must
//! hold between fork and exec and the thread that all engines are children of. It knows nothing of
//! HTTP, logs or models.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::{getppid, setsid};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::oneshot;

use super::group::Group;

/// What to run.
pub(super) struct Order {
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    pub working_dir: Option<PathBuf>,
    /// Whether standard input is a pipe that we hold; else it is empty.
    pub lifeline: bool,
    pub tag: String,
}

/// A running process that leads its own session and group. Dropped before it is reaped, it and its
/// group are killed.
pub(super) struct Leader {
    pub group: Group,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    /// Held for as long as the process may live: its end tells the process that we died.
    _lifeline: Option<ChildStdin>,
    ended: oneshot::Receiver<()>,
    has_ended: bool,
    reap: Option<mpsc::Sender<()>>,
    reaped: oneshot::Receiver<io::Result<ExitStatus>>,
}

impl Leader {
    /// Errors as the system gives them: `NotFound` when there is no such program.
    pub async fn spawn(order: Order) -> io::Result<Leader> {
        let tag = order.tag.clone();
        let mut child = spawn_from_one_thread(command(order)).await?;
        let group = Group {
            leader: child.id(),
            tag,
        };
        let lifeline = child.stdin.take();
        let stdout = child.stdout.take().map(ChildStdout::from_std).transpose();
        let stderr = child.stderr.take().map(ChildStderr::from_std).transpose();
        let (ended_sender, ended) = oneshot::channel();
        let (reap, may_reap) = mpsc::channel();
        let (reaped_sender, reaped) = oneshot::channel();
        let watch = move || {
            wait_without_reaping(&mut child);
            let _ = ended_sender.send(());
            // Until then the zombie keeps its process number, and so the number of its group. The
            // sender's end is a permission too.
            let _ = may_reap.recv();
            let _ = reaped_sender.send(child.wait());
        };
        let watching = thread::Builder::new()
            .name(format!("engine-{}", group.leader))
            .stack_size(128 << 10)
            .spawn(watch);
        // From here on, dropping kills.
        let mut leader = Leader {
            group,
            stdout: None,
            stderr: None,
            _lifeline: lifeline,
            ended,
            has_ended: false,
            reap: Some(reap),
            reaped,
        };
        watching?;
        leader.stdout = stdout?;
        leader.stderr = stderr?;
        Ok(leader)
    }

    /// Comes back when the process has ended, which it may have already. May be dropped and called
    /// again.
    pub async fn ended(&mut self) {
        if !self.has_ended {
            let _ = (&mut self.ended).await;
            self.has_ended = true;
        }
    }

    /// Waits for the end and removes the last trace of the process: `exit status 1`, `signal 9`.
    pub async fn reap(mut self) -> String {
        self.ended().await;
        self.reap = None;
        match (&mut self.reaped).await {
            Ok(Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "ended".to_owned(),
            },
            // Somebody else in this process waited for all children.
            Ok(Err(_)) | Err(_) => "ended with unknown status".to_owned(),
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.reap.is_some() {
            self.group.signal(Signal::SIGKILL);
        }
    }
}

#[cfg(target_os = "linux")]
fn wait_without_reaping(child: &mut Child) {
    use nix::errno::Errno;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let process = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(process), flags) == Err(Errno::EINTR) {}
}

/// The status is kept and given again. The number may be another's for the moment until the group
/// has been killed.
#[cfg(not(target_os = "linux"))]
fn wait_without_reaping(child: &mut Child) {
    let _ = child.wait();
}

#[expect(
    unsafe_code,
    reason = "what must happen in the child before exec has no safe interface"
)]
fn command(order: Order) -> Command {
    let mut words = order.argv.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command
        .args(words)
        .env_clear()
        .envs(order.env)
        .stdin(match order.lifeline {
            true => Stdio::piped(),
            false => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = order.working_dir {
        command.current_dir(directory);
    }
    let controller = nix::unistd::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `setsid`, `prctl`,
    // `getppid`, `close_range`, `fcntl` and `getrlimit` are plain system calls; nothing here
    // allocates, locks or panics, and the errors are built from numbers.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            #[cfg(target_os = "linux")]
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The controller may have died before the line above took effect.
            if getppid() != controller {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            close_all_on_exec();
            Ok(())
        })
    };
    command
}

/// Marks everything but standard input, output and error to be closed by exec. What the standard
/// library opens is marked already; what other libraries open, or what we inherited, may not be.
#[expect(unsafe_code, reason = "no safe interface marks a range of descriptors")]
fn close_all_on_exec() {
    const FIRST: libc::c_uint = 3;
    #[cfg(target_os = "linux")]
    {
        // SAFETY: only sets a flag on descriptors; it closes nothing in this process, so that the
        // pipe by which the standard library learns of a failed exec stays open until then.
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
    // A system without that call: one by one, as far as descriptors can be.
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills in the structure that it is given.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let end = if known {
        limit.rlim_cur.min(65_536)
    } else {
        1_024
    };
    for descriptor in FIRST as libc::c_int..end as libc::c_int {
        // SAFETY: only sets a flag; a number that is no descriptor gives an error.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

struct Job {
    command: Command,
    reply: oneshot::Sender<io::Result<Spawned>>,
}

/// A child on its way to the one who asked for it; nobody may be there any more.
struct Spawned(Option<Child>);

impl Drop for Spawned {
    fn drop(&mut self) {
        if let Some(mut unwanted) = self.0.take() {
            let _ = unwanted.kill();
            let _ = unwanted.wait();
        }
    }
}

static SPAWNER: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);

/// The signal that a child gets at the death of its parent comes at the death of the *thread* that
/// spawned it, and threads of the runtime end whenever they like. So one thread spawns every
/// engine and lives as long as the process.
async fn spawn_from_one_thread(command: Command) -> io::Result<Child> {
    let (reply, answer) = oneshot::channel();
    let stopped = || io::Error::other("the thread that starts engines is gone");
    spawner()?
        .send(Job { command, reply })
        .map_err(|_| stopped())?;
    let mut spawned = answer.await.map_err(|_| stopped())??;
    spawned.0.take().ok_or_else(stopped)
}

fn spawner() -> io::Result<mpsc::Sender<Job>> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = &*spawner {
        return Ok(sender.clone());
    }
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::Builder::new()
        .name("engine-spawner".to_owned())
        .spawn(move || {
            for mut job in jobs {
                let spawned = catch_unwind(AssertUnwindSafe(|| job.command.spawn()));
                let spawned = spawned.unwrap_or_else(|panic| Err(panic_text(&*panic)));
                let _ = job.reply.send(spawned.map(|child| Spawned(Some(child))));
            }
        })?;
    *spawner = Some(sender.clone());
    Ok(sender)
}

/// An end of the spawning thread would end every engine, so a panic in it becomes an error.
fn panic_text(panic: &(dyn Any + Send)) -> io::Error {
    let text = panic.downcast_ref::<&str>().copied().unwrap_or("panic");
    io::Error::other(text.to_owned())
}
