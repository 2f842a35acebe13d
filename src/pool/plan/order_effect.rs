//! Compares the effect that an order would have now with the effect in its sender's plan. Read-only.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::{cleanup, order_refusals};
use crate::types::decision::{Plan, Victim};
use crate::types::event::Command;
use crate::types::ids::{OrderId, ReplicaId};
use crate::types::order::Order;
use crate::types::order_effect::{LoadEffect, OrderEffect};
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

/// The refusal of an order that has not begun and whose effect is no longer the planned one. Of a load, only whether it places a
/// replica is compared.
pub(crate) fn changed(pool: &Pool, order: &Order) -> Option<Refusal> {
    let planned = order.planned.as_ref()?;
    let is_same = match (&order.command, planned) {
        (Command::Load(load), OrderEffect::Load(effect)) => {
            let coming = order_refusals::coming(pool, load.model);
            let wanted = pool.replicas_wanted(load) as usize;
            if *effect == LoadEffect::default() {
                coming >= wanted
            } else {
                // A load that is still planned may be planned again for this order.
                coming - pool.models[&load.model].planned.len() < wanted
            }
        }
        (command, planned) => effect_of(pool, command).as_ref() == Some(planned),
    };
    (!is_same).then_some(Refusal::PlanChanged)
}

/// The refusal of an order whose load is about to be decided in another way than planned.
pub(crate) fn decided_otherwise(pool: &Pool, id: OrderId, plan: &Plan) -> Option<Refusal> {
    let order = &pool.orders[&id];
    let Some(OrderEffect::Load(planned)) = &order.planned else {
        return None;
    };
    // Another attempt, a later replica, and the replacement of a replica that was coming may end only what the plan shows.
    let is_shown = |victim: &Victim| planned.victims.contains(&victim.replica);
    let is_same = if order.is_placed || *planned == LoadEffect::default() {
        plan.victims.iter().all(is_shown)
    } else {
        plan.refusal.is_none() && LoadEffect::from_placement(plan) == *planned
    };
    (!is_same).then_some(Refusal::PlanChanged)
}

fn sorted(replicas: impl Iterator<Item = ReplicaId>) -> Vec<ReplicaId> {
    let mut all: Vec<ReplicaId> = replicas.collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests;
