//! The evening schedule (E1–E3): triggers the cleanup and the reopening when they are due. Runs the scheduler's
//! jobs; it does not unload models and does not know the pool.
//!
//! ```text
//!  tokio-cron-scheduler                 Due               Turns              act
//!  job `cleanup`, in its zone ─┐
//!  job `reopen`,  in its zone ─┼─▶ what fell since ─▶ one after ─▶ order to the controller
//!  job `watch`,   each minute ─┤    the last time      the other
//!  job `first`,   once, now   ─┘
//! ```
//!
//! Every job calls [`Due::due`], so an extra job does no harm. The watch job is there because the scheduler
//! keeps the zone's offset from when a job was made: after a change to or from daylight-saving time its jobs
//! come an hour early or late, until the next start. The watch also notices that the machine has slept, or that
//! the clock was set. So the worst delay is less than a minute, and for expressions on a full minute there is
//! none.

mod due;
mod evening;
mod turns;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

pub use due::{CORRECTION_MAX, Decision, Due, LATE_MAX, Occurrence, PassedOver};
pub use evening::{Evening, EveningEvent, EveningState, ScheduleError};

use turns::Turns;

const EACH_MINUTE: &str = "0 * * * * *";

type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The running schedule. Dropping it does not stop it; [`Schedule::stop`] does.
pub struct Schedule {
    scheduler: JobScheduler,
    stopped: Arc<AtomicBool>,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule")
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl Schedule {
    /// Starts the jobs. `due` holds the store's record of the last cleanup; `clock` gives the time of day;
    /// `act` carries out one event and returns when that is done. Calls of `act` never overlap.
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
        let stopped = Arc::new(AtomicBool::new(false));
        let evening = due.evening().clone();
        let ask: Arc<dyn Fn() -> Ending + Send + Sync> = {
            let shared = Arc::new((Mutex::new(due), clock, Turns::default(), act));
            let stopped = Arc::clone(&stopped);
            Arc::new(move || {
                let shared = Arc::clone(&shared);
                let stopped = Arc::clone(&stopped);
                Box::pin(async move {
                    let (due, clock, turns, act) = &*shared;
                    if stopped.load(Ordering::Acquire) {
                        return;
                    }
                    let decision = due
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .due(clock());
                    let events = log_decision(decision);
                    if !events.is_empty() {
                        turns.take(events, act).await;
                    }
                })
            })
        };

        let scheduler = JobScheduler::new()
            .await
            .map_err(|source| ScheduleError::Start { source })?;
        let schedule = Schedule { scheduler, stopped };
        let rules = [&evening.cleanup, &evening.reopen];
        for rule in rules.into_iter().flatten() {
            let ask = Arc::clone(&ask);
            Job::new_async_tz(rule.expression.as_str(), evening.zone(), move |_, _| ask())
                .map(|job| schedule.add(job))
                .map_err(|source| ScheduleError::Job {
                    field: rule.field,
                    expression: rule.expression.clone(),
                    source,
                })?
                .await?;
        }
        if rules.iter().any(|rule| rule.is_some()) {
            let start = |source| ScheduleError::Start { source };
            let first = Arc::clone(&ask);
            schedule
                .add(Job::new_one_shot_async(Duration::ZERO, move |_, _| first()).map_err(start)?)
                .await?;
            schedule
                .add(Job::new_async(EACH_MINUTE, move |_, _| ask()).map_err(start)?)
                .await?;
        }
        schedule
            .scheduler
            .start()
            .await
            .map_err(|source| ScheduleError::Start { source })?;
        Ok(schedule)
    }

    async fn add(&self, job: Job) -> Result<(), ScheduleError> {
        self.scheduler
            .add(job)
            .await
            .map(|_| ())
            .map_err(|source| ScheduleError::Start { source })
    }

    /// Stops the schedule. An event that is running is not cut.
    pub async fn stop(mut self) -> Result<(), JobSchedulerError> {
        self.stopped.store(true, Ordering::Release);
        self.scheduler.shutdown().await
    }
}

/// Logs the decision, and returns the events to carry out.
fn log_decision(decision: Decision) -> Vec<EveningEvent> {
    if let Some(back) = decision.clock_went_back {
        tracing::warn!(
            minutes = back.num_minutes(),
            "the clock went back; the evening's times count anew from now on"
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
