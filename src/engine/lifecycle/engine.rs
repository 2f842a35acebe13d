//! A started engine until its end: reports its progress, readiness, memory and death, and carries out the order to stop. A
//! launched and an adopted engine share this loop.

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticks::Ticks;
use tokio::sync::{broadcast, oneshot};

use super::ending::{end_dead, end_engine};
use crate::guardians::{Guard, GuardianEnd, LogLine, container};
use crate::health::liveness::until_dead;
use crate::health::probe::until_ready;
use crate::health::{HealthResponse, Watch};
use crate::launch::{EngineDriver, Launch, Report, scrape};
use crate::memory::{MappedBytes, Meter};

/// Interval at which an engine's host memory is read.
const MEMORY_EVERY: Duration = Duration::from_secs(2);
/// Delay after which the guardian learns of a change of use; a later controller counts from there.
const SEND_USE_AFTER: Duration = Duration::from_millis(250);

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
}

pub(super) struct End {
    pub requested: bool,
    pub was_ready: bool,
    /// The reason it was judged dead and killed.
    pub dead: Option<String>,
    pub how: GuardianEnd,
}

impl Engine {
    /// Returns when the engine has ended and its other processes are gone.
    pub(super) async fn watch(
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
