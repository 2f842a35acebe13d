//! One engine from launch to reaped. It owns the order of things: prepare, spawn, capture, watch,
//! stop, sweep, reap, and one last report. It chooses nothing; what kind of engine it is, the
//! driver knows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::capture::pump;
use super::endpoint::Reserved;
use super::failure::{self, Failure};
use super::fault::explain;
use super::group::new_tag;
use super::health::{Answer, until_ready};
use super::lack::{Lack, kernel_kills, said};
use super::liveness::until_dead;
use super::log::{LogStream, ReplicaLog};
use super::memory::Meter;
use super::process::{Leader, Order};
use super::{
    EngineDriver, EngineFault, ExitReport, Launch, Listen, Program, Report, Watch, driver_of,
    environment, remote,
};

/// How often an engine's host memory is read.
const MEMORY_EVERY: Duration = Duration::from_secs(2);
/// How long the pipes may stay open after all processes we know of have ended.
const PIPES_MAX: Duration = Duration::from_millis(200);
/// A dead engine that takes longer to end must not keep those who wait for it.
const DEAD_PATIENCE: Duration = Duration::from_secs(2);
/// A killed process that takes longer hangs in a driver; the administrator should know.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Runs one engine until it is gone, and returns after the last report. `stop` orders the end, with
/// the grace period between SIGTERM and SIGKILL; an engine that is still loading is killed at once,
/// and so is one whose `stop` sender is dropped. Dropping this future kills the engine too, without
/// a report. A fault before the start is reported as `Exited` with the fault as last words.
pub async fn run(
    launch: Launch,
    log: Arc<ReplicaLog>,
    mut stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report) + Send + Sync + 'static,
) {
    if let Program::Remote(recipe) = launch.program.clone() {
        return remote::run(launch, &recipe, log, stop, report).await;
    }
    let not_started = |asked, last_words, failure| ExitReport {
        asked,
        status: "not started".to_owned(),
        last_words,
        lack: None,
        failure,
    };
    let driver = driver_of(&launch.program);
    let exit = match stop.try_recv() {
        Err(oneshot::error::TryRecvError::Empty) => match start(&launch, driver).await {
            Ok(engine) => engine.live(driver, &log, stop, &report).await,
            Err(fault) => {
                let words = log.masked(&explain(&fault));
                log.push(LogStream::Stderr, &words);
                not_started(false, words, failure::of_fault(&fault))
            }
        },
        Ok(_) | Err(oneshot::error::TryRecvError::Closed) => {
            not_started(true, String::new(), Failure::Crashed)
        }
    };
    report(Report::Exited(exit));
}

/// A process that runs, and what goes with it.
struct Engine {
    leader: Leader,
    reserved: Reserved,
    ready_path: String,
    watch: Watch,
    /// The health route has answered, whatever it was.
    answers: bool,
}

async fn start(launch: &Launch, driver: &dyn EngineDriver) -> Result<Engine, EngineFault> {
    let listen = match &launch.program {
        Program::Candle(_) => Listen::Socket,
        Program::Command(program) => program.listen,
        Program::Remote(_) => Listen::Port,
    };
    let reserved = match listen {
        Listen::Port => Reserved::port()?,
        Listen::Socket => Reserved::socket(&launch.runtime_dir, launch.replica)?,
    };
    let prepared = driver.prepare(launch, &reserved.endpoint)?;
    environment::check(&launch.model_name, &prepared.env)?;
    // Else the system's error would read as if the program were missing.
    if let Some(path) = prepared.working_dir.clone().filter(|path| !path.is_dir()) {
        return Err(EngineFault::WorkingDir {
            model: launch.model_name.clone(),
            path,
        });
    }
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let tag = new_tag(launch.replica);
    let program = prepared.argv.first().cloned().unwrap_or_default();
    let order = Order {
        argv: prepared.argv,
        env: environment::complete(own, prepared.env, &launch.devices, &tag),
        working_dir: prepared.working_dir,
        lifeline: prepared.lifeline,
        tag,
    };
    let leader = Leader::spawn(order)
        .await
        .map_err(|source| EngineFault::Start {
            model: launch.model_name.clone(),
            program: program.to_string_lossy().into_owned(),
            source,
        })?;
    Ok(Engine {
        leader,
        reserved,
        ready_path: prepared.ready_path,
        watch: launch.watch.clone(),
        answers: false,
    })
}

