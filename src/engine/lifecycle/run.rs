//! Runs one engine from launch to exit: prepare, start, watch, stop, and one last report. The driver handles the kind of engine,
//! the guardian its processes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::adoption::AdoptedEngine;
use super::engine::{Engine, Kind};
use super::{application as ray_serve, remote as remote_run};
use crate::failures::explain::explain;
use crate::failures::{EngineError, Failure, failure};
use crate::guardians::{
    Guard, Guardians, LaunchFacts, LogStream, Plan, RecordedWatch, ReplicaLog, ReservedEndpoint,
};
use crate::health::Watch;
use crate::launch::{EngineDriver, ExitReport, Launch, Listen, Program, Report, environment};
use crate::launch::{candle, command, server};

/// Delay from the end of a load to the start of the next guardian.
const SPARE_AFTER: Duration = Duration::from_millis(20);
/// Delay from the start of a launch to the removal of old log files, which must not slow down the launch or a short load.
const REMOVE_LOGS_AFTER: Duration = Duration::from_millis(100);

/// Runs one engine until it is gone, and returns after the last report. `stop` orders the end, with the grace period between
/// SIGTERM and SIGKILL. An engine that is still loading is killed immediately, and so is an engine whose `stop` sender is dropped.
/// Dropping this future kills the engine too, without a report, unless `guardians` leaves it to another controller. A fault before
/// the start is reported as `Exited` with the fault as last words.
pub async fn run(
    guardians: Arc<Guardians>,
    launch: Launch,
    kept: LaunchFacts,
    log: Arc<ReplicaLog>,
    stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report) + Send + Sync + 'static,
) {
    open_log(&launch, &log).await;
    let old_logs = remove_old_logs(&launch, &log);
    let mut life = pin!(run_logged(guardians, launch, kept, log, stop, report));
    tokio::select! {
        biased;
        () = &mut life => old_logs.await,
        () = tokio::time::sleep(REMOVE_LOGS_AFTER) => {
            tokio::join!(life, old_logs);
        }
    }
}

/// Continues [`run`] with the log's file open.
async fn run_logged(
    guardians: Arc<Guardians>,
    launch: Launch,
    kept: LaunchFacts,
    log: Arc<ReplicaLog>,
    mut stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report) + Send + Sync + 'static,
) {
    if let Program::Remote(recipe) = launch.program.clone() {
        return remote_run::run(launch, &recipe, log, stop, report).await;
    }
    if let Program::RayServe(program) = launch.program.clone() {
        return ray_serve::run(launch, &program, &kept, log, stop, report).await;
    }
    let not_started = |requested, last_output, failure| ExitReport {
        requested,
        status: "not started".to_owned(),
        last_output,
        oom: None,
        failure,
    };
    let driver = driver_of(&launch.program);
    let (exit, guard) = match stop.try_recv() {
        Err(oneshot::error::TryRecvError::Empty) => {
            match start(&guardians, &launch, kept, driver, &log).await {
                Ok(guard) => {
                    report(Report::Started {
                        pid: guard.group.leader.pid,
                        endpoint: guard.reserved.endpoint.clone(),
                    });
                    let engine = Engine {
                        guard,
                        is_ready: false,
                        watch: launch.watch.clone(),
                        responds: false,
                        follows: launch.follows(),
                    };
                    let kind = Kind {
                        driver,
                        launch: &launch,
                    };
                    let ready = Notify::new();
                    let report = |event: Report| {
                        if matches!(event, Report::Ready { .. }) {
                            ready.notify_one();
                        }
                        report(event);
                    };
                    let mut live = pin!(engine.live(Some(kind), &log, stop, &report));
                    // Starts the spare guardian for the next launch only now, to delay neither the load nor the requests that
                    // waited for it.
                    let prepare_spare = async {
                        ready.notified().await;
                        tokio::time::sleep(SPARE_AFTER).await;
                    };
                    let (exit, guard) = tokio::select! {
                        ended = &mut live => ended,
                        () = prepare_spare => tokio::join!(live, guardians.prepare()).0,
                    };
                    (exit, Some(guard))
                }
                Err(error) => {
                    let output = log.masked(&explain(&error));
                    log.push(LogStream::Stderr, &output);
                    let failure = failure::of_error(&error);
                    (not_started(false, output, failure), None)
                }
            }
        }
        Ok(_) | Err(oneshot::error::TryRecvError::Closed) => {
            let exit = not_started(true, String::new(), Failure::Crashed);
            (exit, None)
        }
    };
    report(Report::Exited(exit));
    if let Some(guard) = guard {
        guard.close();
    }
}

