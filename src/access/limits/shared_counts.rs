//! Counts that several gateways share in a Redis server. Each admission is one script there, which uses the server's clock and
//! keeps two gateways from using the same room. Requests in flight hold a lease that is renewed; the requests of a gateway that
//! dies are released when their leases expire.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, IntoConnectionInfo, RedisResult, Script};

use super::{Bucket, ClockFn, Day, Figure, LimitRefusal, RemainingLimit, RemainingLimits};
use config::{OnOutage, RedisSection};
use pool::Span;

/// Leases of requests in flight end after this time unless they are renewed.
const LEASE_MILLISECONDS: u64 = 120_000;
/// Pause after a failure. Without it, all requests would wait for the server.
const PAUSE: Span = Span::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    #[error("limits.redis.password_file {path} cannot be read: {source}")]
    Password {
        path: String,
        source: std::io::Error,
    },
    #[error("limits.redis.url cannot be used: {0}")]
    Address(String),
}

pub(super) struct SharedCounts {
    inner: Arc<Inner>,
    on_outage: OnOutage,
}

struct Inner {
    manager: ConnectionManager,
    prefix: String,
    timeout: Duration,
    /// This gateway's name among the gateways that share the counts.
    name: String,
    admit: Script,
    settle: Script,
    now: ClockFn,
    /// No calls before this time, in Unix milliseconds.
    paused_until: AtomicU64,
    is_out: AtomicBool,
    /// This gateway's requests in flight: the member, and the sets that contain it.
    under_way: Mutex<BTreeMap<String, Vec<String>>>,
}

impl SharedCounts {
    pub fn open(section: &RedisSection, now: ClockFn) -> Result<SharedCounts, SharedError> {
        let wrong = |error: redis::RedisError| SharedError::Address(error.to_string());
        let mut info = section.url.as_str().into_connection_info().map_err(wrong)?;
        if let Some(path) = &section.password_file {
            let password =
                std::fs::read_to_string(path).map_err(|source| SharedError::Password {
                    path: path.display().to_string(),
                    source,
                })?;
            let settings = info.redis_settings().clone().set_password(password.trim());
            info = info.set_redis_settings(settings);
        }
        let client = Client::open(info).map_err(wrong)?;
        let timeout = section.timeout.duration();
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let manager = ConnectionManager::new_lazy_with_config(client, config).map_err(wrong)?;
        Ok(SharedCounts {
            on_outage: section.on_outage,
            inner: Arc::new(Inner {
                manager,
                prefix: section.prefix.clone(),
                timeout,
                name: uuid::Uuid::now_v7().simple().to_string(),
                admit: Script::new(include_str!("admit.lua")),
                settle: Script::new(include_str!("settle.lua")),
                now,
                paused_until: AtomicU64::new(0),
                is_out: AtomicBool::new(false),
                under_way: Mutex::default(),
            }),
        })
    }

    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub fn on_outage(&self) -> OnOutage {
        self.on_outage
    }

    /// Returns `None` if the server cannot be reached.
    pub async fn admit(
        &self,
        buckets: &[Bucket],
        member: &str,
        estimate: u64,
        day: &Day,
    ) -> Option<Result<RemainingLimits, LimitRefusal>> {
        let inner = &self.inner;
        let mut call = inner.admit.prepare_invoke();
        for bucket in buckets {
            let [counts, inside] = inner.keys(bucket);
            call.key(counts).key(inside);
        }
        call.arg(member)
            .arg(estimate)
            .arg(LEASE_MILLISECONDS)
            .arg(day.number)
            .arg(day.rest.0);
        for bucket in buckets {
            let limit = bucket.limit;
            call.arg(limit.requests_per_minute.unwrap_or(0))
                .arg(limit.tokens_per_minute.unwrap_or(0))
                .arg(limit.concurrent_requests.unwrap_or(0))
                .arg(limit.tokens_per_day.unwrap_or(0));
        }
        let mut manager = inner.manager.clone();
        let response: Option<Vec<i64>> = inner.ask(call.invoke_async(&mut manager)).await;
        let Some(response) = response else {
            // A slow server may have counted it nevertheless.
            self.forget(buckets, member, estimate, day.number);
            return None;
        };
        let outcome = read(&response, buckets);
        if matches!(outcome, Some(Ok(_))) {
            let sets = buckets
                .iter()
                .filter(|bucket| bucket.limit.concurrent_requests.is_some());
            let sets: Vec<String> = sets.map(|bucket| inner.keys(bucket)[1].clone()).collect();
            if !sets.is_empty() {
                inner.under_way().insert(member.to_owned(), sets);
            }
        }
        outcome
    }

    /// Sends the settlement in a separate task, which lets the drop of an admission return immediately.
    pub fn settle(&self, buckets: Vec<Bucket>, member: String, estimate: u64, used: u64, day: i64) {
        let inner = Arc::clone(&self.inner);
        inner.under_way().remove(&member);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let call = inner.settling(&buckets, &member, (estimate, used), day, false);
            let mut manager = inner.manager.clone();
            let _: Option<i64> = inner.ask(call.invoke_async(&mut manager)).await;
        });
    }

    /// Takes back an admission whose response did not arrive, if it was counted. The connection keeps the order, so the server
    /// reads this after the admission. The caller does not wait for it.
    fn forget(&self, buckets: &[Bucket], member: &str, estimate: u64, day: i64) {
        let has_places = |bucket: &&Bucket| bucket.limit.concurrent_requests.is_some();
        // Only concurrent places record that a request was counted.
        let buckets: Vec<Bucket> = buckets.iter().filter(has_places).cloned().collect();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if buckets.is_empty() {
            return;
        }
        let (inner, member) = (Arc::clone(&self.inner), member.to_owned());
        runtime.spawn(async move {
            let call = inner.settling(&buckets, &member, (estimate, 0), day, true);
            let mut manager = inner.manager.clone();
            let sent = call.invoke_async::<i64>(&mut manager);
            // The next call shows whether it arrived.
            let _ = tokio::time::timeout(inner.timeout, sent).await;
        });
    }

    /// Renews the leases of this gateway's requests in flight.
    pub async fn renew(&self) {
        let inner = &self.inner;
        let under_way = inner.under_way().clone();
        for (member, sets) in under_way {
            for set in sets {
                let mut call = redis::pipe();
                // Extends the lease only if it still exists, from now by the server's clock.
                call.cmd("EVAL")
                    .arg(RENEW)
                    .arg(1)
                    .arg(&set)
                    .arg(&member)
                    .arg(LEASE_MILLISECONDS)
                    .ignore();
                let mut manager = inner.manager.clone();
                let _: Option<()> = inner.ask(call.query_async(&mut manager)).await;
            }
        }
    }
}

