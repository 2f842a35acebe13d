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

/// The placement of the first replica of a load, and the replicas that leave for it. Empty if the model has enough replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadEffect {
    pub placement: Vec<Share>,
    pub victims: Vec<ReplicaId>,
    /// The sleeper that is woken instead of a start.
    pub wakes: Option<ReplicaId>,
}

impl LoadEffect {
    /// The effect of a plan that places a replica.
    pub(crate) fn from_placement(plan: &Plan) -> LoadEffect {
        LoadEffect {
            placement: plan.placement.clone(),
            victims: plan.victims.iter().map(|victim| victim.replica).collect(),
            wakes: plan.wakes,
        }
    }
}

impl OrderEffect {
    /// The effect of a previewed load; `None` if the load is refused or waits for a node.
    pub fn from_preview(plan: &Plan) -> Option<OrderEffect> {
        if plan.refusal.is_some() || plan.node.is_some() {
            return None;
        }
        // The pool considers no places for a model that already has its replicas.
        let effect = if plan.candidates.is_empty() {
            LoadEffect::default()
        } else {
            LoadEffect::from_placement(plan)
        };
        Some(OrderEffect::Load(effect))
    }
}
