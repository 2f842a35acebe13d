//! The only code that makes choices. `next` reads the facts and returns one decision or none; it changes nothing. Cheap decisions
//! come first, then the phases of replicas, then memory for the first demand in rank order.
//! One file because the order of the choices is the rule and is read from top to bottom.

use crate::facts::state::Pool;
use crate::plan::keep_hot::{counts_from_devices, keep_hot_ends};
use crate::plan::{
    batch_nodes, consolidation, fetches, load_planning, moving, node_demand, orders, parking,
    stall, together,
};
use crate::types::action::GateMode;
use crate::types::decision::{Decision, Drain};
use crate::types::ids::{Priority, ReplicaId, Time};
use crate::types::rank::LaunchRank;
use crate::types::reason::{LoadReason, Refusal, StopReason};
use crate::types::replica::{Phase, Replica};
use crate::types::share::Share;

/// Returns the next decision that the facts call for.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    overdue(pool)
        .or_else(|| respond_to_waiters(pool))
        .or_else(|| lives(pool))
        .or_else(|| parking::under_pressure(pool))
        .or_else(|| promises(pool))
        .or_else(|| orders::next(pool))
        .or_else(|| fetches::next(pool))
        .or_else(|| consolidation::next(pool))
        .or_else(|| node_demand::give_up(pool))
        .or_else(|| load_planning::make_room(pool))
        .or_else(|| batch_nodes::next(pool))
        .or_else(|| node_demand::next(pool))
        .or_else(|| orders::placed_by_others(pool))
        .or_else(|| finish(pool))
}

fn overdue(pool: &Pool) -> Option<Decision> {
    if let Some((deadline, ticket)) = pool.queues.first_deadline()
        && deadline <= pool.now
    {
        let waiting = &pool.queues[&ticket];
        let refusal = Refusal::TimedOut {
            waited: pool.now.since(waiting.since),
            retry: pool.expected_wait(waiting.model),
            stall: stall::find(pool, waiting.model, waiting.since),
        };
        return Some(Decision::Refuse { ticket, refusal });
    }
    if let Some((expires, model)) = pool.models.first_lease()
        && expires <= pool.wall()
    {
        return Some(Decision::EndLease { model });
    }
    if let Some(decision) = moving::begins(pool) {
        return Some(decision);
    }
    let patience = pool.limits.release_wait;
    pool.devices.settling().iter().find_map(|&device| {
        let first = pool.devices[&device].settling_since()?;
        (first + patience <= pool.now).then_some(Decision::GiveUpSettling { device })
    })
}