const RENEW: &str = "local t = redis.call('TIME') \
    redis.call('ZADD', KEYS[1], 'XX', t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[2], ARGV[1]) \
    redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1";

impl Inner {
    fn under_way(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends an admission; with `if_counted` only if the server has counted it.
    fn settling(
        &self,
        buckets: &[Bucket],
        member: &str,
        (estimate, used): (u64, u64),
        day: i64,
        if_counted: bool,
    ) -> redis::ScriptInvocation<'_> {
        let mut call = self.settle.prepare_invoke();
        for bucket in buckets {
            let [counts, inside] = self.keys(bucket);
            call.key(counts).key(inside);
        }
        call.arg(member)
            .arg(i128::from(used).saturating_sub(i128::from(estimate)) as i64)
            .arg(day)
            .arg(u8::from(if_counted));
        for bucket in buckets {
            call.arg(bucket.limit.tokens_per_minute.unwrap_or(0))
                .arg(bucket.limit.tokens_per_day.unwrap_or(0));
        }
        call
    }

    /// The braces place all keys of a request on the same node of a cluster.
    fn keys(&self, bucket: &Bucket) -> [String; 2] {
        let base = format!("{{{}}}:{}", self.prefix, bucket.id);
        [format!("{base}:counts"), format!("{base}:inside")]
    }

    async fn ask<T>(&self, call: impl Future<Output = RedisResult<T>>) -> Option<T> {
        if (self.now)().0 < self.paused_until.load(Ordering::Relaxed) {
            return None;
        }
        let why = match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => {
                if self.is_out.swap(false, Ordering::Relaxed) {
                    tracing::info!("the shared counts of limits can be reached again");
                }
                return Some(response);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {:?}", self.timeout),
        };
        let until = (self.now)() + PAUSE;
        self.paused_until.store(until.0, Ordering::Relaxed);
        if !self.is_out.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                why,
                "the shared counts of limits cannot be reached (limits.redis)"
            );
        }
        None
    }
}

/// Parses the response of `admit.lua`. Returns `None` if it has another form.
fn read(response: &[i64], buckets: &[Bucket]) -> Option<Result<RemainingLimits, LimitRefusal>> {
    let figure = |value: Option<&i64>| u64::try_from(*value?).ok();
    if *response.first()? == 0 {
        let bucket = buckets.get(usize::try_from(*response.get(1)?).ok()?.checked_sub(1)?)?;
        let limit = bucket.limit;
        let (figure_of, most) = match *response.get(2)? {
            1 => (Figure::Requests, limit.requests_per_minute.map(u64::from)),
            2 => (Figure::Tokens, limit.tokens_per_minute),
            3 => (Figure::Concurrent, limit.concurrent_requests.map(u64::from)),
            _ => (Figure::Day, limit.tokens_per_day),
        };
        return Some(Err(LimitRefusal::Over {
            bucket: bucket.description.clone(),
            figure: figure_of,
            most: most?,
            retry: Span(figure(response.get(3))?),
        }));
    }
    let mut standing = RemainingLimits::default();
    for (nth, bucket) in buckets.iter().enumerate() {
        let left = |most: Option<u64>, left: Option<u64>| {
            let (most, left) = (most.filter(|most| *most > 0)?, left?);
            let reset = Span(most.saturating_sub(left).saturating_mul(60_000) / most);
            Some(RemainingLimit { most, left, reset })
        };
        let limit = bucket.limit;
        standing.narrow(RemainingLimits {
            requests: left(
                limit.requests_per_minute.map(u64::from),
                figure(response.get(1 + 2 * nth)),
            ),
            tokens: left(limit.tokens_per_minute, figure(response.get(2 + 2 * nth))),
        });
    }
    Some(Ok(standing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Limit;

    #[test]
    fn replies_of_the_rate_limit_script_are_parsed_and_malformed_ones_count_as_an_outage() {
        let bucket = Bucket {
            id: "key:1".to_owned(),
            description: "the key k1".to_owned(),
            limit: Limit {
                requests_per_minute: Some(60),
                ..Limit::default()
            },
        };
        let buckets = [bucket];
        let standing = read(&[1, 58, 0], &buckets).unwrap().unwrap();
        let left = standing.requests.unwrap();
        assert_eq!((left.left, left.reset), (58, Span::from_secs(2)));
        assert_eq!(standing.tokens, None);
        let refused = read(&[0, 1, 1, 900], &buckets).unwrap().unwrap_err();
        assert!(
            refused.to_string().contains("60 requests per minute"),
            "{refused}"
        );
        assert!(read(&[], &buckets).is_none());
        assert!(read(&[0, 9, 1, 900], &buckets).is_none());
    }
}
