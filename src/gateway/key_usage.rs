//! Requests in flight and usage per key: requests that hold a seat, and daily counts of requests and tokens. Counts are written to
//! the store every few seconds, so a `kill -9` loses only the latest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::caller_group::CallerGroup;
use crate::group_spending::Spending;
use crate::group_usage::GroupCounts;
use crate::metrics::Metrics;
use crate::minute_counts::MinuteCounts;
use access::limits::Limits;
use config::Month;
use controller::Clock;
use pool::{KeyId, Span, Time};
use store::{BatchUsage, KeyUsage, Store, StoreError, UnsavedUsage};

const WRITE_EVERY: Duration = Duration::from_secs(5);
/// The ledger is written every minute: the totals of groups are read as often, in writes.
const READ_GROUPS_EVERY: u32 = 12;
/// Largest number of unwritten counts (keys times models). Further ones are dropped while the store cannot be written.
const UNWRITTEN_MAX: usize = 20_000;

/// A key and the model it uses.
type Place = (KeyId, Arc<str>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    batches: BatchUsage,
}

impl Used {
    fn of_row(row: &KeyUsage) -> Used {
        Used {
            requests: row.requests,
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            batches: row.batches,
        }
    }

    /// Adds the counts of the same key and model. Counts saturate.
    fn add(&mut self, other: &Used) {
        let (batches, more) = (&mut self.batches, &other.batches);
        for (own, more) in [
            (&mut self.requests, other.requests),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.completion_tokens, other.completion_tokens),
            (&mut batches.requests, more.requests),
            (&mut batches.prompt_tokens, more.prompt_tokens),
            (&mut batches.completion_tokens, more.completion_tokens),
        ] {
            *own = own.saturating_add(more);
        }
    }
}

/// A request that holds a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    pub key: KeyId,
    pub model: Arc<str>,
    pub arrived_at: Time,
    pub seated_at: Time,
    pub is_batch: bool,
}

/// Requests and counts of all keys.
pub struct KeyUsages {
    store: Arc<Store>,
    limits: Arc<Limits>,
    running: Mutex<BTreeMap<u64, RunningRequest>>,
    unwritten: Mutex<BTreeMap<Place, Used>>,
    groups: GroupCounts,
    /// The figures of the pool for charts.
    minutes: MinuteCounts,
    clock: Clock,
    numbers: AtomicU64,
    /// Number of counts that the database refused at the last write.
    refused: AtomicUsize,
    /// Held while counts move to the store, so readers see each count exactly once.
    writing: tokio::sync::Mutex<()>,
}

/// A request in flight. Requests without a key are not counted.
pub(crate) struct CountedRequest {
    usages: Arc<KeyUsages>,
    number: Option<u64>,
}