impl Engine {
    async fn live(
        mut self,
        driver: &dyn EngineDriver,
        log: &ReplicaLog,
        stop: oneshot::Receiver<Duration>,
        report: &(impl Fn(Report) + Sync),
    ) -> ExitReport {
        let killed_before = kernel_kills();
        report(Report::Started {
            pid: self.leader.group.leader,
            endpoint: self.reserved.endpoint.clone(),
        });
        let stdout = self.leader.stdout.take();
        let stderr = self.leader.stderr.take();
        let pump_stdout = async {
            if let Some(pipe) = stdout {
                pump(pipe, log, LogStream::Stdout).await;
            }
        };
        let pump_stderr = async {
            if let Some(pipe) = stderr {
                pump(pipe, log, LogStream::Stderr).await;
            }
        };
        let mut pipes = pin!(async { tokio::join!(pump_stdout, pump_stderr) });
        let mut pipes_open = true;
        let end = {
            let mut end = pin!(self.watch(driver, stop, report));
            loop {
                tokio::select! {
                    biased;
                    end = &mut end => break end,
                    _ = &mut pipes, if pipes_open => pipes_open = false,
                }
            }
        };
        if pipes_open {
            // Somebody who escaped the sweep may hold them for ever.
            let _ = timeout(PIPES_MAX, pipes).await;
        }
        let mut last_words = log.last_words();
        let mut failure = match (end.asked, end.was_ready, self.answers) {
            _ if end.dead.is_some() => Failure::Unresponsive,
            (_, true, _) => Failure::Crashed,
            (true, false, false) => Failure::TimedOut,
            (true, false, true) => Failure::NeverReady,
            (false, false, _) => failure::said(&last_words, driver.failures()),
        };
        if !end.asked && !end.was_ready && self.reserved.is_taken() {
            let taken = format!(
                "{} was taken by another program while the engine started; load the model again",
                self.reserved.endpoint
            );
            log.push(LogStream::Stderr, &taken);
            last_words = format!("{last_words}\n{taken}").trim_start().to_owned();
            failure = Failure::PortTaken;
        }
        let mut status = self.leader.reap().await;
        if let Some(reason) = end.dead {
            status = "killed by the pool".to_owned();
            last_words = match last_words.as_str() {
                "" => reason,
                words => format!("{reason}; its last words: {words}"),
            };
        }
        let mut lack = said(&last_words);
        // Somebody killed it, and the kernel has killed somebody for memory meanwhile.
        if !end.asked && status == "signal 9" && kernel_kills() > killed_before {
            lack = Some(Lack { needed: None });
            let killed = "the kernel killed it because the host's memory was full";
            log.push(LogStream::Stderr, killed);
            last_words = format!("{last_words}\n{killed}").trim_start().to_owned();
        }
        if lack.is_some() && !end.asked {
            failure = Failure::OutOfMemory;
        }
        ExitReport {
            asked: end.asked,
            status,
            last_words,
            lack,
            failure,
        }
    }

    /// Comes back when the leader has ended, not reaped yet, and the rest of its group is gone.
    async fn watch(
        &mut self,
        driver: &dyn EngineDriver,
        mut stop: oneshot::Receiver<Duration>,
        report: &impl Fn(Report),
    ) -> End {
        let mut meter = Meter::new(self.leader.group.clone());
        let mut dead = None;
        let (asked, was_ready) = {
            let mut told = None;
            let path = self.ready_path.clone();
            let answers = &mut self.answers;
            let not_yet = |answer| {
                *answers = true;
                let progress = progress_of(driver, &path, &answer);
                if progress != told
                    && let Some((stage, percent)) = progress.clone()
                {
                    told = progress;
                    report(Report::Progress { stage, percent });
                }
            };
            #[expect(
                clippy::disallowed_methods,
                reason = "the start of this engine's own load"
            )]
            let started = tokio::time::Instant::now();
            let mut ready = pin!(until_ready(
                &self.reserved.endpoint,
                &path,
                started,
                not_yet
            ));
            let mut living = pin!(until_dead(&self.reserved.endpoint, &path, &self.watch));
            let mut is_ready = false;
            let mut memory_due = interval(MEMORY_EVERY);
            memory_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    biased;
                    () = self.leader.ended() => break (stop.try_recv().is_ok(), is_ready),
                    order = &mut stop => {
                        let grace = order.ok().filter(|_| is_ready).unwrap_or_default();
                        end_leader(&mut self.leader, grace).await;
                        break (true, is_ready);
                    }
                    () = &mut ready, if !is_ready => {
                        is_ready = true;
                        let took = started.elapsed();
                        let memory = meter.read().await;
                        report(Report::Ready { took, memory });
                    }
                    reason = &mut living, if is_ready => {
                        let told = || report(Report::Dead { reason: reason.clone() });
                        end_dead(&mut self.leader, told).await;
                        dead = Some(reason);
                        break (false, is_ready);
                    }
                    _ = memory_due.tick() => {
                        if let Some(now) = meter.changed().await {
                            report(Report::Memory { now, peak: meter.peak });
                        }
                    }
                }
            }
        };
        let left = self.leader.group.sweep().await;
        if !left.is_empty() {
            tracing::error!(
                leader = self.leader.group.leader,
                processes = ?left,
                "processes of an engine do not die; the memory they hold is not free"
            );
        }
        End {
            asked,
            was_ready,
            dead,
        }
    }
}

struct End {
    asked: bool,
    was_ready: bool,
    /// Why it was taken for dead and killed.
    dead: Option<String>,
}

/// SIGTERM to the group, the grace period, SIGKILL to the group. No grace, no SIGTERM.
async fn end_leader(leader: &mut Leader, grace: Duration) {
    if !grace.is_zero() {
        leader.group.terminate();
        if timeout(grace, leader.ended()).await.is_ok() {
            return;
        }
        tracing::warn!(
            leader = leader.group.leader,
            grace_seconds = grace.as_secs_f64(),
            "an engine did not end on SIGTERM and is killed"
        );
    }
    leader.group.signal(nix::sys::signal::Signal::SIGKILL);
    while timeout(KILL_PATIENCE, leader.ended()).await.is_err() {
        tracing::error!(
            leader = leader.group.leader,
            "an engine does not die of SIGKILL; a device driver may hang"
        );
    }
}

/// SIGKILL to the group; a stopped process obeys that too. `lingers` is called if it takes long.
async fn end_dead(leader: &mut Leader, lingers: impl FnOnce()) {
    leader.group.signal(nix::sys::signal::Signal::SIGKILL);
    if timeout(DEAD_PATIENCE, leader.ended()).await.is_err() {
        lingers();
        end_leader(leader, Duration::ZERO).await;
    }
}

/// What an answer that is not 2xx says about the load. A route that does not exist is said aloud:
/// it would else look like a load that never ends.
fn progress_of(
    driver: &dyn EngineDriver,
    path: &str,
    answer: &Answer,
) -> Option<(String, Option<u8>)> {
    match answer.status {
        503 => driver.progress(&answer.body),
        status => Some((format!("{path} answers {status}"), None)),
    }
}
