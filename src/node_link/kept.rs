//! The record of a launch that a node keeps for later controllers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use catalog::GangMember;
use engine::{LaunchFacts, Record};
use pool::Bytes;

/// The record of a launch that a later controller needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptForm {
    pub placement: Vec<PlacedBytes>,
    pub arguments: String,
    pub served_model_name: Option<String>,
    pub stop_grace_ms: u64,
    /// Set for a process of a replica that spans several nodes. `placement` is its own part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<GangMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedBytes {
    /// The controller's key of the device.
    pub device: String,
    pub bytes: u64,
}

impl KeptForm {
    pub fn new(kept: LaunchFacts) -> KeptForm {
        let placement = kept.placement.into_iter();
        KeptForm {
            placement: placement
                .map(|(device, bytes)| PlacedBytes {
                    device,
                    bytes: bytes.0,
                })
                .collect(),
            arguments: kept.arguments,
            served_model_name: kept.served_model_name,
            stop_grace_ms: u64::try_from(kept.stop_grace.as_millis()).unwrap_or(u64::MAX),
            member: None,
        }
    }

    pub fn kept(self) -> LaunchFacts {
        let placement = self.placement.into_iter();
        LaunchFacts {
            placement: placement
                .map(|placed| (placed.device, Bytes(placed.bytes)))
                .collect(),
            arguments: self.arguments,
            served_model_name: self.served_model_name,
            stop_grace: Duration::from_millis(self.stop_grace_ms),
            watch: None,
        }
    }

    /// The form of an engine that an earlier process of this node has started.
    pub fn recorded(record: &Record) -> KeptForm {
        let placement = record.placement.iter();
        KeptForm {
            placement: placement
                .map(|share| PlacedBytes {
                    device: share.device.clone(),
                    bytes: share.bytes,
                })
                .collect(),
            arguments: record.arguments.clone(),
            served_model_name: record.served_model_name.clone(),
            stop_grace_ms: record.stop_grace_ms,
            member: record.watch.as_ref().and_then(|watch| watch.member.clone()),
        }
    }
}
