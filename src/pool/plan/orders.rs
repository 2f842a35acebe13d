//! Administrators' orders: accepted, kept in the store, carried out, settled. Decides the next step of an order, as
//! part of `plan::next`; changes no fact but `Order` itself.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::requirements::fit_when_empty;
use crate::plan::{order_effect, order_refusals, stall};
use crate::types::action::{LoadResult, Outcome};
use crate::types::decision::{Decision, Drain};
use crate::types::event::{Command, LoadOrder};
use crate::types::ids::{ModelId, OrderId, ReplicaId, Span, Time};
use crate::types::order::Order;
use crate::types::reason::{Refusal, StopReason};
use crate::types::replica::Phase;
use crate::types::requirements::Requirements;

/// An order for more replicas than this is rejected as a mistake.
pub const REPLICAS_MAX: u32 = 1024;

/// The next step of the active orders.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    pool.orders
        .iter()
        .filter(|(_, order)| order.saved)
        .find_map(|(&id, order)| match &order.command {
            Command::Load(load) => next_of_load(pool, id, order, load),
            Command::Unload { .. }
            | Command::Cleanup { .. }
            | Command::Reset
            | Command::Cordon { .. }
            | Command::DrainNode { .. }
            | Command::Shutdown { .. } => next_of_removal(pool, id, order),
            Command::Uncordon { .. } => Some(Decision::Settle {
                order: id,
                outcome: Outcome::Uncordoned,
            }),
            Command::UndrainNode { .. } => Some(Decision::Settle {
                order: id,
                outcome: Outcome::NodeUndrained,
            }),
            Command::Set { .. } => Some(Decision::Settle {
                order: id,
                outcome: Outcome::Set,
            }),
            Command::Reopen => Some(Decision::Settle {
                order: id,
                outcome: Outcome::Reopened,
            }),
        })
}

/// Refuses a load that has begun in this step if its plan places a replica and the model has its replicas without it. No other
/// decision of the step may be left.
pub(crate) fn placed_by_others(pool: &Pool) -> Option<Decision> {
    pool.orders.begun().find_map(|(id, order)| {
        let load = order.load().filter(|_| order.shortfall.is_none())?;
        let has_replicas = order_refusals::coming(pool, load.model) >= order.replicas as usize;
        (has_replicas && order_effect::lacks_its_placement(order)).then(|| plan_changed(id, order))
    })
}

fn plan_changed(id: OrderId, order: &Order) -> Decision {
    Decision::Settle {
        order: id,
        outcome: Outcome::Refused {
            refusal: Refusal::PlanChanged,
            plan: order.plan.clone(),
        },
    }
}

fn next_of_load(pool: &Pool, id: OrderId, order: &Order, load: &LoadOrder) -> Option<Decision> {
    // A load that would differ from its plan changes nothing.
    if order.shortfall == Some(Refusal::PlanChanged) && !order.is_placed {
        return Some(plan_changed(id, order));
    }
    let model = &pool.models[&load.model];
    let phase = |replica: &ReplicaId| &pool.replicas[replica].phase;
    let ready: Vec<ReplicaId> = model
        .replicas
        .iter()
        .filter(|id| matches!(phase(id), Phase::Ready { .. }))
        .filter(|id| !pool.is_written_off(&pool.replicas[id]))
        .copied()
        .collect();
    let live = pool.live(model);
    let wanted = order.replicas as usize;
    if load.replicas.is_some()
        && let Some(decision) = surplus(pool, load.model, wanted, &ready)
    {
        return Some(decision);
    }
    if pool.now >= order_deadline(pool, order) && order.shortfall.is_none() {
        let refusal = Refusal::TimedOut {
            waited: pool.now.since(order.since),
            retry: Span(0),
            stall: stall::find(pool, load.model, order.since),
        };
        return Some(Decision::Shorten { order: id, refusal });
    }
    let coming = live - ready.len() + model.planned.len();
    let satisfied = match load.replicas {
        Some(_) => ready.len() == wanted,
        None => ready.len() >= wanted,
    };
    if !satisfied && (order.shortfall.is_none() || coming > 0) {
        return None;
    }
    if satisfied && order_effect::lacks_its_placement(order) {
        return Some(plan_changed(id, order));
    }
    let outcome = if ready.is_empty() {
        let refusal = order
            .shortfall
            .clone()
            .expect("not satisfied without a reason");
        Outcome::Refused {
            refusal,
            plan: order.plan.clone(),
        }
    } else {
        let shares = |replica: &ReplicaId| (*replica, pool.replicas[replica].shares.clone());
        let shortfall = order.shortfall.clone().filter(|_| !satisfied);
        let room = |_: &Refusal| {
            let requirements = requirements_of(pool, load, order.since, id);
            fit_when_empty(pool, &requirements, REPLICAS_MAX)
        };
        Outcome::Loaded(LoadResult {
            wanted: order.replicas,
            ready: ready.iter().map(shares).collect(),
            evicted: order.evicted.clone(),
            fits_when_empty: shortfall.as_ref().map(room),
            shortfall,
        })
    };
    Some(Decision::Settle { order: id, outcome })
}

