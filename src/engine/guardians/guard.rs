//! One engine, controlled through its guardian: the launch, the engine's journal file, and the report of its end. Dropping it ends
//! the engine, unless the controller leaves its engines to a successor.
//!
//! One file because the launch, the journal and the report of the end share the state of one handle.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::Notify;

use super::group::Group;
use super::journal::{LaunchFacts, Record};
use super::link::{GuardianReader, GuardianWriter, socket_name, talk};
use super::log::ReplicaLog;
use super::reserved_endpoint::ReservedEndpoint;
use super::settings::{Guardians, LeaveReason, NewGuardian, Use};
use crate::failures::EngineError;
use crate::launch::Launch;
use guardian::protocol::{self, End, Line, News, Order};
use guardian::{cgroup, proc};

/// A guardian that takes longer to start a process is treated as hung.
const START_MAX: Duration = Duration::from_secs(30);

/// The launch of an engine, before it is started.
pub(crate) struct Plan {
    pub argv: Vec<std::ffi::OsString>,
    pub working_dir: Option<PathBuf>,
    pub lifeline: bool,
    pub ready_path: String,
    /// The command that removes the container; empty if there is none.
    pub cleanup: Vec<String>,
    /// Instructions to install a missing program.
    pub install: Option<&'static str>,
}

pub(crate) struct Guard {
    guardians: Arc<Guardians>,
    pub record: Record,
    pub group: Group,
    pub reserved: ReservedEndpoint,
    writer: GuardianWriter,
    /// Present until `listen` takes it.
    reader: Option<GuardianReader>,
    /// Lines that arrived before `listen` was called.
    early: Vec<Line>,
    heard: Arc<EndSignal>,
    /// The engine has ended, and dropping the handle has no effect.
    over: bool,
    /// Our child process, unless the guardian was adopted.
    _child: Option<Child>,
}

/// The end of the engine, once it is known.
#[derive(Default)]
pub(crate) struct EndSignal {
    end: OnceLock<GuardianEnd>,
    news: Notify,
}

#[derive(Clone)]
pub(crate) enum GuardianEnd {
    /// Reported by the guardian.
    Reported(End),
    /// The guardian itself is gone.
    Lost,
}

/// A guardian whose engine has started.
struct StartedGuardian {
    record: Record,
    group: Group,
    reader: GuardianReader,
    writer: GuardianWriter,
    early: Vec<Line>,
    child: Child,
}

impl StartedGuardian {
    async fn begin(
        guardians: &Arc<Guardians>,
        launch: &Launch,
        fresh: NewGuardian,
        mut record: Record,
        order: Result<Order, EngineError>,
        install: Option<&'static str>,
    ) -> Result<StartedGuardian, EngineError> {
        let order = order?;
        let journal = &guardians.journal;
        journal
            .write(&record)
            .map_err(|source| EngineError::Journal {
                path: journal.path_of(launch.replica),
                source,
            })?;
        let (mut reader, mut writer) = talk(fresh.socket);
        let mut early = Vec::new();
        let response = async {
            writer.send(&order).await.ok()?;
            loop {
                match reader.next_within(START_MAX).await? {
                    News::Line(line) => early.push(line),
                    News::Started { engine } => return Some(Ok(engine)),
                    News::NotStarted { code, message } => {
                        return Some(Err(code.map_or_else(
                            || io::Error::other(message),
                            io::Error::from_raw_os_error,
                        )));
                    }
                    _ => {}
                }
            }
        };
        let engine = match response.await {
            Some(Ok(engine)) => engine,
            other => {
                journal.remove(launch.replica);
                return Err(match other {
                    Some(Err(source)) => EngineError::Start {
                        model: launch.model_name.clone(),
                        program: program_of(&order),
                        install,
                        source,
                    },
                    _ => EngineError::GuardianGone,
                });
            }
        };
        record.engine = Some(engine);
        if let Err(error) = journal.write(&record) {
            tracing::warn!(%error, model = record.model, "the journal of an engine is incomplete");
        }
        let group = Group {
            leader: engine,
            tag: record.tag.clone(),
            cgroup: record.cgroup.clone(),
        };
        Ok(StartedGuardian {
            record,
            group,
            reader,
            writer,
            early,
            child: fresh.child,
        })
    }
}

