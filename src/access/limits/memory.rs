//! The counts of one gateway. Requests per minute use governor (a generic cell rate algorithm). Tokens are only
//! known afterwards and may go into debt, which no maintained crate supports; `level.rs` counts them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::StateInformationMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::level::Level;
use super::{Bucket, Day, DayTokens, Figure, LimitRefusal, RemainingLimit, RemainingLimits};
use config::Limit;
use pool::{Span, Time};

/// Interval for removing stale counts, if there are more than [`KEPT_MIN`].
const SWEEP_EVERY: Span = Span::from_secs(60);
const KEPT_MIN: usize = 1_000;
/// Limit of counts, more than the addresses of a lab. Above it, the addresses that were silent for longest are removed, even if
/// their counts are not stale.
const KEPT_MAX: usize = 100_000;
/// Prefix of the bucket ids of addresses. A client may create any number of them.
const OF_ADDRESS: &str = "address:";

/// A clock that is set manually, which makes all counts use the same time.
#[derive(Clone, Debug, Default)]
struct ManualClock(Arc<AtomicU64>);

impl Clock for ManualClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::Relaxed).saturating_mul(1_000_000))
    }
}

type Requests = RateLimiter<NotKeyed, InMemoryState, ManualClock, StateInformationMiddleware>;

#[derive(Debug)]
struct Count {
    limit: Limit,
    requests: Option<Requests>,
    tokens: Level,
    day: i64,
    day_tokens: u64,
    unsaved: bool,
    inside: u32,
    touched: Time,
}

impl Count {
    fn new(limit: Limit, clock: &ManualClock) -> Count {
        Count {
            requests: requests_of(&limit, clock),
            limit,
            tokens: Level::default(),
            day: i64::MIN,
            day_tokens: 0,
            unsaved: false,
            inside: 0,
            touched: Time(0),
        }
    }
}

fn requests_of(limit: &Limit, clock: &ManualClock) -> Option<Requests> {
    let most = NonZeroU32::new(limit.requests_per_minute?)?;
    let requests = RateLimiter::direct_with_clock(Quota::per_minute(most), clock.clone());
    Some(requests.with_middleware())
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    clock: ManualClock,
    counts: BTreeMap<String, Count>,
    swept: Time,
}

impl Memory {
    pub fn admit(
        &mut self,
        now: Time,
        day: &Day,
        buckets: &[Bucket],
        estimate: u64,
    ) -> Result<RemainingLimits, LimitRefusal> {
        self.clock.0.store(now.0, Ordering::Relaxed);
        self.sweep(now, day.number);
        for bucket in buckets {
            self.count(bucket, now, day).room(bucket, day)?;
        }
        let mut standing = RemainingLimits::default();
        for bucket in buckets {
            let requests = self.count(bucket, now, day).request(bucket)?;
            standing.narrow(RemainingLimits {
                requests,
                tokens: None,
            });
        }
        for bucket in buckets {
            let count = self.count(bucket, now, day);
            count.inside += 1;
            count.add(estimate as f64);
            standing.narrow(RemainingLimits {
                requests: None,
                tokens: count.tokens_left(),
            });
        }
        Ok(standing)
    }

    /// Ends a request that was admitted with this estimate.
    pub fn settle(&mut self, now: Time, day: &Day, buckets: &[Bucket], estimate: u64, used: u64) {
        for bucket in buckets {
            let count = self.count(bucket, now, day);
            count.inside = count.inside.saturating_sub(1);
            count.add(used as f64 - estimate as f64);
        }
    }

    fn count(&mut self, bucket: &Bucket, now: Time, day: &Day) -> &mut Count {
        let clock = &self.clock;
        let count = self.counts.entry(bucket.id.clone());
        let count = count.or_insert_with(|| Count::new(bucket.limit, clock));
        if count.limit != bucket.limit {
            if count.limit.requests_per_minute != bucket.limit.requests_per_minute {
                count.requests = requests_of(&bucket.limit, clock);
            }
            count.limit = bucket.limit;
        }
        if count.day != day.number {
            count.day = day.number;
            count.day_tokens = 0;
        }
        if let Some(most) = count.limit.tokens_per_minute {
            count.tokens.run(now, most);
        }
        count.touched = now;
        count
    }