/// Picks the replica to remove if there are more than ordered: replicas that are not ready first, then the least used.
fn surplus(pool: &Pool, model: ModelId, wanted: usize, ready: &[ReplicaId]) -> Option<Decision> {
    let model = &pool.models[&model];
    // Replicas on nodes whose time ends have successors for a while (N7).
    let live = pool.staying(model);
    if live + model.planned.len() > wanted
        && let Some(&load) = model.planned.last()
    {
        return Some(Decision::Abandon { load });
    }
    if live <= wanted {
        return None;
    }
    let reason = StopReason::Surplus;
    let here = |id: &&ReplicaId| {
        let replica = &pool.replicas[*id];
        !pool.is_silent(replica) && !pool.is_moving(replica)
    };
    let loading = |id: &&ReplicaId| matches!(pool.replicas[*id].phase, Phase::Launching { .. });
    let mut newest_first = model.replicas.iter().rev().filter(here);
    if let Some(&replica) = newest_first.find(loading) {
        return Some(Decision::Stop { replica, reason });
    }
    let least_used = |id: &&ReplicaId| (pool.replicas[*id].in_flight, core::cmp::Reverse(**id));
    let &replica = ready.iter().filter(here).min_by_key(least_used)?;
    let deadline = Some(pool.now + pool.limits.unload_drain);
    Some(Decision::Drain(Drain {
        replica,
        deadline,
        reason,
        only_if_idle: false,
        for_load: None,
    }))
}

