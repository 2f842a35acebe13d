//! Runs one engine from launch to exit: prepare, start, watch, stop, and one last report. The driver handles the kind of engine,
//! the guardian its processes.
//!
//! One file because a launched and an adopted engine share the loop from ready to exit.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticks::Ticks;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::timeout;

use super::adoption::AdoptedEngine;
use super::explain::explain;
use super::failure::{self, Failure};
use super::guard::{Guard, GuardianEnd, Plan};
use super::guardians::Guardians;
use super::health::{HealthResponse, until_ready};
use super::journal::LaunchFacts;
use super::liveness::until_dead;
use super::log::{LogLine, LogStream, ReplicaLog};
use super::memory::{MappedBytes, Meter};
use super::oom::{self, OutOfMemory, kernel_kills};
use super::reserved_endpoint::ReservedEndpoint;
use super::{
    EngineDriver, EngineError, ExitReport, Launch, Listen, Program, Report, Watch, container,
    driver_of, environment, ray_serve, remote_run, scrape,
};

/// Interval at which an engine's host memory is read.
const MEMORY_EVERY: Duration = Duration::from_secs(2);
/// Delay after which the guardian learns of a change of use; a later controller counts from there.
const SEND_USE_AFTER: Duration = Duration::from_millis(250);
/// Time limit for a dead engine to end, before its waiting requests are released.
const DEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// A guardian that has not sent SIGKILL this long after the grace period no longer works.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(2);
/// A killed process that takes longer hangs in a driver. The administrator is warned.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay from the end of a load to the start of the next guardian.
const SPARE_AFTER: Duration = Duration::from_millis(20);
/// Delay from the start of a launch to the removal of old log files, which must not slow down the launch or a short load.
const REMOVE_LOGS_AFTER: Duration = Duration::from_millis(100);
/// Number of last lines searched for a known failure.
const ADVICE_LINES: usize = 20;
/// Number of last lines searched for the kind of failure, if the last words do not show it.
const LAST_LINES: usize = 5;

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
    let engine = Engine {
        guard: adopted.guard,
        is_ready: true,
        watch,
        responds: true,
    };
    let (exit, guard) = engine.live(None, &log, stop, &report).await;
    report(Report::Exited(exit));
    guard.close();
}

/// The kind of engine. An adopted engine is ready, so its output need not be parsed.
#[derive(Clone, Copy)]
struct Kind<'a> {
    driver: &'a dyn EngineDriver,
    launch: &'a Launch,
}

/// A running engine process with its state.
struct Engine {
    guard: Guard,
    is_ready: bool,
    watch: Watch,
    /// The health route has responded, with any status.
    responds: bool,
}

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