    /// Removes stale counts, mostly of addresses that no longer send requests.
    fn sweep(&mut self, now: Time, today: i64) {
        if self.counts.len() > KEPT_MAX {
            self.drop_silent();
        }
        if self.counts.len() <= KEPT_MIN || now.since(self.swept) < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        self.counts.retain(|_, count| {
            let has_day = count.day == today && count.day_tokens > 0;
            let in_debt = count
                .limit
                .tokens_per_minute
                .is_some_and(|most| count.tokens.empty_in(most) > now.since(count.touched));
            count.inside > 0
                || count.unsaved
                || (has_day && count.limit.tokens_per_day.is_some())
                || in_debt
                || now.since(count.touched) < SWEEP_EVERY
        });
    }

    /// Removes the quarter of addresses that was silent for longest, which postpones the next sweep.
    fn drop_silent(&mut self) {
        let is_silent =
            |id: &String, count: &Count| count.inside == 0 && id.starts_with(OF_ADDRESS);
        let silent = self
            .counts
            .iter()
            .filter(|(id, counts)| is_silent(id, counts));
        let mut since: Vec<Time> = silent.map(|(_, count)| count.touched).collect();
        since.sort_unstable();
        let Some(until) = since.get(since.len() / 4).copied() else {
            return;
        };
        let mut surplus = since.len() / 4 + 1;
        self.counts.retain(|id, count| {
            let goes = surplus > 0 && count.touched <= until && is_silent(id, count);
            surplus -= usize::from(goes);
            !goes
        });
    }

    pub fn take_days(&mut self) -> Vec<DayTokens> {
        let changed = self.counts.iter_mut().filter(|(_, count)| count.unsaved);
        changed
            .map(|(id, count)| {
                count.unsaved = false;
                DayTokens {
                    day: count.day,
                    bucket: id.clone(),
                    tokens: count.day_tokens,
                }
            })
            .collect()
    }

    pub fn not_kept(&mut self, bucket: &str) {
        if let Some(count) = self.counts.get_mut(bucket) {
            count.unsaved = true;
        }
    }

    pub fn restore_days(&mut self, today: impl Iterator<Item = DayTokens>) {
        for total in today {
            let clock = &self.clock;
            let count = self.counts.entry(total.bucket);
            let count = count.or_insert_with(|| Count::new(Limit::default(), clock));
            (count.day, count.day_tokens) = (total.day, total.tokens);
        }
    }
}

impl Count {
    fn room(&self, bucket: &Bucket, day: &Day) -> Result<(), LimitRefusal> {
        let over = |figure: Figure, most: u64, retry: Span| LimitRefusal::Over {
            bucket: bucket.description.clone(),
            figure,
            most,
            retry,
        };
        if let Some(most) = self.limit.concurrent_requests
            && self.inside >= most
        {
            return Err(over(Figure::Concurrent, most.into(), Span::from_secs(1)));
        }
        if let Some(most) = self.limit.tokens_per_day
            && self.day_tokens >= most
        {
            return Err(over(Figure::Day, most, day.rest));
        }
        if let Some(most) = self.limit.tokens_per_minute {
            let room = self.tokens.room(most);
            room.map_err(|retry| over(Figure::Tokens, most, retry))?;
        }
        Ok(())
    }

    fn request(&mut self, bucket: &Bucket) -> Result<Option<RemainingLimit>, LimitRefusal> {
        let (Some(requests), Some(most)) = (&self.requests, self.limit.requests_per_minute) else {
            return Ok(None);
        };
        let most = u64::from(most);
        match requests.check() {
            Ok(state) => {
                let left = u64::from(state.remaining_burst_capacity());
                let reset = most.saturating_sub(left) * 60_000 / most;
                Ok(Some(RemainingLimit {
                    most,
                    left,
                    reset: Span(reset),
                }))
            }
            Err(not_until) => {
                let wait: Duration = not_until.wait_time_from(requests.clock().now());
                let retry = Span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1));
                Err(LimitRefusal::Over {
                    bucket: bucket.description.clone(),
                    figure: Figure::Requests,
                    most,
                    retry,
                })
            }
        }
    }

    /// Adds used tokens. A negative number returns tokens that were only estimated.
    fn add(&mut self, tokens: f64) {
        if self.limit.tokens_per_minute.is_some() {
            self.tokens.pour(tokens);
        }
        if self.limit.tokens_per_day.is_some() && tokens != 0.0 {
            self.day_tokens = (self.day_tokens as f64 + tokens).max(0.0) as u64;
            self.unsaved = true;
        }
    }

    fn tokens_left(&self) -> Option<RemainingLimit> {
        let most = self.limit.tokens_per_minute?;
        Some(RemainingLimit {
            most,
            left: self.tokens.left(most),
            reset: self.tokens.empty_in(most),
        })
    }
}

#[cfg(test)]
mod tests;
