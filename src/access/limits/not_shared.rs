//! In the place of `shared` in a program that is built without the feature `redis`: a configuration with shared counts
//! is refused at the start.

use super::{Bucket, Day, Now, Refused, Standing};
use config::{OnOutage, RedisSection};

#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    #[error(
        "limits.redis needs a model-pool that is built with it: build it without `--no-default-features`, or add `--features redis`"
    )]
    NotBuilt,
}

/// There is none.
pub(super) enum Shared {}

impl Shared {
    pub fn open(_: &RedisSection, _: Now) -> Result<Shared, SharedError> {
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
    ) -> Option<Result<Standing, Refused>> {
        match *self {}
    }

    pub fn settle(&self, _: Vec<Bucket>, _: String, _: u64, _: u64, _: i64) {
        match *self {}
    }

    pub async fn renew(&self) {
        match *self {}
    }
}