/// The driver for a program.
fn driver_of(program: &Program) -> &'static dyn EngineDriver {
    match program {
        Program::Candle(_) => &candle::CandleDriver,
        // `run_logged` handles programs without a local process before it looks up a driver.
        Program::Command(_) | Program::Remote(_) | Program::RayServe(_) => &command::CommandDriver,
        Program::Server(_) => &server::ServerDriver,
    }
}

/// Starts the engine: reserves its endpoint, has its driver build the command, and hands both to a guardian.
async fn start(
    guardians: &Arc<Guardians>,
    launch: &Launch,
    kept: LaunchFacts,
    driver: &dyn EngineDriver,
    log: &ReplicaLog,
) -> Result<Guard, EngineError> {
    let reserved = match launch.program.listen() {
        Listen::Port => ReservedEndpoint::port()?,
        Listen::At { address, port } => ReservedEndpoint::at(address, port)?,
        Listen::Socket => ReservedEndpoint::socket(&launch.runtime_dir, launch.replica)?,
    };
    let prepared = driver.prepare(launch, &reserved.endpoint)?;
    environment::check(&launch.model_name, &prepared.env)?;
    // Otherwise the system's error would read as if the program were missing.
    if let Some(path) = prepared.working_dir.clone().filter(|path| !path.is_dir()) {
        return Err(EngineError::WorkingDir {
            model: launch.model_name.clone(),
            path,
        });
    }
    let plan = Plan {
        argv: prepared.argv,
        working_dir: prepared.working_dir,
        lifeline: prepared.lifeline,
        ready_path: prepared.ready_path,
        cleanup: prepared
            .cleanup
            .unwrap_or_default()
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        install: prepared.install,
    };
    let environment = |tag: &str| {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        environment::complete(own, prepared.env.clone(), &launch.devices, tag)
    };
    let file = log.file().map(ToOwned::to_owned);
    Guard::launch(guardians, launch, kept, &plan, reserved, file, environment).await
}

/// Opens the log file. If that fails, the log is kept only in memory.
async fn open_log(launch: &Launch, log: &Arc<ReplicaLog>) {
    let (log, folder) = (Arc::clone(log), launch.log_dir.clone());
    let (model, replica) = (launch.model_name.clone(), launch.replica);
    let opened = tokio::task::spawn_blocking(move || log.open_file(&folder, &model, replica));
    if let Ok(Err(error)) = opened.await {
        let model = &launch.model_name;
        tracing::warn!(%error, model, "the engine's log is kept in memory only");
    }
}

/// Removes old log files when polled.
fn remove_old_logs(launch: &Launch, log: &Arc<ReplicaLog>) -> impl Future<Output = ()> + use<> {
    let (log, folder) = (Arc::clone(log), launch.log_dir.clone());
    let model = launch.model_name.clone();
    async move {
        let removed = tokio::task::spawn_blocking(move || log.remove_others(&folder, &model));
        // Remaining files are removed at the next launch.
        let _ = removed.await;
    }
}

/// Runs an engine of an earlier controller, which is already ready, until it is gone.
pub async fn run_adopted(
    adopted: AdoptedEngine,
    watch: Watch,
    log: Arc<ReplicaLog>,
    stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report) + Send + Sync + 'static,
) {
    let recorded = adopted.record.watch.as_ref();
    let follows = recorded.is_some_and(RecordedWatch::follows);
    let engine = Engine {
        guard: adopted.guard,
        is_ready: true,
        watch,
        responds: true,
        follows,
    };
    let (exit, guard) = engine.live(None, &log, stop, &report).await;
    report(Report::Exited(exit));
    guard.close();
}
