//! Requests and responses for cordoning and uncordoning devices (M7).

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{at, total};
use controller::Snapshot;
use pool::{Cordon, DeviceId, ReplicaId, ReplicaState, Span, Time};

/// An end time in either accepted form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    In(Span),
    At(Time),
}

/// Progress of an order that takes a device or a node out of service.
pub struct Removed<'a> {
    /// Replicas that have left so far.
    pub left: &'a [ReplicaId],
    /// Time at which the remaining requests are cut.
    pub cut_at: Time,
    pub order: String,
    pub took: Span,
    pub snapshot: &'a Snapshot,
}

impl Removed<'_> {
    pub(crate) fn left_names(&self) -> Vec<String> {
        self.left.iter().map(ToString::to_string).collect()
    }
}

/// The cordon of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CordonView {
    #[schema(example = "new fan")]
    pub reason: String,
    pub since_at: String,
    /// Expected end.
    pub until_at: Option<String>,
    /// True if the device itself reported an error.
    pub failed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CordonResponse {
    #[schema(example = "gpu3")]
    pub device: String,
    pub cordon: Option<CordonView>,
    /// Replicas that have left the device.
    pub left: Vec<String>,
    /// Replicas that are still leaving.
    pub draining: Vec<LeavingReplica>,
    /// Time at which requests in flight are cut. Absent if nothing drains.
    pub cut_at: Option<String>,
    #[schema(example = "o5")]
    pub order: String,
    pub took_ms: u64,
}

/// A replica that is leaving a cordoned device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LeavingReplica {
    #[schema(example = "r3")]
    pub replica: String,
    pub model: String,
    #[schema(example = "draining")]
    pub state: &'static str,
    pub in_flight: u32,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UncordonResponse {
    #[schema(example = "gpu3")]
    pub device: String,
    #[schema(example = "o6")]
    pub order: String,
}

impl CordonView {
    pub fn new(cordon: &Cordon) -> CordonView {
        CordonView {
            reason: cordon.reason.clone(),
            since_at: at(cordon.since),
            until_at: cordon.until.map(at),
            failed: cordon.failed,
        }
    }

    /// The device's cordon, if any.
    pub fn on(device: DeviceId, snapshot: &Snapshot) -> Option<CordonView> {
        let view = snapshot
            .pool
            .devices
            .iter()
            .find(|view| view.device == device);
        view.and_then(|view| view.cordon.as_ref())
            .map(CordonView::new)
    }
}

impl LeavingReplica {
    /// Every replica that still holds a part of the device.
    pub fn on(device: DeviceId, snapshot: &Snapshot) -> Vec<LeavingReplica> {
        let mut found = Vec::new();
        for model in &snapshot.pool.models {
            for replica in &model.replicas {
                let here = replica.shares.iter().any(|share| share.device == device);
                // A planned load holds nothing yet and is planned again.
                if here && replica.state != ReplicaState::Planned {
                    found.push(LeavingReplica {
                        replica: replica.replica.to_string(),
                        model: model.name.clone(),
                        state: replica.state.name(),
                        in_flight: replica.in_flight,
                        bytes: total(&replica.shares),
                    });
                }
            }
        }
        found
    }
}

impl CordonResponse {
    pub fn new(device: DeviceId, removed: Removed<'_>) -> CordonResponse {
        let draining = LeavingReplica::on(device, removed.snapshot);
        CordonResponse {
            device: removed.snapshot.device_name(device),
            cordon: CordonView::on(device, removed.snapshot),
            left: removed.left_names(),
            cut_at: (!draining.is_empty()).then(|| at(removed.cut_at)),
            draining,
            order: removed.order,
            took_ms: removed.took.0,
        }
    }
}
