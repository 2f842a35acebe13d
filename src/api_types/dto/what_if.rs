//! Simulated decisions under assumptions: the request and its response.

use serde::Serialize;
use utoipa::ToSchema;

use super::PlanView;
use super::values::{Share, shares};
use controller::{Snapshot, WhatIf, WhatIfReplica};
use pool::Time;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WhatIfView {
    /// Replicas that would leave.
    pub leaving: Vec<WhatIfReplicaView>,
    /// Loads that would start immediately: for waiting requests, always-hot models and orders.
    pub loads: Vec<WhatIfReplicaView>,
    /// For each affected model without a replica: the plan for its next request, considered separately.
    pub next: Vec<PlanView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhatIfReplicaView {
    /// Id of the replica; null if it would be new.
    #[schema(example = "r1")]
    pub replica: Option<String>,
    #[schema(example = "tiny-code")]
    pub model: String,
    pub priority: u32,
    pub devices: Vec<Share>,
    /// Requests in flight that it would finish first.
    pub in_flight: u32,
    #[schema(example = "device gpu1 is cordoned (M7): new fan")]
    pub reason: String,
}

impl WhatIfView {
    pub fn new(response: &WhatIf, now: Time, snapshot: &Snapshot) -> WhatIfView {
        let view = |replica: &WhatIfReplica, is_new: bool| WhatIfReplicaView {
            replica: (!is_new).then(|| replica.replica.to_string()),
            model: replica.model.clone(),
            priority: replica.priority.0,
            devices: shares(snapshot, &replica.shares),
            in_flight: replica.in_flight,
            reason: replica.reason.clone(),
        };
        WhatIfView {
            leaving: response
                .leaving
                .iter()
                .map(|replica| view(replica, false))
                .collect(),
            loads: response
                .loads
                .iter()
                .map(|replica| view(replica, true))
                .collect(),
            next: response
                .next
                .iter()
                .map(|(plan, expected)| PlanView::from_plan(plan, *expected, false, now, snapshot))
                .collect(),
        }
    }
}
