//! Makes room for the first pending replica. Part of `plan::next`; changes nothing.
//!
//! Examines demands in rank order: new ones and, if memory may have become free somewhere, blocked ones. A demand that needs at
//! least as much as a blocked one and ranks no better is blocked without planning. A long queue therefore costs a few plans instead
//! of one per model. Blocking a demand changes no other fact, so all blocked demands of an examination are returned as one
//! decision.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::facts::demand_index::PendingReplica;
use crate::facts::state::Pool;
use crate::plan::disk_queues::Queues;
use crate::plan::{
    demands, explaining, node_demand, obstacles, order_effect, order_refusals, place,
};
use crate::types::decision::{Decision, Plan, Prospect, Victim};
use crate::types::ids::{Bytes, ModelId, Priority, Span, Time};
use crate::types::key_seats::LeastServed;
use crate::types::objective::EvictsFrom;
use crate::types::policy::Part;
use crate::types::rank::{Class, DemandRank};

/// A victim that is idle now may be serving when its place is needed. This allows time for this many requests.
const REQUESTS_OF_VICTIM: u64 = 2;

pub(crate) fn make_room(pool: &Pool) -> Option<Decision> {
    if pool.service.is_closing() {
        return None;
    }
    let agenda = &pool.agenda;
    if agenda.grown().is_empty() && !agenda.grown_everywhere() {
        if !pool.demand_index.has_fresh() && !pool.agenda.promises_changed() {
            return None;
        }
        let queues = Queues::new(pool);
        let mut fresh = pool.demand_index.fresh().iter();
        let next = fresh.find(|rank| !queues.holds_back(pool, &pool.demand_index.all()[*rank]))?;
        return Some(decide(pool, next, &pool.demand_index.all()[next]));
    }
    let queues = Queues::new(pool);
    let mut blocked = Blocking::default();
    let mut demands = Vec::new();
    for (rank, pending) in pool.demand_index.all() {
        let decision = match pending.blocked {
            None if queues.holds_back(pool, pending) => continue,
            None => Some(decide(pool, rank, pending)),
            Some(known) if known.postponed => continue,
            Some(known) if known.growths == pool.demand_index.growths() => None,
            Some(_) if queues.holds_back(pool, pending) => Some(Decision::Defer { rank: *rank }),
            // An administrator waits for the response, so a permanent failure is refused immediately.
            Some(_) if rank.class == Class::Order => Some(decide(pool, rank, pending)),
            Some(_) if blocked.covers(pool, pending) => continue,
            // A lesser blocked demand covered it when memory grew before, but that demand has since gone.
            Some(known) if known.growths < pool.demand_index.growths_before() => {
                Some(decide(pool, rank, pending))
            }
            Some(_) if agenda.grown_everywhere() => Some(decide(pool, rank, pending)),
            // A node with room reduces the number of requested nodes.
            Some(_) if node_demand::counts_nodes(pool, &pending.requirements) => {
                Some(decide(pool, rank, pending))
            }
            Some(_) if place::fits_on(pool, &pending.requirements, agenda.grown()) => {
                Some(decide(pool, rank, pending))
            }
            Some(known) => {
                let here = obstacles::retry_on(pool, &pending.requirements, agenda.grown());
                let retry = known.retry.into_iter().chain(here).min();
                Some(block(rank, retry))
            }
        };
        match decision {
            None => {}
            Some(Decision::Block { demands: more }) => demands.extend(more),
            Some(other) if demands.is_empty() => return Some(other),
            // Decided again after these demands are blocked.
            Some(_) => break,
        }
        blocked.add(pool, pending);
    }
    (!demands.is_empty()).then_some(Decision::Block { demands })
}

fn block(rank: &DemandRank, retry: Option<Time>) -> Decision {
    let demands = vec![(*rank, retry)];
    Decision::Block { demands }
}

fn decide(pool: &Pool, rank: &DemandRank, pending: &PendingReplica) -> Decision {
    let plan = place::place(pool, &pending.requirements);
    let fits = plan.refusal.is_none();
    let decision = decide_by(pool, rank, pending, plan);
    if let Some(order) = pending.order
        && let Some(refusal) = order_effect::decided_otherwise(pool, order, fits, &decision)
    {
        return Decision::Shorten { order, refusal };
    }
    decision
}