impl Engine {
    /// Returns when the entire engine is gone. The guard must be closed after the exit has been reported.
    async fn live(
        mut self,
        kind: Option<Kind<'_>>,
        log: &ReplicaLog,
        stop: oneshot::Receiver<Duration>,
        report: &(impl Fn(Report) + Sync),
    ) -> (ExitReport, Guard) {
        let (_, lines) = log.follow(0);
        let killed_before = kernel_kills();
        let mut listening = pin!(self.guard.listen(log));
        let end = {
            let mut end = pin!(self.watch(kind, lines, stop, report));
            tokio::select! {
                end = &mut end => end,
                () = &mut listening => unreachable!("it listens for as long as it is polled"),
            }
        };
        let (mut last_output, mut status) = match &end.how {
            GuardianEnd::Reported(notice) => (notice.last_words.clone(), notice.status.clone()),
            GuardianEnd::Lost => {
                let pid = self.guard.record.guardian.pid;
                let output =
                    format!("its guardian (process {pid}) was killed, and the engine with it");
                log.push(LogStream::Stderr, &output);
                (output, "lost with its guardian".to_owned())
            }
        };
        let mut failure = match (end.requested, end.was_ready, self.responds) {
            _ if end.dead.is_some() => Failure::Unresponsive,
            (_, true, _) => Failure::Crashed,
            (true, false, false) => Failure::TimedOut,
            (true, false, true) => Failure::NeverReady,
            (false, false, _) => match failure::classify(&last_output) {
                Failure::Crashed => failure::classify(&log.tail_text(LAST_LINES)),
                known => known,
            },
        };
        let known = kind.filter(|_| !end.requested && !end.was_ready);
        let notice = known.and_then(|kind| {
            // Some engines print more lines after the line that shows the cause.
            kind.driver.advice(kind.launch, &last_output).or_else(|| {
                kind.driver
                    .advice(kind.launch, &log.tail_text(ADVICE_LINES))
            })
        });
        if let Some((of_kind, advice)) = notice {
            failure = of_kind;
            last_output = format!("{last_output}\n{advice}");
        }
        if !end.requested && !end.was_ready && self.guard.reserved.is_taken() {
            let taken = format!(
                "{} was taken by another program while the engine started; load the model again",
                self.guard.reserved.endpoint
            );
            log.push(LogStream::Stderr, &taken);
            last_output = format!("{last_output}\n{taken}").trim_start().to_owned();
            failure = Failure::PortTaken;
        }
        if let Some(reason) = end.dead {
            status = "killed by the pool".to_owned();
            last_output = match last_output.as_str() {
                "" => reason,
                output => format!("{reason}; its last words: {output}"),
            };
        }
        if !end.requested && end.was_ready {
            // No request should be sent to it while its remains are being removed.
            let message = failure.tell(&last_output, &status);
            report(Report::Ended { message });
        }
        let leader = self.guard.group.leader.pid;
        let cleanup = std::mem::take(&mut self.guard.record.cleanup);
        let left = self.guard.left(&end.how).await;
        if !left.is_empty() {
            tracing::error!(
                leader,
                processes = ?left,
                "cannot kill processes of an engine; their memory is not freed"
            );
        }
        container::remove(&cleanup, log).await;
        let mut oom = oom::find(&last_output).or_else(|| oom::find(&log.tail_text(LAST_LINES)));
        if failure == Failure::OutOfMemory {
            oom = oom.or(Some(OutOfMemory {
                needed: None,
                of_host: false,
            }));
        }
        // The engine was killed, and the kernel has killed some process for memory in that time.
        if !end.requested && status == "signal 9" && kernel_kills() > killed_before {
            oom = Some(OutOfMemory {
                needed: None,
                of_host: true,
            });
            let killed = "the kernel killed it because the host's memory was full";
            log.push(LogStream::Stderr, killed);
            last_output = format!("{last_output}\n{killed}").trim_start().to_owned();
        }
        // An engine that was found dead may have printed this long ago, for another reason.
        if oom.is_some() && !end.requested && failure != Failure::Unresponsive {
            failure = Failure::OutOfMemory;
        }
        let exit = ExitReport {
            requested: end.requested,
            status,
            last_output,
            oom,
            failure,
        };
        (exit, self.guard)
    }

