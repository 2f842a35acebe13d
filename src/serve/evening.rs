//! Carries out the events of the evening schedule and records cleanups in the store. A cleanup is done only after its order has
//! ended: if a crash or a takeover interrupts it, the next process finishes it (E1, E3).
//!
//! ```text
//!  begun is saved ──▶ order sent ──▶ replicas drain and unload ──▶ order ended ──▶ done is saved
//!                        └── interrupted: the next start finds begun without done and orders the
//!                            rest; models that were loaded or ordered since begun stay
//! ```

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

use config::{Config, CronExpression, EveningMode, LiveConfig};
use controller::Handle;
use pool::{CleanupScope, Command, Outcome, Time};
use schedule::{Due, Evening, EveningEvent, Schedule, ServiceHistory};
use store::{KeptWish, Store};

/// Keys in the store for the last completed and the last started evening cleanup.
const LAST_CLEANUP: &str = "last_cleanup";
const BEGUN_CLEANUP: &str = "begun_cleanup";
/// Key in the store for the last time at which the service is known to have run.
const LAST_UP: &str = "last_up";
/// Interval at which the store notes that the service runs. A cleanup between the last note and a crash counts as missed.
const UP_EVERY: Duration = Duration::from_secs(30);
/// Pause before retrying a cleanup that the store could not save.
const TRY_EVERY: Duration = Duration::from_secs(10);

pub(crate) fn from_config(config: &Config) -> Result<Evening, String> {
    let section = &config.evening;
    let text = |expression: &Option<CronExpression>| {
        expression.as_ref().map(|cron| cron.as_str().to_owned())
    };
    Evening::new(
        text(&section.cleanup).as_deref(),
        text(&section.reopen).as_deref(),
        config.zone(),
    )
    .map_err(|error| error.to_string())
}

/// The next cleanup and reopening, as text.
pub(crate) fn outlook(config: &Config) -> String {
    match from_config(config) {
        Ok(evening) => format!("evening: {}", evening.outlook(Utc::now())),
        Err(problem) => problem,
    }
}

/// The events that are due according to the store. A new data folder has missed nothing (E3).
pub(super) async fn due(evening: Evening, store: &Store) -> Result<Due, String> {
    let past = ServiceHistory {
        done: moment(store, LAST_CLEANUP).await?,
        begun: moment(store, BEGUN_CLEANUP).await?,
        last_up: moment(store, LAST_UP).await?,
    };
    Ok(Due::new(evening, past))
}

/// Keeps noting that the service runs, until dropped. The next start computes missed events from that.
pub(super) async fn stay_noted(config: LiveConfig, store: Arc<Store>) {
    loop {
        note_up(&config, &store).await;
        ticks::pause(UP_EVERY).await;
    }
}

/// Notes that the service runs. Without a cleanup nothing can be missed, and nothing is written, so a start on a full disk is ready
/// immediately.
pub(super) async fn note_up(config: &LiveConfig, store: &Store) {
    if config.get().evening.cleanup.is_none() {
        return;
    }
    let text = written(Utc::now());
    if let Err(error) = store.save_meta(LAST_UP, &text).await
        && !error.is_logged_by_the_store()
    {
        tracing::warn!(%error, "cannot note that the service runs");
    }
}

async fn moment(store: &Store, key: &str) -> Result<Option<DateTime<Utc>>, String> {
    let text = store.meta(key).await.map_err(|error| error.to_string())?;
    let at = text.and_then(|text| DateTime::parse_from_rfc3339(&text).ok());
    Ok(at.map(|at| at.to_utc()))
}

fn written(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns whether the time was saved.
async fn note(store: &Store, key: &str, at: DateTime<Utc>) -> bool {
    let text = written(at);
    let saved = store.save_meta(key, &text).await;
    if let Err(error) = &saved {
        tracing::error!(%error, key, "cannot save a time of the evening cleanup; after a restart, part of the cleanup may run again");
    }
    saved.is_ok()
}

/// Drops the load orders that a cleanup, missed while the service was down, would have dropped (E3).
pub(super) fn forget_loads_before(cleanup: DateTime<Utc>, wishes: &mut [KeptWish]) {
    let cleanup = time_of(cleanup);
    for wish in wishes.iter_mut() {
        wish.load = wish.load.take().filter(|load| load.outlives(cleanup));
    }
}

fn time_of(at: DateTime<Utc>) -> Time {
    Time(u64::try_from(at.timestamp_millis()).unwrap_or(0))
}

pub(super) async fn start(
    due: Due,
    handle: &Handle,
    config: &LiveConfig,
    store: &Arc<Store>,
) -> Result<Schedule, String> {
    let (handle, config, store) = (handle.clone(), config.clone(), Arc::clone(store));
    let act = move |event| {
        let (handle, config, store) = (handle.clone(), config.get(), Arc::clone(&store));
        async move { carry_out(event, &handle, &config, &store).await }
    };
    Schedule::start(due, Utc::now, act)
        .await
        .map_err(|error| error.to_string())
}

async fn carry_out(event: EveningEvent, handle: &Handle, config: &Config, store: &Store) {
    let begun = match event {
        EveningEvent::Cleanup => {
            note(store, BEGUN_CLEANUP, Utc::now()).await;
            None
        }
        EveningEvent::Resume => match moment(store, BEGUN_CLEANUP).await {
            Ok(begun) => begun,
            Err(error) => {
                tracing::error!(
                    error,
                    "cannot read when the interrupted cleanup began; it starts from the beginning"
                );
                None
            }
        },
        EveningEvent::Reopen => {
            if let Ok(order) = handle.order(Command::Reopen, None) {
                let _ = order.settled().await;
            }
            return;
        }
        // The pool has started with `night` set; nothing is left to do.
        EveningEvent::StillClosed => return,
    };
    let command = Command::Cleanup {
        scope: match config.evening.mode {
            EveningMode::All => CleanupScope::All,
            EveningMode::Idle => CleanupScope::Idle,
        },
        drain: config.unload_drain(),
        begun: begun.map(time_of),
    };
    if clean(command, handle, config).await {
        note(store, LAST_CLEANUP, Utc::now()).await;
    }
}

/// Returns true if the cleanup was carried out. If the store could not save it, retries until the morning. If the loop ends first,
/// the next process finishes it.
async fn clean(command: Command, handle: &Handle, config: &Config) -> bool {
    loop {
        let Ok(order) = handle.order(command.clone(), None) else {
            return false;
        };
        match order.settled().await {
            Ok(Outcome::Refused { refusal, .. }) => {
                let closed =
                    from_config(config).is_ok_and(|evening| evening.state_at(Utc::now()).closed);
                tracing::error!(%refusal, again = closed, "the evening cleanup was not carried out");
                if !closed {
                    return false;
                }
                tokio::time::sleep(TRY_EVERY).await;
            }
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}
