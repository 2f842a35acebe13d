//! Reads today's token usage at start and saves it every few seconds, and renews the shared counts of
//! requests in flight. `access::limits` does the counting.

use std::sync::Arc;
use std::time::Duration;

use access::limits::{DayTokens, Limits};
use config::Config;
use controller::Clock;
use store::{DayUsage, Store};

/// The most token usage, in time, that a `kill -9` loses.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// The limits, with today's usage before this start.
pub(super) async fn open(
    config: &Config,
    store: &Store,
    clock: Clock,
) -> Result<Arc<Limits>, String> {
    let limits = Limits::new(config.limits.clone(), config.zone(), move || clock.now())
        .map_err(|error| error.to_string())?;
    let used = store
        .day_tokens()
        .await
        .map_err(|error| error.to_string())?;
    let used = used.into_iter().map(|day| DayTokens {
        day: day.day,
        bucket: day.bucket,
        tokens: day.tokens,
    });
    limits.restore_days(used.collect());
    Ok(Arc::new(limits))
}

/// Saves and renews until dropped.
pub(super) async fn keep(limits: Arc<Limits>, store: Arc<Store>) {
    let mut since_renewed = Duration::ZERO;
    loop {
        ticks::pause(KEEP_EVERY).await;
        save(&limits, &store).await;
        since_renewed += KEEP_EVERY;
        if since_renewed >= Limits::RENEW_EVERY {
            since_renewed = Duration::ZERO;
            limits.renew().await;
        }
    }
}

/// Saves what has changed since the last save.
pub(super) async fn save(limits: &Limits, store: &Store) {
    let changed = limits.take_days().into_iter().map(|day| DayUsage {
        day: day.day,
        bucket: day.bucket,
        tokens: day.tokens,
    });
    let changed: Vec<DayUsage> = changed.collect();
    if changed.is_empty() {
        return;
    }
    if let Err(error) = store.keep_day_tokens(&changed, limits.today()).await {
        if !error.is_logged_by_the_store() {
            tracing::warn!(%error, "cannot save the day's token usage");
        }
        limits.not_kept(changed.into_iter().map(|usage| usage.bucket));
    }
}