fn decide_by(pool: &Pool, rank: &DemandRank, pending: &PendingReplica, plan: Plan) -> Decision {
    let model = rank.model;
    if plan.wakes.is_none()
        && let Some(message) = pool.models[&model].spec.no_program.clone()
    {
        // Its running replicas do not need the program.
        return match rank.class {
            Class::Growth => block(rank, None),
            _ => Decision::FailLoad { model, message },
        };
    }
    if let Some(until) = waits_for_nodes(pool, rank, pending, &plan) {
        return block(rank, until);
    }
    // Nodes for batches are requested last (`batch_nodes`).
    if rank.class != Class::Batch
        && let Some(decision) = node_demand::instead(pool, rank, &pending.requirements, &plan)
    {
        return decision;
    }
    // Devices may have been added or have grown since the model was found not to fit.
    if plan.fetches_for.is_some() && plan.prospect != Prospect::Never {
        let why = demands::reason(pool, rank, pending);
        return match pool.models[&model].fetch {
            None => Decision::Fetch { model, why },
            Some(_) => block(rank, None),
        };
    }
    let Some(refusal) = plan.refusal.clone() else {
        if let Some(until) = postponed_until(pool, rank, &plan) {
            return Decision::Postpone { rank: *rank, until };
        }
        return Decision::Promise {
            explanation: explaining::of_plan(pool, &pending.requirements, &plan).map(Box::new),
            plan: Box::new(plan),
            why: demands::reason(pool, rank, pending),
            order: pending.order,
        };
    };
    if rank.class == Class::Batch {
        return block(rank, plan.retry);
    }
    let refusal = node_demand::explained(pool, &pending.requirements, refusal);
    let waits = match rank.class {
        Class::Order => {
            let order = pending.order.expect("an order's want names it");
            plan.prospect <= Prospect::Soon && order_refusals::waits_for_room(pool, order)
        }
        Class::Request | Class::Standing | Class::Growth | Class::Batch => {
            plan.prospect <= Prospect::WhenOthersLeave
        }
    };
    if !waits {
        match rank.class {
            Class::Order => {
                let order = pending.order.expect("an order's want names it");
                return Decision::Shorten { order, refusal };
            }
            Class::Request => {
                let ticket = pool.next_waiting(model).expect("a request waits");
                return Decision::Refuse { ticket, refusal };
            }
            Class::Standing if pool.models[&model].is_restoring() && !pool.nodes_may_join() => {
                return Decision::GiveUpWish { model, refusal };
            }
            Class::Standing | Class::Growth | Class::Batch => {}
        }
    }
    let node_retry = node_demand::retry(pool, &pending.requirements);
    block(rank, plan.retry.into_iter().chain(node_retry).min())
}

/// Returns the time until which the demand waits for nodes that are expected back, or `None` inside if only an event ends the wait
/// (N8). A demand that fits without evicting does not wait, and neither does an administrator's load that can only evict.
fn waits_for_nodes(
    pool: &Pool,
    rank: &DemandRank,
    pending: &PendingReplica,
    plan: &Plan,
) -> Option<Option<Time>> {
    let fits_now = plan.refusal.is_none() && plan.victims.is_empty();
    if fits_now || pending.requirements.forced_by.is_some() {
        return None;
    }
    let is_copy = match rank.class {
        Class::Standing => pool.moves_lacking(rank.model) == 0,
        Class::Batch => true,
        Class::Order | Class::Request | Class::Growth => false,
    };
    if is_copy && pool.is_held_away(rank.model) {
        return Some(None);
    }
    if rank.class == Class::Order && pool.node_demand.shapes().is_empty() {
        return None;
    }
    pool.nodes_return_by().map(Some)
}

/// The time until which the victims stay because the load's disk or link is busy. It leaves the slowest victim just enough time to
/// finish its requests and to stop. `None` if they leave now.
fn postponed_until(pool: &Pool, rank: &DemandRank, plan: &Plan) -> Option<Time> {
    let late = pool.limits.policy.has(Part::LateEviction);
    if !late || rank.class != Class::Request || plan.wakes.is_some() {
        return None;
    }
    let node = pool.devices[&plan.placement.first()?.device].node;
    let free_at = pool.disk_free_at(plan.model, node)?;
    let leaves_in = |victim: &Victim| {
        let model = &pool.models[&victim.model];
        let serving = model
            .drain_takes
            .max(model.requests_take(REQUESTS_OF_VICTIM));
        serving + model.stop_takes
    };
    let stays = plan
        .victims
        .iter()
        .filter(|victim| !victim.planned && !victim.asleep);
    let longest = stays.map(leaves_in).max()?;
    let until = Time(free_at.0.saturating_sub(longest.0));
    (until > pool.now).then_some(until)
}

