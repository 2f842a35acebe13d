//! Compares the effect that an order would have now with the effect in its sender's plan. Read-only.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::cleanup;
use crate::types::decision::{Decision, Plan, Victim};
use crate::types::event::Command;
use crate::types::ids::{OrderId, ReplicaId};
use crate::types::order::Order;
use crate::types::order_effect::{FirstPlacement, LoadEffect, OrderEffect};
use crate::types::reason::Refusal;

/// The effect of the command if it began now. `None` for loads, whose effect is decided with their placement, and for commands that
/// have no plan.
pub(crate) fn effect_of(pool: &Pool, command: &Command) -> Option<OrderEffect> {
    match command {
        Command::Unload { model, replica, .. } => {
            let replicas = pool.models[model].replicas.iter().copied();
            let leaving = replicas.filter(|id| replica.is_none_or(|only| only == *id));
            Some(OrderEffect::Leaving(sorted(leaving)))
        }
        Command::Cleanup { scope, begun, .. } => {
            let leaving = cleanup::leaving(pool, *scope, *begun).replicas;
            Some(OrderEffect::Leaving(sorted(leaving.into_iter())))
        }
        Command::Set { model, .. } => {
            let replicas = pool.replicas.keys().chain(pool.planned.keys());
            Some(OrderEffect::Set {
                over: pool.models[model].over.clone(),
                replicas: sorted(replicas.copied()),
            })
        }
        _ => None,
    }
}

/// The refusal of an order that has not begun and whose effect is no longer the planned one. The effect of a load is compared when
/// the pool decides about it.
pub(crate) fn changed(pool: &Pool, order: &Order) -> Option<Refusal> {
    let planned = order.planned.as_ref()?;
    let is_same = match planned {
        OrderEffect::Load(_) => true,
        planned => effect_of(pool, &order.command).as_ref() == Some(planned),
    };
    (!is_same).then_some(Refusal::PlanChanged)
}

/// The refusal of an order whose load is about to be decided in another way than planned. `fits` is false if the load has no place
/// now.
pub(crate) fn decided_otherwise(
    pool: &Pool,
    id: OrderId,
    fits: bool,
    decision: &Decision,
) -> Option<Refusal> {
    let order = &pool.orders[&id];
    let Some(OrderEffect::Load(planned)) = &order.planned else {
        return None;
    };
    let promised = match decision {
        Decision::Promise { plan, .. } => Some(plan),
        _ => None,
    };
    let is_same = match planned {
        LoadEffect::Places(first) if !order.is_placed => {
            let is_first = |plan: &Plan| FirstPlacement::from_plan(plan) == *first;
            fits && promised.is_none_or(|plan| is_first(plan))
        }
        // Another attempt or a later replica may end only what the plan shows.
        LoadEffect::Places(first) => {
            let is_shown = |victim: &Victim| first.victims.contains(&victim.replica);
            promised.is_none_or(|plan| plan.victims.iter().all(is_shown))
        }
        // The replacement of a replica that was on its way ends nothing.
        LoadEffect::HasReplicas => {
            promised.is_none_or(|plan| !pool.orders.begins(id) && plan.victims.is_empty())
        }
    };
    (!is_same).then_some(Refusal::PlanChanged)
}

/// Returns true if the plan of the order's load places a replica, and none has been placed for it.
pub(crate) fn lacks_its_placement(order: &Order) -> bool {
    let places = matches!(
        order.planned,
        Some(OrderEffect::Load(LoadEffect::Places(_)))
    );
    places && !order.is_placed
}

fn sorted(replicas: impl Iterator<Item = ReplicaId>) -> Vec<ReplicaId> {
    let mut all: Vec<ReplicaId> = replicas.collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests;
