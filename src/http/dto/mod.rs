//! The wire types: what the admin API takes and gives, and how it is made from the controller's
//! snapshot. Plain data and conversions; nothing here asks, decides or knows of HTTP. Amounts end in
//! `_bytes`, lengths of time in `_ms`, moments in `_at` (RFC 3339, UTC).

mod devices;
mod history;
mod hot;
mod load;
mod models;
mod plan;
mod upkeep;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use crate::controller::Snapshot;
use crate::pool::{self, Time};

pub use devices::{DeviceList, QueueView};
pub use history::{EventList, EventView, LogLineView, LogList};
pub use hot::HotModels;
pub use load::{LoadAnswer, LoadRequest, UnloadAnswer, UnloadRequest};
pub use models::{ModelList, ModelPatch, ModelView, RemoveAnswer, find, measured};
pub use plan::{PlanView, with_device_names};
pub use upkeep::{
    CleanupAnswer, CleanupMode, CleanupRequest, KeyList, KeyRole, KeyView, NewKey, NewKeyRequest,
    ReloadAnswer, ResetAnswer, RevokeAnswer,
};

/// A part of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Share {
    #[schema(example = "gpu0")]
    pub device: String,
    #[schema(example = 17_179_869_184_u64)]
    pub bytes: u64,
}

/// What one replica needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Needs {
    /// Devices of one replica.
    #[schema(example = 1)]
    pub devices: u32,
    #[schema(example = 17_179_869_184_u64)]
    pub bytes_per_device: u64,
    /// Where the figure comes from: `estimate`, `measured` or `file`.
    #[schema(example = "measured")]
    pub source: &'static str,
}

/// A moment as the API writes it. Moments that no calendar holds become the last one it holds.
pub fn at(time: Time) -> String {
    let moment = i64::try_from(time.0)
        .ok()
        .and_then(DateTime::<Utc>::from_timestamp_millis);
    rfc3339(moment.unwrap_or(DateTime::<Utc>::MAX_UTC))
}

fn rfc3339(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn shares(snapshot: &Snapshot, shares: &[pool::Share]) -> Vec<Share> {
    let share = |it: &pool::Share| Share {
        device: snapshot.device_name(it.device),
        bytes: it.bytes.0,
    };
    shares.iter().map(share).collect()
}

/// What all devices together hold of one replica.
fn total(shares: &[pool::Share]) -> u64 {
    shares
        .iter()
        .map(|share| share.bytes)
        .sum::<pool::Bytes>()
        .0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_utc_with_milliseconds() {
        assert_eq!(at(Time(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert!(at(Time(u64::MAX)).starts_with("+262142-12-31"));
    }
}
