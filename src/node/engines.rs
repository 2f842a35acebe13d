//! Carries out orders about engines: starts, adopts and ends them, runs the commands that put them to sleep, and passes on their
//! reports and output.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, broadcast, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::generation::Generations;
use super::identity::milliseconds;
use super::machine::{EngineState, Machine, UseChange, now};
use super::weights::{Weights, fetch_was_ended, not_fetched, relocate};
use engine::{
    ActivityReport, AdoptedEngine, CudaProgram, ExitReport, Failure, Guardians, LogLine, LogStream,
    Program, RecordedWatch, ReplicaLog, Use,
};
use node_link::{EngineReport, KeptForm, LogLineForm, NodeReport, Start};
use pool::ReplicaId;

/// Status of an engine that SIGTERM ended.
const TERMINATED: &str = "signal 15";
/// A cluster that ends a job signals all its processes. Time limit for this node's own signal after an engine's.
const LEAVES_WITHIN: Duration = Duration::from_millis(500);

/// Paths that this node's engines are launched with.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    pub executable: PathBuf,
    pub cuda: CudaProgram,
    pub runtime_dir: PathBuf,
    pub log_dir: PathBuf,
}

pub(super) struct Engines {
    pub node: String,
    pub machine: Arc<Machine>,
    pub guardians: Arc<Guardians>,
    pub folders: Folders,
    /// The generation whose orders count.
    pub generations: Generations,
    pub weights: Arc<Weights>,
    /// One task per engine and per command.
    pub tasks: Mutex<JoinSet<()>>,
}

impl Engines {
    /// Starts an engine. A repeated order has no effect.
    pub async fn start(&self, start: Start) {
        let Start {
            launch,
            kept,
            weights: form,
        } = start;
        let Folders {
            executable,
            cuda,
            runtime_dir,
            log_dir,
        } = self.folders.clone();
        let mut launch = launch.here(executable, cuda, runtime_dir, log_dir);
        launch.member = kept.member.clone();
        let replica = launch.replica.0;
        let (stop, mut stopped) = oneshot::channel();
        {
            let mut inner = self.machine.lock();
            if inner.engines.contains_key(&replica) {
                return;
            }
            let activity = Arc::clone(&launch.watch.activity);
            let state = EngineState::new(launch.model_name.clone(), kept.clone(), stop, activity);
            inner.engines.insert(replica, state);
        }
        tracing::info!("starting {} ({})", launch.model_name, launch.replica);
        let log = ReplicaLog::in_memory().masking(launch.program.masking());
        let log = Arc::new(log);
        let (_, mut lines) = log.follow(0);
        let machine = Arc::clone(&self.machine);
        let guardians = Arc::clone(&self.guardians);
        let node = self.node.clone();
        let weights = Arc::clone(&self.weights);
        let life = async move {
            if let Some(form) = form {
                let reports = Arc::clone(&machine);
                let report = move |stage, percent| {
                    reports.engine_report(replica, EngineReport::Progress { stage, percent });
                };
                let brought = tokio::select! {
                    brought = weights.bring(&launch.model_name, *form, report) => brought,
                    _ = &mut stopped => {
                        let exit = fetch_was_ended();
                        return machine.engine_report(replica, EngineReport::Exited(exit));
                    }
                };
                match brought {
                    Ok(None) => {}
                    Ok(Some(moved)) => relocate(&mut launch.program, &moved),
                    Err(error) => {
                        let exit = not_fetched(&node, &error);
                        tracing::warn!("{}: {}", launch.model_name, exit.last_output);
                        return machine.engine_report(replica, EngineReport::Exited(exit));
                    }
                }
            }
            let paths = paths_of(&launch.program);
            let missing =
                tokio::task::spawn_blocking(move || paths.into_iter().find(|path| !path.exists()));
            if let Ok(Some(missing)) = missing.await {
                let exit = not_there(&node, &launch.model_name, &missing);
                tracing::warn!("{}", exit.last_output);
                return machine.engine_report(replica, EngineReport::Exited(exit));
            }
            let mut facts = kept.kept();
            facts.watch = Some(RecordedWatch::new(&launch));
            let reports = Arc::new(Reports::new(&machine, replica, &launch.model_name));
            let report = Arc::clone(&reports);
            let report = move |event| report.take(event);
            let run = engine::run(guardians, launch, facts, log, stopped, report);
            reports.until_ended(run, &mut lines).await;
        };
        self.spawn(life).await;
    }

