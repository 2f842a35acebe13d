//! Rate limits and their counts: requests and tokens per minute, tokens per day, concurrent requests. The
//! counts are in memory, or in a Redis server that gateways share. Requests are never queued here, and their
//! content is not stored.
//! One file because every limit counts and gives back in the same steps.

mod day;
mod level;
mod memory;
#[cfg_attr(not(feature = "redis"), path = "no_shared_counts.rs")]
mod shared_counts;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use chrono_tz::Tz;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use wildmatch::WildMatch;

use config::{Limit, LimitsSection, OnOutage};
use pool::{Span, Time};

use day::Day;
use memory::Memory;
use shared_counts::SharedCounts;
pub use shared_counts::SharedError;

/// Something with a limit: a key, an address, a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The same for all gateways: `key:3`, `address:10.0.0.1`, `model:org/name`.
    pub id: String,
    /// For display: `the key k3`.
    pub description: String,
    pub limit: Limit,
}

/// The unit that counts for an address. An IPv6 user can choose from 64 bits of addresses, so its network counts.
pub fn place_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) if address.is_loopback() => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// The kind of limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Requests,
    Tokens,
    Concurrent,
    Day,
}

/// The reason that a request is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitRefusal {
    /// `retry` is the time until there is room again. For concurrent requests it is unknown, and given as a second.
    Over {
        bucket: String,
        figure: Figure,
        most: u64,
        retry: Span,
    },
    /// The shared counts cannot be reached, and the configuration refuses requests in that case.
    Outage,
}

impl fmt::Display for LimitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitRefusal::Over {
            bucket,
            figure,
            most,
            retry,
        } = self
        else {
            return f.write_str(
                "requests cannot be counted now, and this service refuses uncounted requests; try again later",
            );
        };
        let of = match figure {
            Figure::Requests => "requests per minute",
            Figure::Tokens => "tokens per minute",
            Figure::Concurrent => "requests at the same time",
            Figure::Day => "tokens per day",
        };
        write!(f, "{bucket} has reached its limit of {most} {of}; ")?;
        match figure {
            Figure::Concurrent => f.write_str("try again when another request has ended"),
            _ => write!(f, "try again in {}", retry),
        }
    }
}

/// The remaining part of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingLimit {
    pub most: u64,
    pub left: u64,
    /// Time until all of it is available again.
    pub reset: Span,
}

/// The remaining limits after an admission: the minimum of several buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingLimits {
    pub requests: Option<RemainingLimit>,
    pub tokens: Option<RemainingLimit>,
}

impl RemainingLimits {
    fn narrow(&mut self, other: RemainingLimits) {
        let least = |a: Option<RemainingLimit>, b: Option<RemainingLimit>| match (a, b) {
            (Some(a), Some(b)) if a.left <= b.left => Some(a),
            (a, b) => b.or(a),
        };
        self.requests = least(self.requests, other.requests);
        self.tokens = least(self.tokens, other.tokens);
    }
}

/// Tokens of one bucket in one day that are not in the store yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayTokens {
    pub day: i64,
    pub bucket: String,
    pub tokens: u64,
}

type ClockFn = Arc<dyn Fn() -> Time + Send + Sync>;

/// The counts of this gateway, or its connection to the shared ones.
pub struct Limits {
    rules: ArcSwap<Rules>,
    now: ClockFn,
    memory: Mutex<Memory>,
    shared: Option<SharedCounts>,
    numbers: AtomicU64,
    /// Calls to the shared counts that are in flight.
    asking: TaskTracker,
}

/// The configured limits and time zone. A reload replaces them; the counts stay.
#[derive(Debug)]
struct Rules {
    section: LimitsSection,
    models: Vec<(WildMatch, Limit)>,
    timezone: Tz,
}

impl Rules {
    fn new(section: LimitsSection, timezone: Tz) -> Rules {
        let models = section.models.iter();
        let models = models.map(|(pattern, limit)| (WildMatch::new(pattern), *limit));
        Rules {
            models: models.collect(),
            timezone,
            section,
        }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("rules", &self.rules.load())
            .finish_non_exhaustive()
    }
}

