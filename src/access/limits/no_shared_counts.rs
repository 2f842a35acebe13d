//! Replaces `shared_counts` in a program built without the feature `redis`, which refuses a configuration with shared counts at the
//! start.

use super::{Bucket, ClockFn, Day, LimitRefusal, RemainingLimits};
use config::{OnOutage, RedisSection};

#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    #[error(
        "limits.redis needs a model-pool that is built with the feature `redis`: build it without `--no-default-features`, or add `--features redis`"
    )]
    NotBuilt,
}

/// Uninhabited: shared counts do not exist in this build.
pub(super) enum SharedCounts {}

impl SharedCounts {
    pub fn open(_: &RedisSection, _: ClockFn) -> Result<SharedCounts, SharedError> {
        Err(SharedError::NotBuilt)
    }

    pub fn name(&self) -> &str {
        match *self {}
    }

    pub fn on_outage(&self) -> OnOutage {
        match *self {}
    }

    pub async fn admit(
        &self,
        _: &[Bucket],
        _: &str,
        _: u64,
        _: &Day,
    ) -> Option<Result<RemainingLimits, LimitRefusal>> {
        match *self {}
    }

    pub fn settle(&self, _: Vec<Bucket>, _: String, _: u64, _: u64, _: i64) {
        match *self {}
    }

    pub async fn renew(&self) {
        match *self {}
    }
}