impl Guard {
    /// Writes the journal and has the engine started. `environment` builds the engine's complete environment from its tag.
    pub async fn launch(
        guardians: &Arc<Guardians>,
        launch: &Launch,
        kept: LaunchFacts,
        plan: &Plan,
        reserved: ReservedEndpoint,
        log_file: Option<PathBuf>,
        environment: impl Fn(&str) -> std::collections::BTreeMap<String, String>,
    ) -> Result<Guard, EngineError> {
        // The spare guardian may have been killed; the second one is new.
        let fresh = guardians.take().await?;
        let attempt = |fresh: NewGuardian| {
            let tag = super::group::new_tag(fresh.id, launch.replica);
            let mut record = record_of(launch, &kept, plan, &reserved, &fresh, &tag, &log_file);
            let folder = |own: &PathBuf| cgroup::folder_of(own, &fresh.token);
            record.cgroup = guardians.cgroups.as_ref().map(folder);
            let order = order_of(guardians, launch, plan, &record, environment(&tag));
            StartedGuardian::begin(guardians, launch, fresh, record, order, plan.install)
        };
        let started = match attempt(fresh).await {
            Err(EngineError::GuardianGone) => attempt(guardians.spawn().await?).await?,
            done => done?,
        };
        Ok(Guard {
            guardians: Arc::clone(guardians),
            group: started.group,
            record: started.record,
            reserved,
            writer: started.writer,
            reader: Some(started.reader),
            early: started.early,
            heard: Arc::default(),
            over: false,
            _child: Some(started.child),
        })
    }

    /// An engine that already runs, whose guardian has been notified of the adoption.
    pub fn adopted(
        guardians: &Arc<Guardians>,
        record: Record,
        group: Group,
        (reader, writer): (GuardianReader, GuardianWriter),
    ) -> Guard {
        Guard {
            guardians: Arc::clone(guardians),
            reserved: ReservedEndpoint::adopted((&record.endpoint).into()),
            record,
            group,
            writer,
            reader: Some(reader),
            early: Vec::new(),
            heard: Arc::default(),
            over: false,
            _child: None,
        }
    }

    /// Copies everything the guardian sends into the log until the engine has ended. Must be polled concurrently with all other
    /// work on the engine.
    pub fn listen<'a>(&mut self, log: &'a ReplicaLog) -> impl Future<Output = ()> + use<'a> {
        let reader = self.reader.take();
        let early = std::mem::take(&mut self.early);
        let heard = Arc::clone(&self.heard);
        async move {
            early.iter().for_each(|line| log.take(line));
            let mut ended = GuardianEnd::Lost;
            if let Some(mut reader) = reader {
                while let Some(news) = reader.next().await {
                    match news {
                        News::Line(line) => log.take(&line),
                        News::Exited(end) => {
                            ended = GuardianEnd::Reported(end);
                            break;
                        }
                        _ => {}
                    }
                }
                let _ = heard.end.set(ended);
                heard.news.notify_waiters();
                // Keeps the connection open: closing it would look to the guardian like the controller's death.
                std::future::pending::<()>().await;
                drop(reader);
            }
        }
    }

    /// Returns when the engine has ended and all its remains are gone; immediately if they are already. Cancel safe.
    pub async fn ended(&self) -> GuardianEnd {
        loop {
            let mut news = std::pin::pin!(self.heard.news.notified());
            news.as_mut().enable();
            if let Some(ended) = self.heard.end.get() {
                return ended.clone();
            }
            news.await;
        }
    }

    /// Reports to the guardian that the engine is ready: from now on it can be adopted, even if the controller dies before it
    /// reports this.
    pub async fn ready(&mut self) {
        self.send(Order::Ready).await;
    }

    /// Writes the time to the journal. Not urgent.
    pub fn ready_at(&mut self, ready_at_ms: u64) {
        self.record.ready_at_ms = Some(ready_at_ms);
        if let Err(error) = self.guardians.journal.write(&self.record) {
            tracing::warn!(%error, model = self.record.model, "the journal of an engine is incomplete");
        }
    }

    /// Notified when there is a change of use to send.
    pub fn use_changed(&self) -> Arc<Notify> {
        self.guardians.use_changed(self.record.replica())
    }

    /// Sends the replica's use to the guardian, if it changed.
    pub async fn tell_use(&mut self) {
        if let Some(Use { busy, last_end_ms }) = self.guardians.take_use(self.record.replica()) {
            self.send(Order::Used { busy, last_end_ms }).await;
        }
    }

    pub async fn stop(&mut self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.send(Order::Stop { grace_ms }).await;
    }

    /// Kills a guardian that does not carry out an order to kill its engine, because it is stopped or stuck. The engine dies with
    /// it, and its end is reported as a lost guardian's.
    pub fn end_if_frozen(&self) {
        let (guardian, engine) = (self.record.guardian, self.group.leader);
        if !guardian.lives() || !engine.lives() || proc::is_being_killed(engine.pid) {
            return;
        }
        tracing::error!(
            guardian = guardian.pid,
            engine = engine.pid,
            "a guardian does not respond; it is killed with its engine"
        );
        let raw = nix::unistd::Pid::from_raw(guardian.pid.cast_signed());
        let _ = nix::sys::signal::kill(raw, nix::sys::signal::Signal::SIGKILL);
    }

    /// Returns true if the controller leaves its engines to a successor.
    pub fn is_left(&self) -> bool {
        self.guardians.leaving().is_some()
    }

    /// Call after the engine has ended: kills the processes that a lost guardian could not. Returns the processes that still exist.
    pub async fn left(&self, ended: &GuardianEnd) -> Vec<u32> {
        match ended {
            GuardianEnd::Reported(end) => end.left.clone(),
            GuardianEnd::Lost => self.group.sweep().await,
        }
    }

    /// Removes the journal's file and releases the guardian. Call after the end is reported: an engine that waits for the memory
    /// must not wait for a disk. If the controller dies before this, its successor finds the file of an engine that is gone, as it
    /// does when an engine ends without a controller.
    pub fn close(mut self) {
        self.over = true;
        self.guardians.forget_use(self.record.replica());
        self.guardians.journal.remove(self.record.replica());
    }

    async fn send(&mut self, order: Order) {
        if let Err(error) = self.writer.send(&order).await {
            // The reader notices a lost connection immediately.
            tracing::debug!(%error, "cannot write to a guardian");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let guardian = self.record.guardian;
        match self.guardians.leaving() {
            Some(LeaveReason::Crashed) => self.reserved.leave(),
            Some(LeaveReason::Successor { within }) => {
                self.reserved.leave();
                let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
                self.writer.send_now(&Order::Successor { within_ms });
            }
            None => {
                self.writer.send_now(&Order::Stop { grace_ms: 0 });
                // Without a controller, the guardian removes the file; if the guardian is gone, it is removed here.
                if !guardian.lives() {
                    self.guardians.journal.remove(self.record.replica());
                }
            }
        }
    }
}