impl Limits {
    /// `timezone` defines when a day begins.
    ///
    /// # Errors
    /// If the configuration of the shared counts cannot work: an unreadable password file or an invalid address. An unreachable
    /// server is not an error.
    pub fn new(
        section: LimitsSection,
        timezone: Tz,
        now: impl Fn() -> Time + Send + Sync + 'static,
    ) -> Result<Limits, SharedError> {
        let now: ClockFn = Arc::new(now);
        let shared = section.redis.as_ref();
        let shared = shared.map(|redis| SharedCounts::open(redis, Arc::clone(&now)));
        let shared = shared.transpose()?;
        Ok(Limits {
            rules: ArcSwap::from_pointee(Rules::new(section, timezone)),
            now,
            memory: Mutex::default(),
            shared,
            numbers: AtomicU64::new(0),
            asking: TaskTracker::new(),
        })
    }

    /// Replaces the limits and the time zone. The location of the counts (`redis`) stays as it is.
    pub fn set(&self, section: LimitsSection, timezone: Tz) {
        self.rules.store(Arc::new(Rules::new(section, timezone)));
    }

    /// The limit of a key without its own limits.
    pub fn default_limit(&self) -> Limit {
        self.rules.load().section.default
    }

    /// The limit of an address without a key.
    pub fn anonymous_limit(&self) -> Limit {
        let rules = self.rules.load();
        rules.section.anonymous.unwrap_or(rules.section.default)
    }

    /// The bucket of a model, for all users together.
    pub fn of_model(&self, name: &str) -> Option<Bucket> {
        let rules = self.rules.load();
        let (_, limit) = rules
            .models
            .iter()
            .find(|(pattern, _)| pattern.matches(name))?;
        Some(Bucket {
            id: format!("model:{name}"),
            description: format!("the model {name}"),
            limit: *limit,
        })
    }

    /// Counts a request in all `buckets`, or in none, except that a refused request may count as an attempt. `estimate` is its
    /// expected tokens, as far as known; corrected when it ends.
    pub async fn admit(
        self: &Arc<Self>,
        mut buckets: Vec<Bucket>,
        estimate: u64,
    ) -> Result<AdmittedRequest, LimitRefusal> {
        buckets.retain(|bucket| !bucket.limit.is_none());
        let mut admitted = AdmittedRequest {
            limits: Arc::clone(self),
            member: String::new(),
            counted: CountLocation::Nowhere,
            estimate,
            used: AtomicU64::new(0),
            standing: RemainingLimits::default(),
            buckets,
        };
        if admitted.buckets.is_empty() {
            return Ok(admitted);
        }
        let at = (self.now)();
        let day = self.day(at);
        if let Some(shared) = &self.shared {
            // In the shared counts each request has a unique id, which limits a withdrawal to the request's own count.
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            admitted.member = format!("{}-{number}", shared.name());
            match self.admit_together(admitted, day).await? {
                SharedOutcome::Responded(admitted) => return Ok(admitted),
                SharedOutcome::Outage(back) => admitted = back,
            }
            match shared.on_outage() {
                OnOutage::Open => return Ok(admitted),
                OnOutage::Closed => return Err(LimitRefusal::Outage),
                OnOutage::Own => {}
            }
        }
        admitted.standing = self.own().admit(at, &day, &admitted.buckets, estimate)?;
        admitted.counted = CountLocation::Here;
        Ok(admitted)
    }

