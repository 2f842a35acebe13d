//! The one place that chooses. `next` reads the facts and gives one decision, or none; it changes
//! nothing. Cheap answers first, then the life of replicas, then room for who is first in line.

use super::action::{GateMode, Share};
use super::decision::{Decision, Drain};
use super::ids::{ReplicaId, Time};
use super::orders;
use super::reason::{Refusal, StopReason};
use super::replica::Phase;
use super::room;
use super::state::Pool;

/// The next decision that the facts call for.
pub(super) fn next(pool: &Pool) -> Option<Decision> {
    overdue(pool)
        .or_else(|| answer_waiters(pool))
        .or_else(|| lives(pool))
        .or_else(|| promises(pool))
        .or_else(|| orders::next(pool))
        .or_else(|| room::make_room(pool))
        .or_else(|| finish(pool))
}

fn overdue(pool: &Pool) -> Option<Decision> {
    if let Some(&(deadline, ticket)) = pool.deadlines.first()
        && deadline <= pool.now
    {
        let waiting = &pool.tickets[&ticket];
        let refusal = Refusal::TimedOut {
            waited: pool.now.since(waiting.since),
            retry: pool.expected_wait(waiting.model),
        };
        return Some(Decision::Refuse { ticket, refusal });
    }
    let &(expires, model) = pool.leases.first()?;
    (expires <= pool.now).then_some(Decision::EndLease { model })
}

/// Seats for those who wait, refusals for those who wait in vain, and gates that respect the queue.
fn answer_waiters(pool: &Pool) -> Option<Decision> {
    for &id in &pool.waited_for {
        let model = &pool.models[&id];
        let first = model.queue.first().expect("somebody waits for it");
        let seats = model.spec.seats_per_replica.max(1);
        let open = model
            .replicas
            .iter()
            .filter(|replica| {
                let replica = &pool.replicas[replica];
                matches!(replica.phase, Phase::Ready { .. }) && replica.in_flight < seats
            })
            .min_by_key(|replica| (pool.replicas[replica].in_flight, **replica));
        if let Some(&replica) = open {
            return Some(Decision::Grant {
                ticket: first,
                replica,
            });
        }
        if pool.live(model) > 0 || !model.planned.is_empty() {
            continue;
        }
        let refusal = if pool.closing.is_some() {
            Refusal::ShuttingDown
        } else if model.removed {
            Refusal::UnknownModel
        } else if model.failures >= pool.limits.failures_max {
            let message = model.last_failure.clone().unwrap_or_default();
            Refusal::Quarantined {
                failures: model.failures,
                message,
            }
        } else if let Some(until) = model.cooling_until.filter(|until| *until > pool.now) {
            let message = model.last_failure.clone().unwrap_or_default();
            Refusal::Cooling {
                failures: model.failures,
                message,
                retry: until.since(pool.now),
            }
        } else {
            continue;
        };
        return Some(Decision::Refuse {
            ticket: first,
            refusal,
        });
    }
    let wrong_gate = |(&id, replica): (&ReplicaId, &super::replica::Replica)| {
        if !matches!(replica.phase, Phase::Ready { .. }) {
            return None;
        }
        let queued = pool.waited_for.contains(&replica.model);
        let gate = if queued {
            GateMode::Queued
        } else {
            GateMode::Open
        };
        (replica.gate != Some(gate)).then_some(Decision::SetGate { replica: id, gate })
    };
    pool.replicas.iter().find_map(wrong_gate)
}

/// What time and the gates bring about in the life of each replica.
fn lives(pool: &Pool) -> Option<Decision> {
    pool.replicas
        .iter()
        .find_map(|(&id, replica)| match &replica.phase {
            Phase::Launching { since, deadline } if *deadline <= pool.now => {
                let reason = StopReason::LoadTimedOut {
                    deadline: deadline.since(*since),
                };
                Some(Decision::Stop {
                    replica: id,
                    reason,
                })
            }
            Phase::Launching { .. } if pool.models[&replica.model].removed => {
                Some(Decision::Stop {
                    replica: id,
                    reason: StopReason::Removed,
                })
            }
            Phase::Launching { .. } => None,
            Phase::Ready { .. } => leaves_by_itself(pool, id),
            Phase::Draining {
                closed,
                deadline,
                reason,
                for_load,
                ..
            } => {
                let due = deadline.is_some_and(|deadline| deadline <= pool.now);
                if *closed && (replica.in_flight == 0 || due) {
                    return Some(Decision::Stop {
                        replica: id,
                        reason: reason.clone(),
                    });
                }
                let abandoned = for_load.is_some_and(|load| !pool.planned.contains_key(&load));
                // Another load may have been promised the memory meanwhile; then it goes on draining.
                let room = |share: &Share| pool.devices[&share.device].free_later() >= share.bytes;
                let reopens = *closed && abandoned && replica.shares.iter().all(room);
                reopens.then_some(Decision::Reopen { replica: id })
            }
            Phase::Stopping { .. } => None,
        })
}

