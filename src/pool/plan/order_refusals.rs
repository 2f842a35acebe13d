//! Checks which orders are refused before they are stored.

use alloc::boxed::Box;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::{node_demand, orders, place};
use crate::types::decision::{Plan, Prospect};
use crate::types::event::{Command, LoadOrder};
use crate::types::ids::{ModelId, OrderId};
use crate::types::order::Order;
use crate::types::reason::Refusal;
use crate::types::requirements::Requirements;

/// The refusal of an order, with the plan if it is a load; `None` if the order is accepted.
pub(crate) fn refusal_of(
    pool: &Pool,
    id: OrderId,
    order: &Order,
) -> Option<(Refusal, Option<Box<Plan>>)> {
    let command = &order.command;
    let model = match command {
        Command::Load(LoadOrder { model, .. })
        | Command::Unload { model, .. }
        | Command::Set { model, .. } => *model,
        Command::Cordon { device, .. } | Command::Uncordon { device } => {
            let Some(known) = pool.devices.get(device) else {
                return Some((Refusal::NoSuchDevice { device: *device }, None));
            };
            let serves = known.cordon.is_none() && matches!(command, Command::Uncordon { .. });
            let device = known.name.clone();
            return serves.then_some((Refusal::NotCordoned { device }, None));
        }
        Command::DrainNode { node, .. } | Command::UndrainNode { node } => {
            let known = pool.nodes.known(*node).is_some() || pool.nodes.has_devices(*node);
            if !known {
                return Some((Refusal::NoSuchNode { node: *node }, None));
            }
            let name = pool.node_name(*node);
            let undrains = matches!(command, Command::UndrainNode { .. });
            let serves = undrains && pool.nodes.drain(&name).is_none();
            return serves.then_some((Refusal::NodeServes { node: name }, None));
        }
        _ => return None,
    };
    let Some(known) = pool.models.get(&model).filter(|model| !model.removed) else {
        return Some((Refusal::UnknownModel, None));
    };
    if let Some(refusal) = group_refusal(known, order) {
        return Some((refusal, None));
    }
    match command {
        Command::Load(load) => {
            if let Some(refusal) = load_refusal(pool, known, load) {
                return Some((refusal, None));
            }
            if let Some(refusal) = no_program(pool, model) {
                return Some((refusal, None));
            }
            if !needs_room(pool, load) {
                return None;
            }
            let requirements = orders::requirements_of(pool, load, pool.now, id);
            let placed = place::place(pool, &requirements);
            refused_for_room(pool, load, &requirements, &placed)?;
            // Only a refusal lists the obstacles on every device.
            let plan = place::explain(pool, &requirements);
            let refusal = refused_for_room(pool, load, &requirements, &plan)?;
            Some((refusal, Some(Box::new(plan))))
        }
        Command::Unload {
            replica: Some(replica),
            ..
        } if !known.replicas.contains(replica) => {
            Some((Refusal::NoSuchReplica { replica: *replica }, None))
        }
        Command::Unload { .. }
            if known.replicas.is_empty() && known.planned.is_empty() && known.fetch.is_none() =>
        {
            Some((Refusal::NotLoaded, None))
        }
        _ => None,
    }
}

/// The refusal of an order above the priority that its group may set. The model's present priority and the requested one count.
fn group_refusal(model: &Model, order: &Order) -> Option<Refusal> {
    let most = order.priority_max?;
    let priority = model.priority();
    if priority > most {
        return Some(Refusal::AboveGroup { priority, most });
    }
    let requested = order.change.priority.flatten()?;
    (requested > most).then_some(Refusal::RequestAboveGroup { requested, most })
}

/// The refusal of a load for what it requests, regardless of room.
pub(crate) fn load_refusal(pool: &Pool, model: &Model, load: &LoadOrder) -> Option<Refusal> {
    if pool.service.is_closing() {
        return Some(Refusal::ShuttingDown);
    }
    let requested = load.devices?;
    let have = pool
        .nodes
        .device_sets()
        .map(|node| node.len() as u32)
        .chain(
            pool.node_demand
                .shapes()
                .values()
                .map(|shape| shape.devices),
        )
        .max()
        .unwrap_or(0);
    if requested > have && !pool.unknown_node_may_return() {
        return Some(Refusal::TooManyDevices { requested, have });
    }
    let most = model.spec.devices_max;
    if requested > most {
        return Some(Refusal::EngineTakesFewer { requested, most });
    }
    let has = devices_of(pool, model).filter(|has| *has != requested)?;
    Some(Refusal::LoadedOnOthers { requested, has })
}

/// Returns true if the model has replicas or will have them. Another load of it then needs no additional room.
pub(crate) fn is_loaded(pool: &Pool, model: ModelId) -> bool {
    coming(pool, model) > 0
}

/// The number of replicas that serve or will serve, including replicas that are expected back (N8).
pub(crate) fn coming(pool: &Pool, id: ModelId) -> usize {
    let model = &pool.models[&id];
    pool.live(model) + model.planned.len() + pool.expected_back(id)
}

/// The failure that a load would end with after another check of the weights. Previews show it too.
pub(crate) fn damaged(pool: &Pool, model: ModelId) -> Option<Refusal> {
    let message = pool.models[&model].spec.damage.clone()?;
    (!is_loaded(pool, model)).then_some(Refusal::WeightsDamaged { message })
}

/// The refusal of a load whose program is missing. A sleeper already runs the program.
pub(crate) fn no_program(pool: &Pool, id: ModelId) -> Option<Refusal> {
    let model = &pool.models[&id];
    let message = model.spec.no_program.clone()?;
    let sleeps = model.replicas.iter().any(|id| pool.replicas.is_asleep(*id));
    (!is_loaded(pool, id) && !sleeps).then_some(Refusal::ProgramMissing { message })
}

/// Returns true if the load needs room for at least one more replica to be accepted. A load that waits needs one replica, any other
/// load needs all that it orders.
fn needs_room(pool: &Pool, load: &LoadOrder) -> bool {
    let needed = if load.waits {
        1
    } else {
        pool.replicas_wanted(load) as usize
    };
    coming(pool, load.model) < needed
}

/// The plan's refusal, unless enough replicas exist, a node may come for the load, or the load waits for replicas that leave soon.
pub(crate) fn refused_for_room(
    pool: &Pool,
    load: &LoadOrder,
    requirements: &Requirements,
    plan: &Plan,
) -> Option<Refusal> {
    if !needs_room(pool, load) {
        return None;
    }
    let refusal = plan.refusal.as_ref()?;
    let waits = load.waits && plan.prospect <= Prospect::Soon;
    let is_final = !waits && !node_demand::may_serve(pool, requirements);
    is_final.then(|| node_demand::explained(pool, requirements, refusal.clone()))
}

/// Returns true if the accepted load waits for replicas that leave soon: it was ordered to wait, a replica of it was placed before,
/// or its weights were fetched for it.
pub(crate) fn waits_for_room(pool: &Pool, order: OrderId) -> bool {
    let order = &pool.orders[&order];
    let Some(load) = order.load() else {
        return false;
    };
    let fetched_at = pool.models[&load.model].fetched_at;
    load.waits || order.is_placed || fetched_at.is_some_and(|at| at >= order.since)
}

/// The number of devices of the model's live replicas; `None` if there are none.
fn devices_of(pool: &Pool, model: &Model) -> Option<u32> {
    let replicas = model.replicas.iter().map(|id| &pool.replicas[id]);
    let mut staying = replicas.filter(|replica| replica.is_live());
    staying.next().map(|replica| replica.shares.len() as u32)
}

#[cfg(test)]
mod tests;
