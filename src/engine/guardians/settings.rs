//! Starts guardians and holds their shared settings: our own program, the folders, and the rules for the time without a controller.
//! Keeps one spare guardian running, which lets a launch send a message instead of starting a program.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::unistd::setsid;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use super::journal::Journal;
use super::reserved_endpoint::make_private;
use crate::failures::EngineError;
use guardian::protocol::{MARK, ProcessId};
use pool::ReplicaId;

#[derive(Clone, Debug)]
pub struct GuardianSettings {
    /// Our own executable.
    pub executable: PathBuf,
    /// Folder of the sockets. Created with mode 0700; refused if other users can enter it. Must stay the same across restarts.
    pub runtime_dir: PathBuf,
    /// Folder of the journal's files.
    pub journal_dir: PathBuf,
    /// True if ready engines outlive the controller.
    pub keep: bool,
    /// Time that engines outlive the controller, unless [`Guardians::set_adopt_within`] changes it.
    pub adopt_within: Duration,
}

/// Use of a replica, for a later controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub busy: bool,
    /// In Unix milliseconds.
    pub last_end_ms: Option<u64>,
}

/// A change of use that the guardian has not received yet.
#[derive(Default)]
struct UnsentUse {
    latest: Option<Use>,
    changed: Arc<Notify>,
}

/// The reason the controller leaves while its engines keep running.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaveReason {
    /// The controller has failed: the engines follow their configured rules.
    Crashed,
    /// Another controller takes over.
    Successor { within: Duration },
}

pub struct Guardians {
    pub(crate) settings: GuardianSettings,
    pub(crate) journal: Journal,
    /// Parent of the engines' control groups, if control groups are available.
    pub(crate) cgroups: Option<PathBuf>,
    spare: Mutex<Option<NewGuardian>>,
    leaving: Mutex<Option<LeaveReason>>,
    adopt_within: Mutex<Duration>,
    uses: Mutex<BTreeMap<ReplicaId, UnsentUse>>,
}

/// A guardian that waits for its engine.
pub(crate) struct NewGuardian {
    pub socket: UnixStream,
    pub id: ProcessId,
    pub token: String,
    /// The runtime reaps it when it ends.
    pub child: Child,
}

impl Guardians {
    pub fn new(settings: GuardianSettings) -> Guardians {
        let journal = Journal::new(settings.journal_dir.clone());
        Guardians {
            adopt_within: Mutex::new(settings.adopt_within),
            settings,
            journal,
            cgroups: guardian::cgroup::own(),
            spare: Mutex::new(None),
            leaving: Mutex::new(None),
            uses: Mutex::new(BTreeMap::new()),
        }
    }

    /// Sets the time that engines started from now on outlive this process.
    pub fn set_adopt_within(&self, within: Duration) {
        *lock(&self.adopt_within) = within;
    }

    pub(crate) fn adopt_within_ms(&self) -> u64 {
        u64::try_from(lock(&self.adopt_within).as_millis()).unwrap_or(u64::MAX)
    }

    /// Lets engines outlive this controller from now on: it has failed, and its successor adopts them.
    pub fn crashed(&self) {
        lock(&self.leaving).get_or_insert(LeaveReason::Crashed);
    }

    /// Leaves engines from now on to a controller that takes over within this time.
    pub fn leave_to_successor(&self, within: Duration) {
        *lock(&self.leaving) = Some(LeaveReason::Successor { within });
        // The spare is no longer needed.
        *lock(&self.spare) = None;
    }

    pub(super) fn leaving(&self) -> Option<LeaveReason> {
        *lock(&self.leaving)
    }

    /// Records for a later controller whether the engine sleeps. A sleeping engine must not be adopted as a serving one.
    pub async fn note_sleep(self: &Arc<Guardians>, replica: ReplicaId, asleep: bool) {
        let guardians = Arc::clone(self);
        let noted =
            tokio::task::spawn_blocking(move || guardians.journal.note_sleep(replica, asleep));
        if let Ok(Err(error)) = noted.await {
            tracing::warn!(%replica, asleep, %error, "cannot record in the journal whether an engine sleeps");
        }
    }

    /// Records the use of a replica. Its guardian gets it within seconds.
    pub fn used(&self, replica: ReplicaId, usage: Use) {
        let mut uses = lock(&self.uses);
        let unsent = uses.entry(replica).or_default();
        unsent.latest = Some(usage);
        unsent.changed.notify_one();
    }

    /// Notified when there is a change of use to send.
    pub(crate) fn use_changed(&self, replica: ReplicaId) -> Arc<Notify> {
        Arc::clone(&lock(&self.uses).entry(replica).or_default().changed)
    }

    pub(super) fn take_use(&self, replica: ReplicaId) -> Option<Use> {
        lock(&self.uses).get_mut(&replica)?.latest.take()
    }

    /// Forgets the use of a replica that has ended.
    pub fn forget_use(&self, replica: ReplicaId) {
        lock(&self.uses).remove(&replica);
    }

    /// Starts the spare guardian. Errors surface at the launch that needs it.
    pub async fn prepare(self: &Arc<Guardians>) {
        if lock(&self.spare).is_some() || self.leaving().is_some() {
            return;
        }
        if let Ok(fresh) = self.spawn().await {
            let mut spare = lock(&self.spare);
            if self.leaving().is_none() {
                *spare = Some(fresh);
            }
        }
    }

    /// The spare guardian, or a new one.
    pub(crate) async fn take(self: &Arc<Guardians>) -> Result<NewGuardian, EngineError> {
        let spare = lock(&self.spare).take();
        match spare.filter(|fresh| fresh.id.lives()) {
            Some(fresh) => Ok(fresh),
            None => self.spawn().await,
        }
    }

    pub(crate) async fn spawn(self: &Arc<Guardians>) -> Result<NewGuardian, EngineError> {
        let guardians = Arc::clone(self);
        let spawned = tokio::task::spawn_blocking(move || {
            make_private(&guardians.settings.runtime_dir)?;
            guardians
                .try_spawn()
                .map_err(|source| EngineError::Guardian { source })
        });
        spawned.await.unwrap_or_else(|error| {
            let source = io::Error::other(error.to_string());
            Err(EngineError::Guardian { source })
        })
    }

    #[expect(
        unsafe_code,
        reason = "what must happen in the child before exec has no safe interface"
    )]
    fn try_spawn(&self) -> io::Result<NewGuardian> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let token = format!("{:032x}", rand::random::<u128>());
        let mut command = std::process::Command::new(&self.settings.executable);
        command
            .arg(guardian::COMMAND)
            .env_clear()
            .env(MARK, &token)
            .current_dir(&self.settings.runtime_dir)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(own) = &self.cgroups {
            command.arg(guardian::cgroup::folder_of(own, &token));
        }
        // Our own program may need it to start.
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", path);
        }
        // SAFETY: `setsid` and what marks descriptors are plain system calls; nothing allocates,
        // locks or panics.
        unsafe {
            command.pre_exec(|| {
                // Ctrl-C on a terminal is meant only for the controller.
                setsid()?;
                guardian::close_all_on_exec();
                Ok(())
            })
        };
        let child = Command::from(command).spawn()?;
        ours.set_nonblocking(true)?;
        Ok(NewGuardian {
            socket: UnixStream::from_std(ours)?,
            id: ProcessId::new(child.id().unwrap_or_default()),
            token,
            child,
        })
    }
}

impl std::fmt::Debug for Guardians {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guardians")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
