//! The evening schedule (E1–E3): triggers the cleanup and the reopening when they are due. Runs the scheduler's jobs; it neither
//! unloads models nor knows the pool.
//!
//! ```text
//!  tokio-cron-scheduler                 Due               Turns              act
//!  job `cleanup`, in its zone ─┐
//!  job `reopen`,  in its zone ─┼─▶ what fell since ─▶ one after ─▶ order to the controller
//!  job `watch`,   each minute ─┤    the last time      the other
//!  job `first`,   once, now   ─┘
//! ```
//!
//! Every job calls [`Due::due`], so an additional job does no harm. The scheduler keeps the zone's offset from the time a job was
//! made: after a daylight-saving change its jobs come an hour early or late until the next start. The watch job makes up for that.
//! It also notices that the machine has slept or that the clock was set. The worst delay is therefore less than a minute, and
//! expressions on a full minute have none.

mod due;
mod evening;
mod turns;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

pub use due::{CORRECTION_MAX, Decision, Due, LATE_MAX, Occurrence, ServiceHistory, SkipReason};
pub use evening::{Evening, EveningEvent, EveningState, ScheduleError};

use turns::Turns;

const EACH_MINUTE: &str = "0 * * * * *";

type EventFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type EventHandler = dyn Fn(EveningEvent) -> EventFuture + Send + Sync;

/// The running schedule. Dropping it does not stop it; call [`Schedule::stop`].
pub struct Schedule {
    shared: Arc<ScheduleState>,
    /// Its jobs wake `shared`. A changed schedule has a separate scheduler.
    scheduler: tokio::sync::Mutex<JobScheduler>,
}

/// A new evening and its jobs, before they take effect.
pub struct PreparedSchedule {
    evening: Evening,
    scheduler: JobScheduler,
}

impl std::fmt::Debug for PreparedSchedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedSchedule")
            .field("evening", &self.evening)
            .finish_non_exhaustive()
    }
}

/// The state shared by all jobs, of every schedule.
struct ScheduleState {
    due: Mutex<Due>,
    clock: Box<dyn Fn() -> DateTime<Utc> + Send + Sync>,
    turns: Turns,
    act: Box<EventHandler>,
    stopped: AtomicBool,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule")
            .field("stopped", &self.shared.stopped)
            .finish_non_exhaustive()
    }
}

impl ScheduleState {
    /// Carries out the events that have become due, unless another task is already doing so.
    async fn look(&self) {
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        let decision = self.due().due((self.clock)());
        let events = log_decision(decision);
        if !events.is_empty() {
            self.turns.take(events, &self.act).await;
        }
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Schedule {
    /// Starts the jobs. `due` holds the store's record of the last cleanup; `clock` returns the time of day; `act` carries out an
    /// event and returns when it is done. Calls of `act` never overlap.
    ///
    /// # Errors
    /// [`ScheduleError`] when the scheduler does not accept an expression or cannot start.
    pub async fn start<F>(
        due: Due,
        clock: impl Fn() -> DateTime<Utc> + Send + Sync + 'static,
        act: impl Fn(EveningEvent) -> F + Send + Sync + 'static,
    ) -> Result<Schedule, ScheduleError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let evening = due.evening().clone();
        let shared = Arc::new(ScheduleState {
            due: Mutex::new(due),
            clock: Box::new(clock),
            turns: Turns::default(),
            act: Box::new(move |event| -> EventFuture { Box::pin(act(event)) }),
            stopped: AtomicBool::new(false),
        });
        let scheduler = with_jobs(&shared, &evening).await?;
        start(&scheduler).await?;
        Ok(Schedule {
            shared,
            scheduler: tokio::sync::Mutex::new(scheduler),
        })
    }

    /// Prepares another evening to replace this one; nothing changes yet.
    ///
    /// # Errors
    /// Like [`Schedule::start`].
    pub async fn prepare(&self, evening: Evening) -> Result<PreparedSchedule, ScheduleError> {
        let scheduler = with_jobs(&self.shared, &evening).await?;
        Ok(PreparedSchedule { evening, scheduler })
    }

    /// Makes the prepared evening take effect. A running event is not cut. The first run of the new jobs carries out the events
    /// that the change itself requires.
    ///
    /// # Errors
    /// When the new jobs cannot be started. The new evening counts, but each of its times may come up to a minute late.
    pub async fn change(&self, prepared: PreparedSchedule) -> Result<(), ScheduleError> {
        let PreparedSchedule { evening, scheduler } = prepared;
        let mut current = self.scheduler.lock().await;
        self.shared.due().change(evening, (self.shared.clock)());
        start(&scheduler).await?;
        let mut older = std::mem::replace(&mut *current, scheduler);
        if let Err(error) = older.shutdown().await {
            tracing::warn!(%error, "the jobs of the evening schedule from before did not stop cleanly");
        }
        Ok(())
    }

    /// Stops the schedule. A running event is not cut.
    pub async fn stop(&self) -> Result<(), JobSchedulerError> {
        self.shared.stopped.store(true, Ordering::Release);
        self.scheduler.lock().await.shutdown().await
    }
}

/// Creates a scheduler that wakes `shared` at the times of this evening, each minute, and once when it starts.
async fn with_jobs(
    shared: &Arc<ScheduleState>,
    evening: &Evening,
) -> Result<JobScheduler, ScheduleError> {
    let failed = |source| ScheduleError::Start { source };
    let ask = || {
        let shared = Arc::clone(shared);
        move || -> EventFuture {
            let shared = Arc::clone(&shared);
            Box::pin(async move { shared.look().await })
        }
    };
    let scheduler = JobScheduler::new().await.map_err(failed)?;
    let rules = [&evening.cleanup, &evening.reopen];
    for rule in rules.into_iter().flatten() {
        let ask = ask();
        let job = Job::new_async_tz(rule.expression.as_str(), evening.zone(), move |_, _| ask());
        let job = job.map_err(|source| ScheduleError::Job {
            field: rule.field,
            expression: rule.expression.clone(),
            source,
        })?;
        scheduler.add(job).await.map_err(failed)?;
    }
    let first = ask();
    let first = Job::new_one_shot_async(Duration::ZERO, move |_, _| first()).map_err(failed)?;
    scheduler.add(first).await.map_err(failed)?;
    let watch = ask();
    let watch = Job::new_async(EACH_MINUTE, move |_, _| watch()).map_err(failed)?;
    scheduler.add(watch).await.map_err(failed)?;
    Ok(scheduler)
}

async fn start(scheduler: &JobScheduler) -> Result<(), ScheduleError> {
    let started = scheduler.start().await;
    started.map_err(|source| ScheduleError::Start { source })
}

/// Logs the decision and returns the events to carry out.
fn log_decision(decision: Decision) -> Vec<EveningEvent> {
    if let Some(back) = decision.clock_went_back {
        tracing::warn!(
            minutes = back.num_minutes(),
            "the clock went back; the evening's times are counted again from now on"
        );
    }
    for (occurrence, why) in &decision.passed_over {
        tracing::warn!(event = occurrence.event.name(), due_at = %occurrence.at, %why, "not carried out");
    }
    let mut events = Vec::with_capacity(decision.run.len());
    for occurrence in decision.run {
        tracing::info!(event = occurrence.event.name(), due_at = %occurrence.at, "due");
        events.push(occurrence.event);
    }
    events
}