    /// Counts in the shared server, in a task that continues if the caller leaves. The server's count is then known, and dropping
    /// the admission takes it back.
    async fn admit_together(
        self: &Arc<Self>,
        mut admitted: AdmittedRequest,
        day: Day,
    ) -> Result<SharedOutcome, LimitRefusal> {
        let (reply, response) = oneshot::channel();
        let limits = Arc::clone(self);
        self.asking.spawn(async move {
            let Some(shared) = &limits.shared else {
                return;
            };
            let (buckets, member) = (&admitted.buckets, &admitted.member);
            let outcome = shared.admit(buckets, member, admitted.estimate, &day).await;
            let outcome = match outcome {
                None => Ok(SharedOutcome::Outage(admitted)),
                Some(Err(refused)) => Err(refused),
                Some(Ok(standing)) => {
                    admitted.standing = standing;
                    admitted.counted = CountLocation::Shared;
                    Ok(SharedOutcome::Responded(admitted))
                }
            };
            // If the caller has left, the outcome is dropped here.
            let _ = reply.send(outcome);
        });
        // The channel closes only when the process ends.
        response.await.unwrap_or(Err(LimitRefusal::Outage))
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn day(&self, at: Time) -> Day {
        Day::from_time(at, self.rules.load().timezone)
    }

    /// Day totals that have changed since the last call, for the store.
    pub fn take_days(&self) -> Vec<DayTokens> {
        self.own().take_days()
    }

    /// Records that the store failed to save these totals; they are returned again.
    pub fn not_kept(&self, buckets: impl Iterator<Item = String>) {
        let mut own = self.own();
        buckets.for_each(|bucket| own.not_kept(&bucket));
    }

    /// Restores the usage from before this start.
    pub fn restore_days(&self, days: Vec<DayTokens>) {
        let today = self.day((self.now)()).number;
        let today = days.into_iter().filter(|total| total.day == today);
        self.own().restore_days(today);
    }

    /// Today's number. Earlier days need not be stored.
    pub fn today(&self) -> i64 {
        self.day((self.now)()).number
    }

    /// Renews the leases of this gateway's requests in the shared counts. Call it every [`Limits::RENEW_EVERY`].
    pub async fn renew(&self) {
        if let Some(shared) = &self.shared {
            shared.renew().await;
        }
    }

    pub const RENEW_EVERY: std::time::Duration = std::time::Duration::from_secs(30);
}

/// The result of a request to the shared counts.
enum SharedOutcome {
    Responded(AdmittedRequest),
    /// The shared counts cannot be reached.
    Outage(AdmittedRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountLocation {
    Nowhere,
    Here,
    Shared,
}

/// An admitted request. Dropping it ends it, for whatever reason.
#[derive(Debug)]
pub struct AdmittedRequest {
    limits: Arc<Limits>,
    buckets: Vec<Bucket>,
    member: String,
    counted: CountLocation,
    estimate: u64,
    used: AtomicU64,
    standing: RemainingLimits,
}

impl AdmittedRequest {
    pub fn standing(&self) -> RemainingLimits {
        self.standing
    }

    /// Returns true if its tokens count against a limit, including tokens of a response whose client has left.
    pub fn is_limited_by_tokens(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.limit.has_tokens())
    }

    /// The tokens expected before the request began.
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Adds used tokens of prompt and response.
    pub fn took(&self, tokens: u64) {
        self.used.fetch_add(tokens, Ordering::Relaxed);
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        let used = self.used.load(Ordering::Relaxed);
        let at = (self.limits.now)();
        match self.counted {
            CountLocation::Nowhere => {}
            CountLocation::Here => {
                let day = self.limits.day(at);
                self.limits
                    .own()
                    .settle(at, &day, &self.buckets, self.estimate, used);
            }
            CountLocation::Shared => {
                if let Some(shared) = &self.limits.shared {
                    let day = self.limits.day(at);
                    let member = std::mem::take(&mut self.member);
                    let buckets = std::mem::take(&mut self.buckets);
                    shared.settle(buckets, member, self.estimate, used, day.number);
                }
            }
        }
    }
}

/// An admitted request, shared by the parts that handle it. Without a limit, it only holds the estimate. Cheap to clone. For its
/// limits, the request ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Admission {
    /// `None` if the request has no limit.
    counted: Option<Arc<AdmittedRequest>>,
    estimate: u64,
}

impl From<AdmittedRequest> for Admission {
    fn from(admitted: AdmittedRequest) -> Admission {
        Admission {
            estimate: admitted.estimate(),
            counted: (!admitted.buckets.is_empty()).then(|| Arc::new(admitted)),
        }
    }
}

impl Admission {
    /// Returns true if its tokens count against a limit, including tokens of a response whose client has left.
    pub fn is_limited_by_tokens(&self) -> bool {
        let counted = self.counted.as_ref();
        counted.is_some_and(|admitted| admitted.is_limited_by_tokens())
    }

    /// The tokens expected before the request began.
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Adds used tokens of prompt and response.
    pub fn took(&self, tokens: u64) {
        if let Some(counted) = &self.counted {
            counted.took(tokens);
        }
    }
}

#[cfg(test)]
mod tests;