impl CountedRequest {
    /// Counts a request of this group that had a seat. `used` has the tokens of prompt and response if an engine processed it.
    pub fn ended(
        &self,
        group: Option<&Arc<CallerGroup>>,
        waited: Option<Span>,
        used: Option<(u64, u64)>,
        now: Time,
    ) {
        if let (Some(number), Some((prompt, completion))) = (self.number, used) {
            self.usages.count(number, prompt, completion);
        }
        if let Some(group) = group {
            self.usages.groups.count(group, waited, used, now);
        }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            locked(&self.usages.running).remove(&number);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KeyUsages {
    pub(crate) fn new(
        store: Arc<Store>,
        limits: Arc<Limits>,
        spending: Arc<Spending>,
        (metrics, clock): (Metrics, Clock),
    ) -> KeyUsages {
        KeyUsages {
            store,
            limits,
            groups: GroupCounts::new(spending),
            minutes: MinuteCounts::new(metrics),
            clock,
            running: Mutex::default(),
            unwritten: Mutex::default(),
            numbers: AtomicU64::new(0),
            refused: AtomicUsize::new(0),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn begin(self: &Arc<KeyUsages>, request: RunningRequest) -> CountedRequest {
        let number = (request.key != KeyId(0)).then(|| {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            locked(&self.running).insert(number, request);
            number
        });
        CountedRequest {
            usages: Arc::clone(self),
            number,
        }
    }

    fn count(&self, number: u64, prompt_tokens: u64, completion_tokens: u64) {
        let place = locked(&self.running)
            .get(&number)
            .map(|request| (request.key, Arc::clone(&request.model), request.is_batch));
        let Some((key, model, is_batch)) = place else {
            return;
        };
        let place = (key, model);
        let of_batch = BatchUsage {
            requests: 1,
            prompt_tokens,
            completion_tokens,
        };
        let used = Used {
            requests: 1,
            prompt_tokens,
            completion_tokens,
            batches: if is_batch {
                of_batch
            } else {
                BatchUsage::default()
            },
        };
        add(&mut locked(&self.unwritten), place, used);
    }

    /// The keys of all requests that currently hold a seat. Requests without a key are not counted.
    pub fn running_keys(&self) -> Vec<KeyId> {
        let running = locked(&self.running);
        running.values().map(|request| request.key).collect()
    }

    /// The requests of a key that currently hold a seat, oldest first.
    pub fn running(&self, key: KeyId) -> Vec<RunningRequest> {
        let running = locked(&self.running);
        running
            .values()
            .filter(|request| request.key == key)
            .cloned()
            .collect()
    }

    /// The usage of a key in the last `days` days, oldest first, and the number of the current day.
    pub async fn of_key(
        &self,
        key: KeyId,
        days: u32,
        limit: u32,
    ) -> Result<(Vec<KeyUsage>, i64), StoreError> {
        let today = self.limits.today();
        let _turn = self.writing.lock().await;
        let mut rows = self
            .store
            .key_usage(key, today - i64::from(days) + 1, limit)
            .await?;
        for ((holder, model), used) in locked(&self.unwritten).iter() {
            if *holder != key {
                continue;
            }
            let known = rows
                .iter_mut()
                .find(|row| row.day == today && *row.model == **model);
            match known {
                Some(row) => {
                    let mut sum = Used::of_row(row);
                    sum.add(used);
                    *row = row_of(key, today, model, &sum);
                }
                None => rows.push(row_of(key, today, model, used)),
            }
        }
        Ok((rows, today))
    }

    /// Writes every few seconds, and reads the totals of groups, until it is dropped.
    pub async fn keep_writing(self: Arc<KeyUsages>) {
        let mut until_read = READ_GROUPS_EVERY;
        loop {
            ticks::pause(WRITE_EVERY).await;
            self.write_all().await;
            until_read -= 1;
            if until_read == 0 || !self.groups.is_of(self.month()) {
                until_read = READ_GROUPS_EVERY;
                self.read_groups().await;
            }
        }
    }

    fn month(&self) -> Month {
        Month::of_day(self.limits.today())
    }

    /// Reads what the groups have used in the current month.
    pub async fn read_groups(&self) {
        let _turn = self.writing.lock().await;
        self.groups.read(&self.store, self.month()).await;
    }

    /// Number of counts (keys times models) that the database refuses, which are in memory only.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Writes all pending counts.
    pub async fn write_all(&self) {
        let _turn = self.writing.lock().await;
        let today = self.limits.today();
        self.minutes.write(&self.store, self.clock.wall()).await;
        self.groups.write(&self.store, today).await;
        let taken = std::mem::take(&mut *locked(&self.unwritten));
        if taken.is_empty() {
            return;
        }
        let rows = taken.iter();
        let rows = rows.map(|((key, model), used)| row_of(*key, today, model, used));
        let rows: Vec<KeyUsage> = rows.collect();
        let unsaved = match self.store.add_key_usage(&rows).await {
            // Another process has taken over, while responses that began here end here.
            UnsavedUsage {
                rows,
                last_error: Some(fault),
            } if fault.is_closed() => self.write_beside(rows).await,
            unsaved => unsaved,
        };
        self.keep(unsaved);
    }

    /// Keeps counts that could not be written for the next attempt.
    fn keep(&self, unsaved: UnsavedUsage) {
        let fault = unsaved.last_error.as_ref();
        let refused = if fault.is_some_and(StoreError::is_of_a_value) {
            unsaved.rows.len()
        } else {
            0
        };
        let before = self.refused.swap(refused, Ordering::Relaxed);
        // Counts that are refused again at each attempt are logged once.
        let is_known = refused > 0 && refused == before;
        if let Some(fault) = fault.filter(|fault| !is_known && !fault.is_logged_by_the_store()) {
            let rows = unsaved.rows.len();
            tracing::warn!(%fault, rows, "cannot save the usage of keys");
        }
        let mut unwritten = locked(&self.unwritten);
        for row in unsaved.rows {
            let used = Used::of_row(&row);
            add(&mut unwritten, (row.holder, row.model.into()), used);
        }
    }

    async fn write_beside(&self, rows: Vec<KeyUsage>) -> UnsavedUsage {
        let other = match self.store.open_again().await {
            Ok(other) => other,
            Err(fault) => {
                return UnsavedUsage {
                    rows,
                    last_error: Some(fault),
                };
            }
        };
        let unsaved = other.add_key_usage(&rows).await;
        other.close().await;
        unsaved
    }
}

fn row_of(holder: KeyId, day: i64, model: &str, used: &Used) -> KeyUsage {
    KeyUsage {
        holder,
        day,
        model: model.to_owned(),
        requests: used.requests,
        prompt_tokens: used.prompt_tokens,
        completion_tokens: used.completion_tokens,
        batches: used.batches,
    }
}

fn add(unwritten: &mut BTreeMap<Place, Used>, place: Place, used: Used) {
    if unwritten.len() >= UNWRITTEN_MAX && !unwritten.contains_key(&place) {
        return;
    }
    unwritten.entry(place).or_default().add(&used);
}

#[cfg(test)]
mod tests;