fn next_of_removal(pool: &Pool, id: OrderId, order: &Order) -> Option<Decision> {
    for &replica in &order.targets {
        let target = &pool.replicas[&replica];
        // The node is unreachable. It comes back or is declared gone (N2).
        if pool.is_silent(target) {
            continue;
        }
        let reason = match &order.command {
            Command::Unload { .. } => StopReason::Unload { order: id },
            Command::Cleanup { .. } => StopReason::Cleanup { order: id },
            Command::Reset => StopReason::Reset { order: id },
            Command::Cordon { device, .. } => StopReason::Cordoned {
                device: pool.device_name(*device),
                order: id,
            },
            Command::DrainNode { node, .. } => StopReason::NodeDrained {
                node: pool.node_name(*node),
                order: id,
            },
            _ => StopReason::Shutdown,
        };
        match &target.phase {
            // Its waiting requests would only cause another load, so they are served first.
            Phase::Launching { .. } if target.leave_when_served.is_some() => {}
            Phase::Launching { .. } => return Some(Decision::Stop { replica, reason }),
            Phase::Ready { .. } if target.leave_when_served.is_some() => {}
            Phase::Ready { .. } => {
                let only_if_idle = matches!(
                    order.command,
                    Command::Cleanup {
                        scope: crate::types::event::CleanupScope::Idle,
                        ..
                    }
                );
                let deadline = order.drain_until;
                return Some(Decision::Drain(Drain {
                    replica,
                    deadline,
                    reason,
                    only_if_idle,
                    for_load: None,
                }));
            }
            Phase::Draining {
                deadline,
                closed: true,
                for_load,
                ..
            } => {
                let later =
                    deadline.is_none_or(|at| order.drain_until.is_some_and(|until| at > until));
                if for_load.is_some() || later {
                    let deadline = (*deadline).into_iter().chain(order.drain_until).min();
                    return Some(Decision::Drain(Drain {
                        replica,
                        deadline,
                        reason,
                        only_if_idle: false,
                        for_load: None,
                    }));
                }
            }
            // It has nothing to finish.
            Phase::Asleep { .. } | Phase::Parking { .. } => {
                return Some(Decision::Stop { replica, reason });
            }
            Phase::Draining { .. } | Phase::Stopping { .. } => {}
        }
    }
    if !order.targets.is_empty() {
        return None;
    }
    let replicas = order.affected.clone();
    let outcome = match order.command {
        Command::Unload { .. } => Outcome::Unloaded { replicas },
        Command::Cordon { .. } => Outcome::Cordoned { replicas },
        Command::DrainNode { .. } => Outcome::NodeDrained { replicas },
        _ => Outcome::Cleaned { replicas },
    };
    Some(Decision::Settle { order: id, outcome })
}

/// The model's load order, if it still lacks a replica, with what that replica needs.
pub(crate) fn load_to_place(pool: &Pool, model: ModelId) -> Option<(OrderId, Requirements)> {
    pool.orders.iter().find_map(|(&id, order)| {
        let load = order
            .load()
            .filter(|load| load.model == model && order.shortfall.is_none())?;
        let known = &pool.models[&load.model];
        let coming = pool.live(known) + known.planned.len() + pool.expected_back(model);
        let missing = coming < order.replicas as usize;
        missing.then(|| (id, requirements_of(pool, load, order.since, id)))
    })
}

pub(crate) fn requirements_of(
    pool: &Pool,
    load: &LoadOrder,
    since: Time,
    order: OrderId,
) -> Requirements {
    let mut requirements =
        Requirements::new(pool, load.model, since).over_devices(pool, load.devices);
    // Only the stored values count: once the lease has ended or another was set, the model has one priority for its replicas and
    // for those still to be loaded.
    let kept = pool.orders.get(&order).is_some_and(|order| order.saved);
    if !kept {
        requirements.priority = load.priority.unwrap_or(requirements.priority);
    }
    requirements.forced_by = load.force.then_some(order);
    requirements
}

fn order_deadline(pool: &Pool, order: &Order) -> Time {
    let Command::Load(load) = &order.command else {
        return Time(u64::MAX);
    };
    let model = &pool.models[&load.model];
    // A fetch has no deadline; the load that follows has one.
    if model.fetch.is_some() {
        return Time(u64::MAX);
    }
    let since = order.since.max(model.fetched_at.unwrap_or_default());
    since + model.spec.queue_timeout + model.spec.load_deadline
}

pub(crate) fn deadlines(pool: &Pool) -> impl Iterator<Item = Time> + '_ {
    pool.orders
        .values()
        .filter(|order| order.load().is_some())
        .map(|order| order_deadline(pool, order))
        .filter(|at| *at < Time(u64::MAX))
}

impl Pool {
    /// Without a replica count, the order keeps the current number.
    pub(crate) fn replicas_wanted(&self, load: &LoadOrder) -> u32 {
        let model = &self.models[&load.model];
        let wanted = load.replicas.unwrap_or_else(|| {
            let count = order_refusals::coming(self, load.model);
            u32::try_from(count)
                .unwrap_or(REPLICAS_MAX)
                .clamp(1, REPLICAS_MAX)
        });
        wanted.min(model.spec.replicas_max.unwrap_or(REPLICAS_MAX))
    }
}
