//! Requests and answers for devices that are taken out of service and put back (M7).

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{at, total};
use controller::Snapshot;
use pool::{Cordon, DeviceId, ReplicaId, ReplicaState, Span, Time};

/// What `cordon` takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"device": "gpu3", "reason": "new fan", "until": "2h"}))]
pub struct CordonRequest {
    /// Its name, index or UUID.
    #[schema(min_length = 1, example = "gpu3")]
    pub device: String,
    /// For people; without it: who asked.
    pub reason: Option<String>,
    /// When it is expected to be over: a moment (RFC 3339) or a length such as `2h`. Only shown, and
    /// what waits for the device waits that long; it takes an `uncordon` to end it.
    #[schema(value_type = Option<String>, example = "2h")]
    pub until: Option<Until>,
    /// Cut the requests in flight instead of letting them finish.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
    /// Answer when everything has left the device.
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

/// An end, as it may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    In(Span),
    At(Time),
}

/// What became of an order that takes a device or a node out of service.
pub struct Removed<'a> {
    /// What has left, as far as the order is carried out.
    pub left: &'a [ReplicaId],
    /// When what still drains is cut.
    pub cut_at: Time,
    pub order: String,
    pub took: Span,
    pub snapshot: &'a Snapshot,
}

impl Removed<'_> {
    pub(super) fn left_names(&self) -> Vec<String> {
        self.left.iter().map(ToString::to_string).collect()
    }
}

/// What `uncordon` takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"device": "gpu3"}))]
pub struct UncordonRequest {
    /// Its name, index or UUID.
    #[schema(min_length = 1, example = "gpu3")]
    pub device: String,
}

/// Why a device takes nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CordonView {
    #[schema(example = "new fan")]
    pub reason: String,
    pub since_at: String,
    /// When it is expected to be over.
    pub until_at: Option<String>,
    /// The device itself reported trouble.
    pub failed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CordonAnswer {
    #[schema(example = "gpu3")]
    pub device: String,
    pub cordon: Option<CordonView>,
    /// Replicas that have left the device.
    pub left: Vec<String>,
    /// Replicas that are still leaving it.
    pub draining: Vec<LeavingReplica>,
    /// When requests that are still in flight are cut; absent where nothing drains.
    pub cut_at: Option<String>,
    #[schema(example = "o5")]
    pub order: String,
    pub took_ms: u64,
}

/// A replica that leaves a cordoned device.
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
pub struct UncordonAnswer {
    #[schema(example = "gpu3")]
    pub device: String,
    #[schema(example = "o6")]
    pub order: String,
}

impl CordonView {
    pub fn of(cordon: &Cordon) -> CordonView {
        CordonView {
            reason: cordon.reason.clone(),
            since_at: at(cordon.since),
            until_at: cordon.until.map(at),
            failed: cordon.failed,
        }
    }

    /// Of a device, if it is cordoned.
    pub fn on(device: DeviceId, snapshot: &Snapshot) -> Option<CordonView> {
        let view = snapshot.pool.devices.iter().find(|it| it.device == device);
        view.and_then(|it| it.cordon.as_ref()).map(CordonView::of)
    }
}

impl LeavingReplica {
    /// Every replica that still holds a part of the device.
    pub fn on(device: DeviceId, snapshot: &Snapshot) -> Vec<LeavingReplica> {
        let mut found = Vec::new();
        for model in &snapshot.pool.models {
            for replica in &model.replicas {
                let here = replica.shares.iter().any(|share| share.device == device);
                // A planned load holds nothing yet and is decided anew.
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

impl CordonAnswer {
    pub fn of(device: DeviceId, removed: Removed<'_>) -> CordonAnswer {
        let draining = LeavingReplica::on(device, removed.snapshot);
        CordonAnswer {
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
