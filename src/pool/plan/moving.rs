//! Decides what the end of a node requires for its replicas (N7): a replica drains once its successor is ready, or at the end of
//! its time if there is none. Part of `plan::next`; changes nothing.

use crate::facts::state::Pool;
use crate::plan::consolidation;
use crate::types::decision::{Decision, Drain};
use crate::types::ids::{ReplicaId, Time};
use crate::types::node::NodeTime;
use crate::types::reason::StopReason;
use crate::types::replica::{Phase, Replica};

/// The first node whose models should have begun to move.
pub(crate) fn begins(pool: &Pool) -> Option<Decision> {
    let (at, node) = pool.nodes.first_move()?;
    (at <= pool.now).then_some(Decision::MoveFrom { node })
}

pub(crate) fn leaves(pool: &Pool, id: ReplicaId) -> Option<Decision> {
    let replica = &pool.replicas[&id];
    if pool.is_emptied(replica) {
        return consolidation::leaves(pool, id);
    }
    let time = pool.time_of(replica)?;
    let reason = |has_moved: bool| {
        let node = pool.moving_node_of(replica);
        let node = node.unwrap_or_else(|| pool.node_of(replica));
        StopReason::NodeEnds {
            node: pool.node_name(node),
            has_moved,
        }
    };
    let drain = |has_moved: bool| {
        Some(Decision::Drain(Drain {
            replica: id,
            deadline: Some(time.cut()),
            reason: reason(has_moved),
            only_if_idle: false,
            for_load: None,
        }))
    };
    let stop = || {
        Some(Decision::Stop {
            replica: id,
            reason: reason(false),
        })
    };
    match &replica.phase {
        // It can no longer be woken there.
        Phase::Asleep { .. } => stop(),
        // Its waiting requests are served on other nodes.
        Phase::Launching { .. } if time.last(pool.limits.unload_drain) <= pool.now => stop(),
        Phase::Draining { deadline, .. } if deadline.is_none_or(|at| at > time.cut()) => {
            drain(false)
        }
        Phase::Ready { .. } if has_moved(pool, replica) => drain(true),
        Phase::Ready { .. } if must_close(pool, replica, time) => drain(false),
        Phase::Launching { .. }
        | Phase::Ready { .. }
        | Phase::Draining { .. }
        | Phase::Parking { .. }
        | Phase::Stopping { .. } => None,
    }
}

/// The next time at which a node's end makes a decision for the replica due.
pub(crate) fn due_at(pool: &Pool, replica: &Replica) -> Option<Time> {
    let time = pool.time_of(replica)?;
    let usual = pool.limits.unload_drain;
    let all = match &replica.phase {
        Phase::Launching { .. } => [None, Some(time.last(usual))],
        Phase::Ready { .. } => [Some(time.closes(usual)), Some(time.last(usual))],
        _ => [None, None],
    };
    let all = all.into_iter().flatten();
    all.filter(|at| *at > pool.now).min()
}

/// Returns true if as many replicas as wanted are ready on other nodes, and at least one.
pub(crate) fn has_moved(pool: &Pool, replica: &Replica) -> bool {
    let ready = pool.staying_ready(&pool.models[&replica.model]);
    ready >= pool.moves_wanted(replica.model).max(1)
}

/// Returns true if the successor is not ready and is no longer waited for. An always-hot model waits longest, as does a model whose
/// successor is on its way.
fn must_close(pool: &Pool, replica: &Replica, time: &NodeTime) -> bool {
    let usual = pool.limits.unload_drain;
    if time.last(usual) <= pool.now {
        return true;
    }
    let model = &pool.models[&replica.model];
    let wanted = pool.moves_wanted(replica.model);
    let comes = wanted > 0 && pool.staying(model) + model.planned.len() >= wanted;
    let waits = comes || pool.is_protected(replica.model);
    !waits && time.closes(usual) <= pool.now
}