/// Seats for waiting requests, refusals for requests that would wait in vain, and gates that follow the queue.
fn respond_to_waiters(pool: &Pool) -> Option<Decision> {
    for &id in pool.agenda.models() {
        if !pool.queues.wait_for(id) {
            continue;
        }
        let model = &pool.models[&id];
        let first = pool.next_waiting(id).expect("its queue is not empty");
        let seats = model.spec.seats_per_replica.max(1);
        let open = model
            .replicas
            .iter()
            .filter(|replica| {
                let replica = &pool.replicas[replica];
                matches!(replica.phase, Phase::Ready { .. })
                    && replica.in_flight < seats
                    && !pool.is_silent(replica)
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
        let refusal = if pool.service.is_closing() {
            Refusal::ShuttingDown
        } else if model.removed {
            Refusal::UnknownModel
        } else if pool.is_quarantined(model) {
            let message = model.last_failure.clone().unwrap_or_default();
            Refusal::Quarantined {
                failures: model.failures,
                crashes: model.crashes,
                message,
            }
        } else if let Some(until) = model.cooling_until.filter(|until| *until > pool.now) {
            let message = model.last_failure.clone().unwrap_or_default();
            Refusal::Cooling {
                failures: model.failures,
                crashes: model.crashes,
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
    let wrong_gate = |&id: &ReplicaId| {
        let replica = pool.replicas.get(&id)?;
        if !matches!(replica.phase, Phase::Ready { .. }) {
            return None;
        }
        let queued = pool.queues.wait_for(replica.model) || pool.is_silent(replica);
        let gate = if queued {
            GateMode::Queued
        } else {
            GateMode::Open
        };
        (replica.gate != Some(gate)).then_some(Decision::SetGate { replica: id, gate })
    };
    pool.agenda.replicas().iter().find_map(wrong_gate)
}

/// Phase changes caused by time and gates.
fn lives(pool: &Pool) -> Option<Decision> {
    pool.agenda.replicas().iter().find_map(|&id| life(pool, id))
}

fn life(pool: &Pool, id: ReplicaId) -> Option<Decision> {
    let replica = pool.replicas.get(&id)?;
    let stop = |reason: StopReason| {
        Some(Decision::Stop {
            replica: id,
            reason,
        })
    };
    // The node is unreachable and the replica's state unknown (N2).
    if pool.is_silent(replica) {
        return None;
    }
    let failed = on_failed_device(pool, id);
    let unwoken = replica
        .parked
        .as_ref()
        .and_then(|parked| parked.wake_failure.as_ref());
    if let (Phase::Launching { .. }, None, Some(message)) = (&replica.phase, &failed, unwoken) {
        let message = message.clone();
        return stop(StopReason::DidNotWake { message });
    }
    if failed.is_none()
        && let Some(decision) = moving::leaves(pool, id)
    {
        return Some(decision);
    }
    match (&replica.phase, failed) {
        (Phase::Stopping { .. }, _) => None,
        (Phase::Asleep { .. }, Some((reason, _))) => stop(reason),
        (Phase::Asleep { since, .. }, None) => {
            let slept = pool.now.since(*since);
            let model = &pool.models[&replica.model];
            if model.removed || model.spec.parking.is_none() {
                return stop(StopReason::Removed);
            }
            if pool.is_outdated(id) {
                return stop(StopReason::Changed);
            }
            let wanted = pool.planned.contains_key(&id);
            let long = slept >= pool.limits.keep_asleep && !wanted;
            long.then_some(Decision::Stop {
                replica: id,
                reason: StopReason::SleptLong { slept },
            })
        }
        (Phase::Launching { .. }, Some((reason, _))) | (_, Some((reason, true))) => stop(reason),
        (Phase::Launching { since, deadline }, None) if *deadline <= pool.now => {
            stop(StopReason::LoadTimedOut {
                deadline: deadline.since(*since),
            })
        }
        (Phase::Launching { .. }, None) if pool.models[&replica.model].removed => {
            stop(StopReason::Removed)
        }
        (Phase::Launching { .. }, None) if pool.is_outdated(id) => stop(StopReason::Changed),
        (Phase::Launching { .. }, None) if pool.is_spared(id) => stop(StopReason::Surplus),
        (Phase::Launching { .. }, None) => None,
        (Phase::Ready { .. }, Some((reason, false))) => Some(Decision::Drain(Drain {
            replica: id,
            deadline: Some(pool.now + pool.limits.unload_drain),
            reason,
            only_if_idle: false,
            for_load: None,
        })),
        (Phase::Ready { .. }, None) => {
            together::leaves(pool, id).or_else(|| leaves_by_itself(pool, id))
        }
        (
            Phase::Parking {
                deadline, reason, ..
            },
            _,
        ) => (*deadline <= pool.now).then(|| Decision::Stop {
            replica: id,
            reason: reason.clone(),
        }),
        (
            Phase::Draining {
                closed,
                deadline,
                reason,
                for_load,
                ..
            },
            _,
        ) => {
            let due = deadline.is_some_and(|deadline| deadline <= pool.now);
            if *closed && (replica.in_flight == 0 || due) {
                return parking::park(pool, id, reason).or_else(|| stop(reason.clone()));
            }
            let abandoned = for_load.is_some_and(|load| !pool.planned.contains_key(&load));
            // If another load has been promised the memory in the meantime, the replica continues to drain. It keeps the memory
            // that it holds beyond its share.
            let room = |share: &Share| {
                let more = pool.excess(id, share.device);
                pool.free_later(share.device) >= share.bytes + more
            };
            let reopens = *closed && abandoned && replica.shares.iter().all(room);
            reopens.then_some(Decision::Reopen { replica: id })
        }
    }
}

/// The failure of a device on which the replica has a share, and whether it has already ended the replica (M7).
fn on_failed_device(pool: &Pool, id: ReplicaId) -> Option<(StopReason, bool)> {
    let failures = pool.replicas[&id].shares.iter().filter_map(|share| {
        let device = &pool.devices[&share.device];
        let cordon = device.cordon.as_ref().filter(|cordon| cordon.failed)?;
        Some((device, cordon))
    });
    // A lost device counts first: it leaves nothing to drain.
    let (device, cordon) = failures.min_by_key(|(device, _)| !device.lost)?;
    let reason = StopReason::DeviceFailed {
        device: device.name.clone(),
        trouble: cordon.reason.clone(),
    };
    Some((reason, device.lost))
}

fn leaves_by_itself(pool: &Pool, id: ReplicaId) -> Option<Decision> {
    let replica = &pool.replicas[&id];
    let model = &pool.models[&replica.model];
    if model.removed || pool.is_outdated(id) {
        let deadline = Some(pool.now + pool.limits.unload_drain);
        let reason = if model.removed {
            StopReason::Removed
        } else {
            StopReason::Changed
        };
        return Some(Decision::Drain(Drain {
            replica: id,
            deadline,
            reason,
            only_if_idle: false,
            for_load: None,
        }));
    }
    if pool.surplus_of(replica.model) == Some(id) {
        return Some(Decision::Drain(Drain {
            replica: id,
            deadline: Some(pool.now + pool.limits.unload_drain),
            reason: StopReason::Surplus,
            only_if_idle: false,
            for_load: None,
        }));
    }
    if let Some((reason, _)) = &replica.leave_when_served
        && (model.queue.is_empty() || !replica.is_unserved())
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
        let devices_idle = counts_from_devices(pool, id).map(|since| pool.now.since(since));
        let reason = StopReason::KeepHot { idle, devices_idle };
        Decision::Drain(Drain {
            replica: id,
            deadline: None,
            reason,
            only_if_idle: true,
            for_load: None,
        })
    })
}

/// The next time at which a decision for the replica becomes due without an event.
pub(crate) fn due_at(pool: &Pool, id: ReplicaId) -> Option<Time> {
    let replica = pool.replicas.get(&id)?;
    let usual = usually_due_at(pool, id, replica);
    usual.into_iter().chain(moving::due_at(pool, replica)).min()
}

fn usually_due_at(pool: &Pool, id: ReplicaId, replica: &Replica) -> Option<Time> {
    match &replica.phase {
        Phase::Launching { deadline, .. } => {
            let reads = replica.reads_until.filter(|until| *until > pool.now);
            Some(reads.map_or(*deadline, |until| until.min(*deadline)))
        }
        Phase::Ready { .. } => {
            let ends = keep_hot_ends(pool, id).into_iter();
            ends.chain(together::due_at(pool, replica)).min()
        }
        Phase::Draining { deadline, .. } => *deadline,
        Phase::Parking { deadline, .. } => Some(*deadline),
        Phase::Asleep { since, .. } => Some(*since + pool.limits.keep_asleep),
        Phase::Stopping { .. } => None,
    }
}

/// Drops a planned load if demand for it has ended or its memory will not become free. Starts it once the memory is free and the
/// disk or link is idle.
fn promises(pool: &Pool) -> Option<Decision> {
    if !pool.agenda.promises_changed() {
        return None;
    }
    let mut first: Option<LaunchRank> = None;
    for (&load, planned) in &pool.planned {
        let room = |share: &Share| pool.devices[&share.device].free_now() >= share.bytes;
        let coming = |share: &Share| pool.free_soon(share.device) >= share.bytes;
        let is_coming = planned.shares.iter().all(coming) && pool.host_will_have_room(load);
        if !wanted(pool, load) || !is_coming {
            return Some(Decision::Abandon { load });
        }
        let free_to_read = planned.wakes || !pool.loader_busy(load);
        let has_room = planned.shares.iter().all(room) && pool.host_has_room(load);
        let gives_way = pool.loads_only_for_batches(planned) && pool.batch_loads_wait();
        if has_room && free_to_read && !gives_way {
            let rank = launch_rank(pool, load);
            first = Some(first.map_or(rank, |known| known.min(rank)));
        }
    }
    first.map(|rank| Decision::Launch { load: rank.load })
}

fn launch_rank(pool: &Pool, load: ReplicaId) -> LaunchRank {
    let planned = &pool.planned[&load];
    let model = &pool.models[&planned.model];
    let patience = model
        .queue
        .oldest()
        .map_or(Time(u64::MAX), |ticket| pool.queues[&ticket].deadline);
    let priority: Priority = model.priority();
    LaunchRank {
        only_for_batches: pool.loads_only_for_batches(planned),
        priority: core::cmp::Reverse(priority),
        deadline: pool
            .first_in_target(planned.model)
            .map_or(patience, |(_, by)| by),
        bytes: planned.shares.iter().map(|share| share.bytes).sum(),
        load,
    }
}

fn wanted(pool: &Pool, load: ReplicaId) -> bool {
    let planned = &pool.planned[&load];
    let model = &pool.models[&planned.model];
    if model.removed || pool.service.is_closing() {
        return false;
    }
    // The weights have been deleted since, or the model now needs other devices.
    let is_outdated = planned.started_with != model.spec.started_with;
    if (model.spec.absent || is_outdated) && !planned.wakes {
        return false;
    }
    let by_order = planned
        .order
        .is_some_and(|order| pool.orders.contains_key(&order));
    // Requests and protection call for a single replica, even if an order has planned several.
    let only = pool.live(model) == 0 && model.planned.first() == Some(&load);
    let before = model.planned.iter().take_while(|id| **id != load).count();
    let live = pool.live(model);
    let grows = live > 0 && live + before < pool.scaled_to(planned.model);
    let standing = pool.is_protected(planned.model) && !model.kept_away();
    let moves = before < pool.moves_lacking(planned.model);
    let batches =
        matches!(planned.why, LoadReason::Batch { .. }) && pool.batches_call_for(planned.model);
    by_order
        || moves
        || grows
        || model.is_restoring()
        || (only && (standing || batches || !model.queue.is_empty()))
}

fn finish(pool: &Pool) -> Option<Decision> {
    // Replicas left on a silent node end there without the pool (N2).
    let ended = pool.replicas.is_empty()
        || pool
            .replicas
            .values()
            .all(|replica| pool.is_silent(replica));
    let empty = ended && pool.planned.is_empty();
    (pool.service.is_closing() && empty && !pool.service.is_finished()).then_some(Decision::Finish)
}

/// The next time at which the facts change without an event.
pub(crate) fn wake(pool: &Pool) -> Option<Time> {
    let tickets = pool.queues.first_deadline().map(|(at, _)| at);
    let lease = pool.models.first_lease();
    let lease = lease.map(|(at, _)| pool.when_wall_shows(at));
    let moves = pool.nodes.first_move().map(|(at, _)| at);
    let settling = pool.devices.settling().iter().filter_map(|device| {
        let first = pool.devices[device].settling_since()?;
        Some(first + pool.limits.release_wait)
    });
    let later = |at: &Time| *at > pool.now;
    tickets
        .into_iter()
        .chain(lease)
        .chain(moves)
        .chain(pool.refusals.wake())
        .chain(settling)
        .chain(pool.agenda.wake())
        .chain(pool.demand_index.next_retry())
        .chain(pool.next_scaling())
        .chain(node_demand::wake(pool))
        .chain(consolidation::wake(pool))
        .chain(orders::deadlines(pool))
        // A deadline that passed in this step is handled, or waits for a response.
        .filter(later)
        .min()
}
