//! A started engine until its end: reports its progress, readiness, memory and death, and carries out the order to stop through its
//! guardian: SIGTERM, the grace period, SIGKILL. A launched and an adopted engine share this loop.

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticks::Ticks;
use tokio::sync::{broadcast, oneshot};
use tokio::time::timeout;

use super::exit::find_lack_of_memory;
use crate::guardians::{Guard, GuardianEnd, LogLine, ReplicaLog, container};
use crate::health::frozen::until_frozen;
use crate::health::liveness::until_dead;
use crate::health::probe::until_ready;
use crate::health::{HealthResponse, Watch};
use crate::launch::{EngineDriver, ExitReport, Launch, Report, scrape};
use crate::memory::oom::kernel_kills;
use crate::memory::{MappedBytes, Meter};

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

/// The kind of engine. An adopted engine is ready, so its output need not be parsed.
#[derive(Clone, Copy)]
pub(super) struct Kind<'a> {
    pub driver: &'a dyn EngineDriver,
    pub launch: &'a Launch,
}

/// A running engine process with its state.
pub(super) struct Engine {
    pub guard: Guard,
    pub is_ready: bool,
    pub watch: Watch,
    /// The health route has responded, with any status.
    pub responds: bool,
    /// It takes no requests and counts as ready once it runs: the leader of its replica is on another node.
    pub follows: bool,
}

pub(super) struct End {
    pub requested: bool,
    pub was_ready: bool,
    /// The reason it was judged dead and killed.
    pub dead: Option<String>,
    pub how: GuardianEnd,
}

impl Engine {
    /// Returns when the entire engine is gone. The guard must be closed after the exit has been reported.
    pub(super) async fn live(
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
        let mut exit = self.exit_report(kind, log, &end);
        if !end.requested && end.was_ready {
            // No request should be sent to it while its remains are being removed.
            let message = exit.failure.tell(&exit.last_output, &exit.status);
            report(Report::Ended { message });
        }
        self.remove_remains(log, &end.how).await;
        find_lack_of_memory(&mut exit, log, kernel_kills() > killed_before);
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
        let follows = self.follows;
        let leader = guard.group.leader.pid;
        let mut ready = pin!(async {
            if !follows {
                until_ready(&endpoint, &path, started, not_yet).await;
            }
        });
        let mut living = pin!(async {
            if follows {
                until_frozen(leader, &self.watch.limits).await
            } else {
                until_dead(&endpoint, &path, &self.watch).await
            }
        });
        let mut scraping = pin!(async {
            if follows {
                std::future::pending().await
            } else {
                scrape::follow(&endpoint, &self.watch, report).await
            }
        });
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
                Ok(line) = lines.recv(), if !is_ready || follows => {
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
            // The exit of a process without a health route is explained by its output, as during a load.
            was_ready: is_ready && !follows,
            dead,
            how,
        }
    }
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