    /// Returns when the engine has ended and its other processes are gone.
    async fn watch(
        &mut self,
        kind: Option<Kind<'_>>,
        mut lines: broadcast::Receiver<LogLine>,
        mut stop: oneshot::Receiver<Duration>,
        report: &impl Fn(Report),
    ) -> End {
        let guard = &mut self.guard;
        let mapped = MappedBytes::default();
        let mut meter = Meter::new(guard.group.leader.pid, &mapped);
        let mut notice = None;
        let path = guard.record.ready_path.clone();
        let endpoint = guard.reserved.endpoint.clone();
        let responds = &mut self.responds;
        let not_yet = |response| {
            *responds = true;
            let progress = kind.and_then(|kind| progress_of(kind.driver, &path, &response));
            if progress != notice
                && let Some((stage, percent)) = progress.clone()
            {
                notice = progress;
                report(Report::Progress { stage, percent });
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the start of this engine's own load"
        )]
        let started = tokio::time::Instant::now();
        let mut ready = pin!(until_ready(&endpoint, &path, started, not_yet));
        let mut living = pin!(until_dead(&endpoint, &path, &self.watch));
        let mut scraping = pin!(scrape::follow(&endpoint, &self.watch, report));
        let memory_path = kind.and_then(|kind| kind.driver.memory_path());
        let mut mapping = pin!(mapped.follow(&endpoint, memory_path, MEMORY_EVERY));
        let cleanup = guard.record.cleanup.clone();
        let mut contained = pin!(container::main_process(&cleanup));
        let mut is_found = false;
        let mut dead = None;
        let mut last_line_progress = None;
        let mut is_ready = self.is_ready;
        let mut memory_due = Ticks::every(MEMORY_EVERY);
        let use_changed = guard.use_changed();
        let next_use = async || {
            use_changed.notified().await;
            tokio::time::sleep(SEND_USE_AFTER).await;
        };
        let mut use_due = pin!(next_use());
        let (requested, how) = loop {
            tokio::select! {
                biased;
                how = guard.ended() => break (stop.try_recv().is_ok(), how),
                order = &mut stop => {
                    if order.is_err() && guard.is_left() {
                        // The owner of `stop` is gone and leaves the engine to another controller.
                        std::future::pending::<()>().await;
                    }
                    let grace = order.ok().filter(|_| is_ready).unwrap_or_default();
                    break (true, end_engine(guard, grace).await);
                }
                () = &mut ready, if !is_ready => {
                    is_ready = true;
                    let took = started.elapsed();
                    guard.ready().await;
                    report(Report::Ready { took });
                    // A scan of all processes takes too long to delay waiting requests.
                    if let Some(now) = meter.read().await {
                        report(Report::Memory { now, peak: meter.peak });
                    }
                    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    guard.ready_at(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
                }
                // Missed lines matter less than the next line.
                Ok(line) = lines.recv(), if !is_ready => {
                    let progress = kind.and_then(|kind| kind.driver.progress_of_line(kind.launch, &line.text));
                    if progress != last_line_progress
                        && let Some((stage, percent)) = progress.clone()
                    {
                        last_line_progress = progress;
                        report(Report::Progress { stage, percent });
                    }
                }
                reason = &mut living, if is_ready => {
                    let notice = || report(Report::Dead { reason: reason.clone() });
                    let how = end_dead(guard, notice).await;
                    dead = Some(reason);
                    break (false, how);
                }
                never = &mut scraping, if is_ready => match never {},
                never = &mut mapping, if is_ready => match never {},
                pid = &mut contained, if !is_found => {
                    is_found = true;
                    report(Report::Contained { pid });
                }
                _ = memory_due.tick() => {
                    if let Some(now) = meter.changed().await {
                        report(Report::Memory { now, peak: meter.peak });
                    }
                }
                () = &mut use_due => {
                    guard.tell_use().await;
                    use_due.set(next_use());
                }
            }
        };
        End {
            requested,
            was_ready: is_ready,
            dead,
            how,
        }
    }
}

struct End {
    requested: bool,
    was_ready: bool,
    /// The reason it was judged dead and killed.
    dead: Option<String>,
    how: GuardianEnd,
}

/// Sends SIGTERM to the group, waits for the grace period, then sends SIGKILL to the group. Without a grace period, sends only
/// SIGKILL.
async fn end_engine(guard: &mut Guard, grace: Duration) -> GuardianEnd {
    let leader = guard.group.leader.pid;
    guard.stop(grace).await;
    if !grace.is_zero() {
        if let Ok(how) = timeout(grace, guard.ended()).await {
            return how;
        }
        tracing::warn!(
            leader,
            grace_seconds = grace.as_secs_f64(),
            "an engine did not end on SIGTERM and is killed"
        );
    }
    if let Ok(how) = timeout(GUARDIAN_TIMEOUT, guard.ended()).await {
        return how;
    }
    guard.end_if_frozen();
    loop {
        if let Ok(how) = timeout(KILL_TIMEOUT, guard.ended()).await {
            return how;
        }
        tracing::error!(
            leader,
            "an engine did not end on SIGKILL; a device driver may hang"
        );
    }
}

/// Sends SIGKILL to all processes, which also ends a stopped process. Calls `lingers` if that takes long.
async fn end_dead(guard: &mut Guard, lingers: impl FnOnce()) -> GuardianEnd {
    guard.stop(Duration::ZERO).await;
    if let Ok(how) = timeout(DEAD_TIMEOUT, guard.ended()).await {
        return how;
    }
    lingers();
    end_engine(guard, Duration::ZERO).await
}

/// The load's progress in a response other than 2xx. A missing route is reported too, because it would otherwise look like a load
/// that never ends.
fn progress_of(
    driver: &dyn EngineDriver,
    path: &str,
    response: &HealthResponse,
) -> Option<(String, Option<u8>)> {
    match response.status {
        503 => driver.progress(&response.body),
        status => Some((format!("{path} answers {status}"), None)),
    }
}