    /// Continues an engine that an earlier process of this node has started.
    pub async fn adopt(&self, adopted: AdoptedEngine) {
        let record = adopted.record.clone();
        let Some(recorded) = &record.watch else {
            return;
        };
        let replica = record.replica;
        let watch = recorded.watch();
        watch.activity.mirror(ActivityReport {
            resting: record.asleep,
            ..ActivityReport::default()
        });
        let (stop, stopped) = oneshot::channel();
        let kept = KeptForm::recorded(&record);
        let activity = Arc::clone(&watch.activity);
        let mut state = EngineState::new(record.model.clone(), kept, stop, activity);
        state.pid = Some(adopted.pid());
        state.endpoint = Some(adopted.endpoint());
        state.ready_at = Some(record.ready_at_ms.map_or_else(now, instant_at));
        state.idle_since = adopted.last_end_ms.map(instant_at);
        state.asleep = record.asleep;
        self.machine.lock().engines.insert(replica, state);
        self.machine.adopted.notify_waiters();
        tracing::info!(
            "adopted {} (r{replica}), process {}, which kept running without a node (D2)",
            record.model,
            adopted.pid()
        );
        // Its guardian masks secrets.
        let log = Arc::new(ReplicaLog::adopted(record.log_file));
        let (_, mut lines) = log.follow(0);
        let reports = Arc::new(Reports::new(&self.machine, replica, &record.model));
        self.spawn(async move {
            let report = Arc::clone(&reports);
            let report = move |event| report.take(event);
            let run = engine::run_adopted(adopted, watch, log, stopped, report);
            reports.until_ended(run, &mut lines).await;
        })
        .await;
    }

    /// Leaves all engines to a process that takes over within this time. Engines that are not ready end.
    pub async fn leave(&self, within: Duration) {
        self.guardians.leave_to_successor(within);
        self.tasks.lock().await.shutdown().await;
    }

    /// Records changes in the use of engines for a later process.
    pub async fn note_use(&self, changes: Vec<UseChange>) {
        for UseChange {
            replica,
            busy,
            asleep,
        } in changes
        {
            let id = ReplicaId(replica);
            if let Some(busy) = busy {
                let last_end_ms = (!busy).then(unix_ms);
                self.guardians.used(id, Use { busy, last_end_ms });
            }
            if let Some(asleep) = asleep {
                self.guardians.note_sleep(id, asleep).await;
            }
        }
    }

    /// Runs a command of the model's file that puts its engine to sleep or wakes it.
    pub async fn command(&self, replica: u64, sleep: bool, words: Vec<String>, deadline: Duration) {
        let machine = Arc::clone(&self.machine);
        machine.lock().commands += 1;
        self.spawn(async move {
            let outcome = engine::run_command(&words, deadline).await;
            machine.lock().commands -= 1;
            machine.report(NodeReport::Commanded {
                replica,
                sleep,
                outcome,
            });
        })
        .await;
    }

    async fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().await;
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Passes on the reports of one engine.
struct Reports {
    machine: Arc<Machine>,
    replica: u64,
    model: String,
    /// An exit by SIGTERM, held back until it is known whether the node ends too.
    terminated: std::sync::Mutex<Option<ExitReport>>,
}

impl Reports {
    fn new(machine: &Arc<Machine>, replica: u64, model: &str) -> Reports {
        Reports {
            machine: Arc::clone(machine),
            replica,
            model: model.to_owned(),
            terminated: std::sync::Mutex::default(),
        }
    }

