//! Decides when a victim leaves for a load that also waits for other victims (P8). It serves until the slowest of them has nearly ended,
//! and all of them free their memory at about the same time.
//!
//! A busy victim is expected to finish after the time that its drains took, or as long as its requests have lasted already, if that
//! is longer: a request that has lasted a minute rarely ends in the next second. Then it takes as long to stop as its model's stops
//! took. A victim leaves once the slowest of the others is expected to need no longer than itself, and at the latest when the others have
//! finished. A request that it serves then delays the load by the rest of that request.

use crate::facts::state::Pool;
use crate::types::decision::{Decision, Drain, Plan, Victim};
use crate::types::ids::{ReplicaId, Span, Time};
use crate::types::policy::Part;
use crate::types::replica::{Phase, Planned, Replica};

/// A stop that was never measured counts as this long, or as the model's `stop_grace` if that is shorter.
const UNMEASURED_STOP: Span = Span::from_secs(2);
/// A victim serves on if another victim is expected to take this much longer. An idle victim serves on for any slower busy one.
const WORTH_SERVING: Span = Span::from_secs(1);

/// Returns true if the victim stays until the others of its plan have nearly ended. A victim of higher priority leaves now: it
/// yields because it is idle, and that may change. So does a busy one whose requests may be cut.
pub(crate) fn may_wait(pool: &Pool, plan: &Plan, victim: &Victim, is_forced: bool) -> bool {
    let is_possible = !victim.planned && !victim.asleep && victim.priority <= plan.priority;
    if !is_possible || !pool.limits.policy.has(Part::LateEviction) {
        return false;
    }
    if victim.busy && (is_forced || victim.priority < plan.priority) {
        return false;
    }
    let Some(replica) = pool.replicas.get(&victim.replica) else {
        return false;
    };
    // A load for batches ends now (B5).
    if matches!(replica.phase, Phase::Launching { .. }) {
        return false;
    }
    let needs = leaves_in(pool, replica);
    let others = plan.victims.iter().filter(|other| {
        let is_other = other.replica != victim.replica;
        is_other && !other.planned && !other.asleep
    });
    let others = others.filter_map(|other| Some((other.busy, pool.replicas.get(&other.replica)?)));
    let mut serves = others.map(|(is_busy, other)| {
        let last = leaves_in(pool, other);
        // The requests of a busy victim outlast an idle one: the times of both cannot be mistaken for each other.
        last >= needs + WORTH_SERVING || (is_busy && !victim.busy && last > needs)
    });
    serves.any(|serves| serves)
}

/// The decision for a ready replica that is to leave with the other victims of a load.
pub(crate) fn leaves(pool: &Pool, id: ReplicaId) -> Option<Decision> {
    let replica = &pool.replicas[&id];
    let with = replica.leaves_with.as_ref()?;
    let stays = Decision::Stay { replica: id };
    let leave = |for_load| {
        Some(Decision::Drain(Drain {
            replica: id,
            deadline: with.drain.map(|drain| pool.now + drain),
            reason: with.reason.clone(),
            only_if_idle: false,
            for_load,
        }))
    };
    let Some(planned) = pool.planned.get(&with.load) else {
        // The load has begun without this memory, or was dropped. By now, another load may count on the memory.
        let has_room = replica.shares.iter().all(|share| {
            let more = pool.excess(id, share.device);
            pool.free_later(share.device) >= share.bytes + more
        });
        return if has_room { Some(stays) } else { leave(None) };
    };
    if is_protected_now(pool, replica, planned) {
        return Some(stays);
    }
    let due = due(pool, replica, planned);
    if due <= pool.now {
        leave(Some(with.load))
    } else {
        None
    }
}

/// The time at which the replica leaves if nothing else changes.
pub(crate) fn due_at(pool: &Pool, replica: &Replica) -> Option<Time> {
    let planned = pool.planned.get(&replica.leaves_with.as_ref()?.load)?;
    Some(due(pool, replica, planned))
}

/// Returns true if the replica has been protected since the plan: by a lease, an administrator's priority, or as always-hot.
fn is_protected_now(pool: &Pool, replica: &Replica, planned: &Planned) -> bool {
    let order = planned
        .order
        .and_then(|order| pool.orders.get(&order)?.load());
    if order.is_some_and(|load| load.force) {
        return false;
    }
    let model = &pool.models[&replica.model];
    let is_above = model.priority() > pool.priority(planned.model);
    let is_leased = model.lease_left(pool.wall()).is_some();
    let is_equal = model.priority() == pool.priority(planned.model);
    pool.is_protected(replica.model) || is_above || (is_leased && is_equal)
}

/// The time to leave. The current time if no victim of the load still serves or stops.
fn due(pool: &Pool, replica: &Replica, planned: &Planned) -> Time {
    let victims = planned
        .victims
        .iter()
        .filter_map(|id| pool.replicas.get(id));
    let last = victims.filter_map(|victim| match victim.phase {
        Phase::Draining {
            since, deadline, ..
        } if victim.in_flight > 0 => Some(pool.now + finishes_in(pool, victim, since, deadline)),
        Phase::Draining { .. } => Some(pool.now + stops_in(pool, victim)),
        Phase::Stopping { since, .. } => Some(since + stops_in(pool, victim)),
        _ => None,
    });
    let needs = leaves_in(pool, replica);
    last.max()
        .map_or(pool.now, |last| Time(last.0.saturating_sub(needs.0)))
}

/// The expected time that a ready replica takes to end if its gate closes now.
fn leaves_in(pool: &Pool, replica: &Replica) -> Span {
    if replica.in_flight > 0 {
        finishes_in(pool, replica, pool.now, None)
    } else {
        stops_in(pool, replica)
    }
}

/// The expected time for which a busy victim still serves and stops.
fn finishes_in(pool: &Pool, victim: &Replica, since: Time, deadline: Option<Time>) -> Span {
    let model = &pool.models[&victim.model];
    let usual = model.drain_takes.max(model.requests_take(1));
    let left = usual.0.saturating_sub(pool.now.since(since).0);
    let lasted = pool.now.since(victim.entered_at).0;
    let serves = Span(left.max(lasted));
    let cut = deadline.map_or(serves, |deadline| deadline.since(pool.now));
    serves.min(cut) + stops_in(pool, victim)
}

/// The expected time from the order to stop a replica until it has ended.
pub(crate) fn stops_in(pool: &Pool, replica: &Replica) -> Span {
    let model = &pool.models[&replica.model];
    match model.stop_takes {
        Span::ZERO => UNMEASURED_STOP.min(model.spec.stop_grace),
        measured => measured,
    }
}
