//! The effect of an order, as its sender has seen it in a plan. An order that would have another effect is refused.

use alloc::vec::Vec;

use crate::types::decision::Plan;
use crate::types::ids::ReplicaId;
use crate::types::model::Override;
use crate::types::share::Share;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderEffect {
    Load(LoadEffect),
    /// The replicas that an unload or a cleanup ends, by id.
    Leaving(Vec<ReplicaId>),
    /// The override that a change applies to, and the replicas and planned loads of the pool, by id.
    Set {
        over: Override,
        replicas: Vec<ReplicaId>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadEffect {
    /// The load places at least one replica.
    Places(FirstPlacement),
    /// The model has its replicas, or they are on their way. The load itself places none.
    HasReplicas,
}

/// The placement of the first replica of a load, and the replicas that leave for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstPlacement {
    pub placement: Vec<Share>,
    pub victims: Vec<ReplicaId>,
    /// The sleeper that is woken instead of a start.
    pub wakes: Option<ReplicaId>,
}

impl FirstPlacement {
    pub(crate) fn from_plan(plan: &Plan) -> FirstPlacement {
        FirstPlacement {
            placement: plan.placement.clone(),
            victims: plan.victims.iter().map(|victim| victim.replica).collect(),
            wakes: plan.wakes,
        }
    }
}
