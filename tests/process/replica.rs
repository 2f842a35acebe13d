//! An engine under test: started by `engine::run`, its reports collected in order. Every wait has a time limit, which turns a hang
//! into a failure.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model_pool::engine::{
    CommandProgram, DeviceAddress, DeviceKind, Endpoint, ExitReport, GuardianSettings, Guardians,
    Launch, LaunchFacts, Listen, Program, ReplicaLog, Report, Watch, run,
};
use model_pool::pool::{Bytes, DeviceId, ReplicaId};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct RunningReplica {
    pub log: Arc<ReplicaLog>,
    pub home: TempDir,
    /// All reports so far.
    pub seen: Vec<Report>,
    pub guardians: Arc<Guardians>,
    launch: Option<Launch>,
    reports: mpsc::UnboundedReceiver<(Report, Duration)>,
    sender: Option<mpsc::UnboundedSender<(Report, Duration)>>,
    stop: Option<oneshot::Sender<Duration>>,
    stopped: Option<oneshot::Receiver<Duration>>,
    /// Dropping it drops the future of `run`.
    tasks: JoinSet<()>,
}

impl RunningReplica {
    pub fn start(program: Program) -> RunningReplica {
        let home = tempfile::tempdir().unwrap();
        let mut running = RunningReplica::prepare(launch(program, home.path()), home);
        running.go();
        running
    }

    pub fn prepare(launch: Launch, home: TempDir) -> RunningReplica {
        let log = ReplicaLog::open(&launch.log_dir, &launch.model_name, launch.replica).unwrap();
        let (sender, reports) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        RunningReplica {
            guardians: guardians(&launch),
            log: Arc::new(log),
            home,
            seen: Vec::new(),
            launch: Some(launch),
            reports,
            sender: Some(sender),
            stop: Some(stop),
            stopped: Some(stopped),
            tasks: JoinSet::new(),
        }
    }

    pub fn go(&mut self) {
        let launch = self.launch.take().unwrap();
        let sender = self.sender.take().unwrap();
        let stopped = self.stopped.take().unwrap();
        let report = move |report| {
            let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            // The test may have ended.
            let _ = sender.send((report, at));
        };
        let log = Arc::clone(&self.log);
        let guardians = Arc::clone(&self.guardians);
        let kept = LaunchFacts::default();
        self.tasks
            .spawn(run(guardians, launch, kept, log, stopped, report));
    }

    pub fn order_stop(&mut self, grace: Duration) {
        // The process may have ended.
        let _ = self.stop.take().unwrap().send(grace);
    }

    pub fn forget_stop(&mut self) {
        self.stop = None;
    }

    pub async fn stop(&mut self, grace: Duration) -> ExitReport {
        self.order_stop(grace);
        self.exited().await
    }

    pub async fn started(&mut self) -> (u32, Endpoint) {
        let found = |report: &Report| match report {
            Report::Started { pid, endpoint } => Some((*pid, endpoint.clone())),
            _ => None,
        };
        self.until(found).await.0
    }

    /// Returns true if the first report is `Started`. Otherwise it is the exit, which `exited` returns.
    pub async fn has_started(&mut self) -> bool {
        self.until(|_| Some(())).await;
        matches!(self.seen[0], Report::Started { .. })
    }

    pub async fn progress(&mut self) -> (String, Option<u8>) {
        let found = |report: &Report| match report {
            Report::Progress { stage, percent } => Some((stage.clone(), *percent)),
            _ => None,
        };
        self.until(found).await.0
    }

    pub async fn ready(&mut self) {
        let found = |report: &Report| matches!(report, Report::Ready { .. }).then_some(());
        self.until(found).await;
    }

    /// The first memory report above this value.
    pub async fn memory_above(&mut self, least: Bytes) -> Bytes {
        let found = |report: &Report| match report {
            Report::Memory { now, .. } if *now > least => Some(*now),
            _ => None,
        };
        self.until(found).await.0
    }

    /// The Unix time of the report.
    pub async fn ready_at(&mut self) -> Duration {
        let found = |report: &Report| matches!(report, Report::Ready { .. }).then_some(());
        self.until(found).await.1
    }

    /// The last report.
    pub async fn exited(&mut self) -> ExitReport {
        let found = |report: &Report| match report {
            Report::Exited(exit) => Some(exit.clone()),
            _ => None,
        };
        let exit = match self.seen.last().and_then(found) {
            Some(exit) => exit,
            None => self.until(found).await.0,
        };
        let rest = tokio::time::timeout(PATIENCE, self.reports.recv()).await;
        assert!(rest.unwrap().is_none(), "a report after the exit");
        exit
    }

    /// The first line of output with this beginning.
    pub async fn line(&mut self, begin: &str) -> String {
        let (lines, mut more) = self.log.follow(usize::MAX);
        let is_it = |text: &str| text.starts_with(begin);
        if let Some(line) = lines.iter().find(|line| is_it(&line.text)) {
            return line.text.to_string();
        }
        let wait = async {
            loop {
                let line = more.recv().await.unwrap();
                if is_it(&line.text) {
                    return line.text.to_string();
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| panic!("no line begins with {begin:?}: {:?}", self.log.tail(9)))
    }

    async fn until<T>(&mut self, found: impl Fn(&Report) -> Option<T>) -> (T, Duration) {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.reports.recv()).await;
            let Ok(Some((report, at))) = next else {
                panic!(
                    "it never came; so far {:?}; {:?}",
                    self.seen,
                    self.log.tail(9)
                );
            };
            self.seen.push(report);
            if let Some(found) = self.seen.last().and_then(&found) {
                return (found, at);
            }
        }
    }
}

/// Guardians that end with the test, including their engines.
fn guardians(launch: &Launch) -> Arc<Guardians> {
    Arc::new(Guardians::new(GuardianSettings {
        executable: env!("CARGO_BIN_EXE_model-pool").into(),
        runtime_dir: launch.runtime_dir.clone(),
        journal_dir: launch.log_dir.with_file_name("engines"),
        keep: false,
        adopt_within: Duration::from_secs(1),
    }))
}

pub fn launch(program: Program, home: &Path) -> Launch {
    Launch {
        replica: ReplicaId(1),
        model_name: "org/model".to_owned(),
        program,
        devices: vec![DeviceAddress {
            id: DeviceId(0),
            index: 0,
            uuid: None,
            kind: DeviceKind::Host,
            variable: None,
            total: Bytes(64 * Bytes::GIB),
        }],
        bytes_per_device: Bytes(Bytes::GIB),
        runtime_dir: home.join("run"),
        log_dir: home.join("log"),
        watch: Watch::default(),
        member: None,
    }
}

pub fn command(argv: &[&str]) -> Program {
    Program::Command(CommandProgram {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env: Default::default(),
        listen: Listen::Port,
        ready_path: "/health".to_owned(),
        model_path: None,
        served_model_name: None,
        working_dir: None,
        context: None,
    })
}

/// The last word of a line.
pub fn pid_in(line: &str) -> u32 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Running or sleeping; a zombie counts as gone.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

pub async fn until_gone(pid: u32) {
    let begin = now();
    while is_alive(pid) {
        assert!(begin.elapsed() < PATIENCE, "process {pid} lives on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub fn kill(pid: u32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tests measure real processes"
)]
pub fn now() -> Instant {
    Instant::now()
}