fn record_of(
    launch: &Launch,
    kept: &LaunchFacts,
    plan: &Plan,
    reserved: &ReservedEndpoint,
    fresh: &NewGuardian,
    tag: &str,
    log_file: &Option<PathBuf>,
) -> Record {
    Record {
        version: Record::version(),
        replica: launch.replica.0,
        model: launch.model_name.clone(),
        token: fresh.token.clone(),
        tag: tag.to_owned(),
        boot: proc::boot(),
        cgroup: None,
        guardian: fresh.id,
        engine: None,
        endpoint: (&reserved.endpoint).into(),
        ready_path: plan.ready_path.clone(),
        cleanup: plan.cleanup.clone(),
        placement: kept
            .placement
            .iter()
            .map(|(device, bytes)| super::journal::JournalShare {
                device: device.clone(),
                bytes: bytes.0,
            })
            .collect(),
        arguments: kept.arguments.clone(),
        served_model_name: kept.served_model_name.clone(),
        stop_grace_ms: u64::try_from(kept.stop_grace.as_millis()).unwrap_or(u64::MAX),
        asleep: false,
        ready_at_ms: None,
        log_file: log_file.clone(),
        watch: kept.watch.clone(),
    }
}

fn order_of(
    guardians: &Guardians,
    launch: &Launch,
    plan: &Plan,
    record: &Record,
    env: std::collections::BTreeMap<String, String>,
) -> Result<Order, EngineError> {
    let own = |source| EngineError::Guardian { source };
    // The guardian runs in another directory.
    let absolute = |path: PathBuf| std::path::absolute(path).map_err(own);
    let working_dir = match &plan.working_dir {
        Some(path) => absolute(path.clone())?,
        None => std::env::current_dir().map_err(own)?,
    };
    let mut remove_at_end = vec![absolute(guardians.journal.path_of(launch.replica))?];
    if let crate::connection::Endpoint::Unix(path) =
        &crate::connection::Endpoint::from(&record.endpoint)
    {
        remove_at_end.push(path.clone());
    }
    let settings = &guardians.settings;
    Ok(Order::Launch(Box::new(protocol::Launch {
        replica: record.replica,
        token: record.token.clone(),
        argv: plan
            .argv
            .iter()
            .map(|word| word.as_os_str().into())
            .collect(),
        env,
        working_dir,
        lifeline: plan.lifeline,
        socket: socket_name(launch.replica).into(),
        log_file: record.log_file.clone().map(absolute).transpose()?,
        remove_at_end,
        clean_up: record.cleanup.clone(),
        keep: settings.keep,
        adopt_within_ms: guardians.adopt_within_ms(),
        grace_ms: record.stop_grace_ms,
    })))
}

fn program_of(order: &Order) -> String {
    let Order::Launch(launch) = order else {
        return String::new();
    };
    let word = launch.argv.first().cloned().map(std::ffi::OsString::from);
    word.unwrap_or_default().to_string_lossy().into_owned()
}