fn leaves_by_itself(pool: &Pool, id: ReplicaId) -> Option<Decision> {
    let replica = &pool.replicas[&id];
    let model = &pool.models[&replica.model];
    if model.removed {
        let deadline = Some(pool.now + pool.limits.unload_drain);
        let reason = StopReason::Removed;
        return Some(Decision::Drain(Drain {
            replica: id,
            deadline,
            reason,
            only_if_idle: false,
            for_load: None,
        }));
    }
    if let Some((reason, _)) = &replica.leave_when_served
        && (model.queue.is_empty() || replica.entered > 0)
    {
        let deadline = Some(pool.now + pool.limits.unload_drain);
        let reason = reason.clone();
        return Some(Decision::Drain(Drain {
            replica: id,
            deadline,
            reason,
            only_if_idle: false,
            for_load: None,
        }));
    }
    let due = keep_hot_ends(pool, id)?;
    (due <= pool.now).then(|| {
        let idle = pool
            .now
            .since(replica.idle_since().expect("keep-hot ends for an idle one"));
        let reason = StopReason::KeepHot { idle };
        Decision::Drain(Drain {
            replica: id,
            deadline: None,
            reason,
            only_if_idle: true,
            for_load: None,
        })
    })
}

/// When keep-hot would unload it (L2); nothing while it is busy, waited for, leased or always-hot.
pub(super) fn keep_hot_ends(pool: &Pool, id: ReplicaId) -> Option<Time> {
    let replica = &pool.replicas[&id];
    let idle_since = replica.idle_since()?;
    let model = &pool.models[&replica.model];
    let leased = model.over.expires.is_some_and(|expires| expires > pool.now);
    if pool.is_protected(replica.model) || !model.queue.is_empty() || leased {
        return None;
    }
    Some(idle_since + model.keep_hot())
}

/// Loads that have been decided: started when their room is there, dropped when nobody wants them.
fn promises(pool: &Pool) -> Option<Decision> {
    pool.planned.iter().find_map(|(&load, planned)| {
        if !wanted(pool, load) {
            return Some(Decision::Abandon { load });
        }
        let room = |share: &Share| pool.devices[&share.device].free_now() >= share.bytes;
        if planned.shares.iter().all(room) {
            return Some(Decision::Launch { load });
        }
        // Nothing that leaves will make the room any more: decide anew from measured numbers.
        let coming = |share: &Share| {
            let device = &pool.devices[&share.device];
            device.free_now() + device.leaving >= share.bytes
        };
        (!planned.shares.iter().all(coming)).then_some(Decision::Abandon { load })
    })
}

fn wanted(pool: &Pool, load: ReplicaId) -> bool {
    let planned = &pool.planned[&load];
    let model = &pool.models[&planned.model];
    if model.removed || pool.closing.is_some() {
        return false;
    }
    let by_order = planned
        .order
        .is_some_and(|order| pool.orders.contains_key(&order));
    // Requests and protection want one replica, not each of several that an order once planned.
    let only = pool.live(model) == 0 && model.planned.first() == Some(&load);
    let standing = pool.is_protected(planned.model) && !model.kept_away();
    by_order || model.restoring || (only && (standing || !model.queue.is_empty()))
}

fn finish(pool: &Pool) -> Option<Decision> {
    let empty = pool.replicas.is_empty() && pool.planned.is_empty();
    (pool.closing.is_some() && empty && !pool.finished).then_some(Decision::Finish)
}

/// When the facts next change by themselves.
pub(super) fn wake(pool: &Pool) -> Option<Time> {
    let tickets = pool.deadlines.first().map(|(at, _)| *at);
    let leases = pool.leases.first().map(|(at, _)| *at);
    let replicas = pool
        .replicas
        .iter()
        .filter_map(|(&id, replica)| match &replica.phase {
            Phase::Launching { deadline, .. } => Some(*deadline),
            Phase::Ready { .. } => keep_hot_ends(pool, id),
            Phase::Draining { deadline, .. } => *deadline,
            Phase::Stopping { .. } => None,
        });
    let retries = pool
        .blocked
        .values()
        .filter(|blocked| blocked.changes == pool.changes)
        .filter_map(|blocked| blocked.retry);
    let cooling = pool
        .hot
        .iter()
        .chain(&pool.restoring)
        .filter_map(|id| pool.models[id].cooling_until);
    let later = |at: &Time| *at > pool.now;
    tickets
        .into_iter()
        .chain(leases)
        .chain(replicas)
        .chain(retries)
        .chain(cooling.filter(later))
        .chain(orders::deadlines(pool))
        // A deadline that passed in this very step has been dealt with, or waits for an answer.
        .filter(later)
        .min()
}