    fn terminated(&self) -> std::sync::MutexGuard<'_, Option<ExitReport>> {
        self.terminated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, report: engine::Report) {
        let Reports {
            machine,
            replica,
            model,
            ..
        } = self;
        match &report {
            engine::Report::Started { endpoint, .. } => {
                if let Some(engine) = machine.lock().engines.get_mut(replica) {
                    engine.endpoint = Some(endpoint.clone());
                }
            }
            engine::Report::Ready { took } => {
                tracing::info!(
                    "{model} (r{replica}) is ready after {} ms",
                    took.as_millis()
                );
            }
            engine::Report::Exited(exit) => {
                tracing::info!("{model} (r{replica}) has ended: {}", exit.status);
                if !exit.requested && exit.status == TERMINATED {
                    *self.terminated() = Some(exit.clone());
                    return;
                }
            }
            _ => {}
        }
        if let Some(report) = EngineReport::from_report(report) {
            machine.engine_report(*replica, report);
        }
    }

    /// Runs the engine, and passes on its output and its held exit.
    async fn until_ended(
        &self,
        run: impl Future<Output = ()>,
        lines: &mut broadcast::Receiver<LogLine>,
    ) {
        tokio::select! {
            () = run => {}
            () = follow(&self.machine, self.replica, lines) => {}
        }
        while let Ok(line) = lines.try_recv() {
            pass_on(&self.machine, self.replica, &line);
        }
        let exit = self.terminated().take();
        if let Some(exit) = exit {
            self.machine.leaves_within(LEAVES_WITHIN).await;
            self.machine
                .engine_report(self.replica, EngineReport::Exited(exit));
        }
    }
}

pub(super) fn unix_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    milliseconds(passed.unwrap_or_default())
}

/// The local time of a Unix time in the past.
pub(super) fn instant_at(unix: u64) -> Instant {
    let ago = Duration::from_millis(unix_ms().saturating_sub(unix));
    now().checked_sub(ago).unwrap_or_else(now)
}

/// Passes on lines for as long as the engine lives. Lines that arrive too fast are only in the file.
async fn follow(machine: &Machine, replica: u64, lines: &mut broadcast::Receiver<LogLine>) {
    loop {
        match lines.recv().await {
            Ok(line) => pass_on(machine, replica, &line),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn pass_on(machine: &Machine, replica: u64, line: &LogLine) {
    let at = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let form = LogLineForm {
        sequence: line.sequence,
        at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        is_stderr: line.stream == LogStream::Stderr,
        text: line.text.to_string(),
    };
    machine.lock().outbox.push_line(replica, form);
    machine.news.notify_one();
}

/// The paths on this machine that the launch reads.
fn paths_of(program: &Program) -> Vec<PathBuf> {
    let absolute = |path: &Path| path.is_absolute().then(|| path.to_owned());
    match program {
        Program::Candle(candle) => {
            let adapters = candle.adapters.iter().map(|(_, folder)| folder.clone());
            std::iter::once(candle.model_dir.clone())
                .chain(adapters)
                .collect()
        }
        Program::Command(command) => command
            .model_path
            .iter()
            .chain(&command.working_dir)
            .filter_map(|path| absolute(path))
            .collect(),
        Program::Server(server) => {
            let recipe = &server.recipe;
            // If it is a name on a hub, the engine fetches it.
            let model = recipe.is_local.then(|| PathBuf::from(&recipe.model));
            let adapters = recipe.adapters.iter().map(|(_, folder)| folder.clone());
            model
                .into_iter()
                .chain(adapters)
                .chain(recipe.working_dir.clone())
                .filter(|path| path.is_absolute())
                .collect()
        }
        Program::Remote(_) | Program::RayServe(_) => Vec::new(),
    }
}

fn not_there(node: &str, model: &str, path: &Path) -> ExitReport {
    ExitReport {
        requested: false,
        status: "not started".to_owned(),
        last_output: format!(
            "node {node} has no {}, which {model} needs: mount the same folder there, or list other nodes' devices in its pool_config.devices",
            path.display()
        ),
        oom: None,
        failure: Failure::ModelMissing,
    }
}