/// The blocked demands, reduced to the least demanding.
#[derive(Default)]
struct Blocking {
    least: Vec<Least>,
}

struct Least {
    model: ModelId,
    forced: bool,
    priority: Priority,
    since: Time,
    /// Longer waits mean that turns of replicas in the way have less left (P3).
    waits_since: Time,
    /// A longer swap means longer turns of the replicas in the way (P3), and shorter ones if they end in time for a target.
    swap: Span,
    has_target: bool,
    /// Idle replicas stay for their next requests until this time, and for a shorter time the more requests wait (P3).
    patience_ends: Time,
    crowd: u32,
    /// Replicas of equal priority stay until this time.
    evicts_from: EvictsFrom,
    /// Replicas leave sooner for a key that has been served less (P9).
    served: Option<LeastServed>,
    nodes: u32,
    devices_per_node: u32,
    bytes: Bytes,
    /// The least and the most that it takes on a host. Mapped weights take less where the host has less.
    host_least: Bytes,
    host_most: Bytes,
}

impl Least {
    fn new(pool: &Pool, pending: &PendingReplica) -> Option<Least> {
        let requirements = &pending.requirements;
        let model = &pool.models[&requirements.model];
        // A model that only some devices can serve, or that needs more on some of them, proves nothing about other models. The same
        // holds for a model that only has to be woken.
        let wakes = model.replicas.iter().any(|id| pool.replicas.is_asleep(*id));
        let here = !model.spec.absent;
        let plain =
            here && model.spec.allowed.is_none() && requirements.by_kind.is_empty() && !wakes;
        plain.then_some(Least {
            model: requirements.model,
            forced: requirements.forced_by.is_some(),
            priority: requirements.priority,
            since: requirements.since,
            waits_since: model.rent.since(requirements.since),
            swap: pool.ready_in(model),
            has_target: pool.limits.targets.contains_key(&requirements.priority),
            patience_ends: requirements.since + model.patience(),
            crowd: requirements.crowd,
            evicts_from: requirements.evicts_from,
            served: requirements.least_served,
            nodes: requirements.nodes,
            devices_per_node: requirements.devices_per_node(),
            bytes: requirements.bytes,
            host_least: model.spec.host_bytes.saturating_sub(model.spec.host_mapped),
            host_most: model.spec.host_bytes,
        })
    }
}

impl Blocking {
    fn add(&mut self, pool: &Pool, pending: &PendingReplica) {
        // A model does not evict itself, but others might: while it has replicas, it proves nothing about others.
        let model = pending.requirements.model;
        // A load for batches may take less than others.
        if pending.requirements.batch.is_some() {
            return;
        }
        if !pool.models[&model].replicas.is_empty() || pool.nodes.expected(model).is_some() {
            return;
        }
        // A demand that waits for a node proves nothing about demands that need another size, or evict.
        if !node_demand::awaited(pool, &pending.requirements).is_empty() {
            return;
        }
        self.least.extend(Least::new(pool, pending));
    }

    fn covers(&self, pool: &Pool, pending: &PendingReplica) -> bool {
        let Some(demand) = Least::new(pool, pending) else {
            return false;
        };
        self.least.iter().any(|least| {
            // An always-hot model's requests wait for the place that the model itself waits for (N7).
            let is_same = least.model == demand.model;
            least.forced >= demand.forced
                && least.priority >= demand.priority
                && least.since <= demand.since
                && (is_same || least.waits_since <= demand.waits_since)
                && least.swap <= demand.swap
                && (!demand.has_target || least.swap == demand.swap)
                && least.patience_ends <= demand.patience_ends
                && least.crowd >= demand.crowd
                && least.evicts_from.is_no_later_than(demand.evicts_from)
                && (is_same || is_served_no_more(least.served, demand.served))
                && least.nodes <= demand.nodes
                && least.devices_per_node <= demand.devices_per_node
                && least.bytes <= demand.bytes
                && (is_same || least.host_most <= demand.host_least)
        })
    }
}

/// Returns true if replicas that stay for the first key stay for the second one. Only siblings in the tree of groups compare.
fn is_served_no_more(least: Option<LeastServed>, other: Option<LeastServed>) -> bool {
    match (least, other) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(least), Some(other)) => {
            least.key == other.key || (least.home == other.home && least.level <= other.level)
        }
    }
}

#[cfg(test)]
mod tests;
