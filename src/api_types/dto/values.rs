//! Values shared by several responses: times, device shares and memory needs.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use controller::{ModelFacts, Snapshot};
use pool::{ServiceClass, Time};

/// The name of a class in headers, and as the tier of a response.
pub fn class_name(class: ServiceClass) -> &'static str {
    match class {
        ServiceClass::Flex => "flex",
        ServiceClass::Default => "default",
        ServiceClass::Priority => "priority",
    }
}

/// A part of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Share {
    #[schema(example = "gpu0")]
    pub device: String,
    #[schema(example = 17_179_869_184_u64)]
    pub bytes: u64,
}

/// Resources that a replica needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Needs {
    /// Number of devices.
    #[schema(example = 1)]
    pub devices: u32,
    #[schema(example = 17_179_869_184_u64)]
    pub bytes_per_device: u64,
    /// Source of the value: `estimate`, `measured` or `file`; `unseen` for a model in Ray Serve, whose memory Ray manages.
    #[schema(example = "measured")]
    pub source: &'static str,
    /// Host memory that a replica uses in addition to its devices, as estimated from its file. Absent for engines that do not
    /// divide a model between GPUs and the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
    /// Estimated memory by place, with the options that decide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "12.1 GiB on the GPU, 5.5 GiB on the host: --n-cpu-moe 20")]
    pub by_place: Option<String>,
}

impl Needs {
    pub fn new(devices: u32, bytes_per_device: u64, facts: Option<&ModelFacts>) -> Needs {
        let split = facts.and_then(|facts| facts.split.as_ref());
        Needs {
            devices,
            bytes_per_device,
            source: facts.map_or("estimate", |facts| facts.need_source),
            host_bytes: split.map(|split| split.host.0),
            by_place: split.map(ToString::to_string),
        }
    }
}

/// A time in the API's format.
pub fn at(time: Time) -> String {
    rfc3339(moment(time))
}

/// Times beyond the calendar's range become its last time.
pub fn moment(time: Time) -> DateTime<Utc> {
    let moment = i64::try_from(time.0)
        .ok()
        .and_then(DateTime::<Utc>::from_timestamp_millis);
    moment.unwrap_or(DateTime::<Utc>::MAX_UTC)
}

pub(crate) fn rfc3339(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub fn shares(snapshot: &Snapshot, shares: &[pool::Share]) -> Vec<Share> {
    let share = |share: &pool::Share| Share {
        device: snapshot.device_name(share.device),
        bytes: share.bytes.0,
    };
    shares.iter().map(share).collect()
}

/// Sum of a replica's bytes on all devices.
pub(crate) fn total(shares: &[pool::Share]) -> u64 {
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
    fn a_time_is_formatted_in_utc_with_milliseconds() {
        assert_eq!(at(Time(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert!(at(Time(u64::MAX)).starts_with("+262142-12-31"));
    }
}
