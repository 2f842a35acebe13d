//! Writes what the pool did in each minute, for charts over time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::metrics::{Metrics, Totals, WAITS};
use pool::Time;
use store::{Store, StoreError};

const MINUTE_MS: u64 = 60_000;

/// Writes what the pool did in each minute.
#[derive(Debug)]
pub(crate) struct MinuteCounts {
    metrics: Metrics,
    /// The minute that is being counted, and the sums that are written.
    written: Mutex<(Option<u64>, Totals)>,
}

impl MinuteCounts {
    pub(crate) fn new(metrics: Metrics) -> MinuteCounts {
        let totals = metrics.totals();
        MinuteCounts {
            metrics,
            written: Mutex::new((None, totals)),
        }
    }

    /// Writes the counts since the last call under the current minute. They stay for the next call if that fails. Calls must not
    /// overlap.
    pub(crate) async fn write(&self, store: &Store, now: Time) {
        let minute = now.0 / MINUTE_MS;
        let totals = self.metrics.totals();
        let more = {
            let mut written = self.locked();
            // Counts of the last seconds belong to the minute in which they were last written.
            let counted = written.0.replace(minute).unwrap_or(minute);
            totals.since(&written.1, counted)
        };
        let has_tokens = more.prompt_tokens > 0 || more.completion_tokens > 0;
        if !has_tokens && more.first_tokens.is_empty() {
            return;
        }
        match store.add_pool_minute(&more).await {
            Ok(()) => self.locked().1 = totals,
            Err(fault) => log(&fault),
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, (Option<u64>, Totals)> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(fault: &StoreError) {
    if !fault.is_logged_by_the_store() {
        tracing::warn!(%fault, "cannot save the figures of a minute for charts");
    }
}

/// The time to the first token that this part of the requests did not exceed, in seconds, by the buckets of [`store::PoolMinute`]. Within a
/// bucket, times count as evenly distributed. `None` without requests.
pub fn first_token_quantile(first_tokens: &BTreeMap<usize, u64>, part: f64) -> Option<f64> {
    let all: u64 = first_tokens.values().sum();
    let wanted = all as f64 * part;
    let mut below = 0;
    for (&bucket, &count) in first_tokens {
        if count > 0 && (below + count) as f64 >= wanted {
            let least = bucket.checked_sub(1).and_then(|under| WAITS.get(under));
            let least = least.copied().unwrap_or(0.0);
            // Nothing is known of times above the last bound.
            let most = WAITS.get(bucket).copied().unwrap_or(least);
            let within = (wanted - below as f64).max(0.0) / count as f64;
            return Some(least + (most - least) * within);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use store::PoolMinute;

    #[tokio::test]
    async fn each_count_is_written_once_under_its_minute() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/state.db", folder.path().display());
        let store = Store::open(&url).await.expect("a store");
        let metrics = Metrics::since(Time(0));
        metrics.tokens("a", 1_000, 1_000);
        let counts = MinuteCounts::new(metrics.clone());
        let at = |minute: u64, second: u64| Time(minute * MINUTE_MS + second * 1_000);
        counts.write(&store, at(5, 10)).await;
        metrics.tokens("a", 10, 20);
        metrics.first_token("a", Duration::from_millis(30));
        counts.write(&store, at(5, 59)).await;
        counts.write(&store, at(5, 59)).await;
        metrics.tokens("b", 1, 2);
        metrics.first_token("b", Duration::from_secs(2_000));
        counts.write(&store, at(6, 2)).await;
        metrics.tokens("b", 5, 5);
        counts.write(&store, at(6, 7)).await;
        let minutes = store.pool_minutes(at(0, 0), at(9, 0)).await.expect("read");
        let expected = [
            PoolMinute {
                minute: 5,
                prompt_tokens: 11,
                completion_tokens: 22,
                first_tokens: BTreeMap::from([(5, 1), (WAITS.len(), 1)]),
                ..PoolMinute::default()
            },
            PoolMinute {
                minute: 6,
                prompt_tokens: 5,
                completion_tokens: 5,
                ..PoolMinute::default()
            },
        ];
        assert_eq!(minutes, expected);
        store.close().await;
        metrics.tokens("b", 7, 7);
        counts.write(&store, at(6, 9)).await;
        let again = Store::open(&url).await.expect("a store");
        counts.write(&again, at(6, 20)).await;
        let minutes = again.pool_minutes(at(6, 0), at(7, 0)).await.expect("read");
        assert_eq!(minutes[0].prompt_tokens, 12, "kept for the next call");
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let quantile = |buckets: &[(usize, u64)], part| {
            first_token_quantile(&buckets.iter().copied().collect(), part)
        };
        assert_eq!(quantile(&[], 0.5), None);
        // 10 requests of up to 1 ms, and 10 of 0.5 to 1 s.
        let two = [(0, 10), (9, 10)];
        assert_eq!(quantile(&two, 0.5), Some(0.001));
        assert_eq!(quantile(&two, 0.75), Some(0.75));
        assert_eq!(quantile(&two, 0.95), Some(0.95));
        let last = WAITS[WAITS.len() - 1];
        assert_eq!(quantile(&[(WAITS.len(), 3)], 0.95), Some(last));
        assert_eq!(quantile(&[(900, 3)], 0.95), Some(0.0), "an unknown bucket");
    }
}
