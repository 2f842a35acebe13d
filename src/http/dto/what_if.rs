//! What the pool would do under assumptions: the request and its answer.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

use super::PlanView;
use super::values::{Share, shares};
use controller::{Snapshot, WhatIf, WhatIfReplica};
use pool::{Priority, Time};

/// What is taken to be so.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"cordoned": ["gpu1"], "priorities": {"tiny-chat": 2}}))]
pub struct WhatIfRequest {
    /// Devices that are out of service, by name, UUID or index.
    #[schema(value_type = Option<Vec<String>>, max_items = 64, example = json!(["gpu1"]))]
    pub cordoned: Vec<String>,
    /// Priorities of models, by name or alias; null stands for the catalogue's.
    #[schema(schema_with = priorities_schema)]
    pub priorities: BTreeMap<String, Option<Priority>>,
}

/// A number within the bounds of a priority, or null, for each name.
fn priorities_schema() -> Object {
    let priority = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
        .minimum(Some(0))
        .maximum(Some(1_000_000));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(priority))
        .examples([serde_json::json!({"tiny-chat": 2})])
        .build()
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WhatIfView {
    /// Replicas that would leave.
    pub leaving: Vec<WhatIfReplicaView>,
    /// Loads that would begin at once: for requests that wait, and of models that are always hot or ordered.
    pub loads: Vec<WhatIfReplicaView>,
    /// Of each model concerned that would have no replica: the plan for its next request, each for itself.
    pub next: Vec<PlanView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhatIfReplicaView {
    /// null: it would be new.
    #[schema(example = "r1")]
    pub replica: Option<String>,
    #[schema(example = "tiny-code")]
    pub model: String,
    pub priority: u32,
    pub devices: Vec<Share>,
    /// Requests that it would finish first.
    pub in_flight: u32,
    #[schema(example = "device gpu1 is cordoned (M7): new fan")]
    pub reason: String,
}

impl WhatIfView {
    pub fn of(answer: &WhatIf, now: Time, snapshot: &Snapshot) -> WhatIfView {
        let view = |it: &WhatIfReplica, is_new: bool| WhatIfReplicaView {
            replica: (!is_new).then(|| it.replica.to_string()),
            model: it.model.clone(),
            priority: it.priority.0,
            devices: shares(snapshot, &it.shares),
            in_flight: it.in_flight,
            reason: it.reason.clone(),
        };
        WhatIfView {
            leaving: answer.leaving.iter().map(|it| view(it, false)).collect(),
            loads: answer.loads.iter().map(|it| view(it, true)).collect(),
            next: answer
                .next
                .iter()
                .map(|(plan, _)| PlanView::of(plan, false, now, snapshot))
                .collect(),
        }
    }
}
