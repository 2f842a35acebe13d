//! Decides which models are loaded for batches, the memory that these loads take (B4), and the memory that they give up for all
//! others (B5). A load that a deadline requires goes before other loads for batches (B7). Read-only.

use crate::facts::batches::Lines;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::yields::yields_after;
use crate::types::batch::BatchRoom;
use crate::types::event::Command;
use crate::types::ids::{ModelId, Priority, Time};
use crate::types::obstacle::Protection;
use crate::types::order::Order;
use crate::types::rank::Class;
use crate::types::reason::LoadReason;
use crate::types::replica::{Planned, Replica};
use crate::types::requirements::Requirements;

impl Pool {
    /// Returns true if the model's batch work justifies a load.
    pub(crate) fn batches_call_for(&self, id: ModelId) -> bool {
        let is_away = || {
            let by_wish = self.models.get(&id).is_some_and(Model::kept_away);
            by_wish || self.batches.is_kept_away(id)
        };
        self.batches.has(id) && !is_away()
    }

    /// The requirements of a replica for the model's batch work.
    pub(crate) fn batch_requirements(&self, id: ModelId) -> Option<Requirements> {
        let lines = self.batches.get(id)?;
        self.batches_call_for(id).then(|| Requirements {
            priority: Priority(0),
            batch: Some(lines.room(self.now)),
            ..Requirements::new(self, id, lines.since)
        })
    }

    /// Returns true if the replica was loaded for batches, and nothing else has used it or calls for it since.
    pub(crate) fn serves_only_batches(&self, replica: &Replica, model: &Model) -> bool {
        let is_for_batches = matches!(replica.why, LoadReason::Batch { .. });
        is_for_batches && replica.is_unserved() && self.only_batches_want(replica.model, model)
    }

    /// The same for a planned load.
    pub(crate) fn loads_only_for_batches(&self, planned: &Planned) -> bool {
        let is_for_batches = matches!(planned.why, LoadReason::Batch { .. });
        is_for_batches && self.only_batches_want(planned.model, &self.models[&planned.model])
    }

    fn only_batches_want(&self, id: ModelId, model: &Model) -> bool {
        let is_wished = model.wish.as_ref().is_some_and(|wish| wish.replicas > 0);
        model.queue.is_empty()
            && !is_wished
            && !self.is_protected(id)
            && self.unfinished_load(id).is_none()
    }

    /// Returns true if no load for batches may begin. The memory or the disk that it would take may be needed by another load soon,
    /// or the pool is being emptied.
    pub(crate) fn batch_loads_wait(&self) -> bool {
        let is_emptied = |order: &Order| {
            matches!(order.command, Command::Cleanup { .. } | Command::Reset)
                && !order.targets.is_empty()
        };
        let waits = |class: Class| matches!(class, Class::Request | Class::Order);
        let loads = |planned: &Planned| !self.loads_only_for_batches(planned);
        self.orders.values().any(is_emptied)
            || self.planned.values().any(loads)
            || self.demand_index.all().keys().any(|rank| waits(rank.class))
    }
}

/// The `due` time of a demand for batches. The earliest one goes first: loads that are due for a deadline (B7), then the longest list.
pub(crate) fn due(lines: Option<Lines>, now: Time) -> Time {
    let count = lines.map_or(0, |lines| lines.count);
    let due = lines.and_then(|lines| lines.due(now));
    due.unwrap_or(Time(u64::MAX - count))
}

/// Returns true if the replica may leave for batches, in the hours in which they may evict.
pub(crate) fn may_leave_for_batches(pool: &Pool, replica: &Replica, model: &Model) -> bool {
    replica.ready_since().is_some()
        && protection(pool, BatchRoom::LongIdle, replica, model).is_none()
}

/// The rule that protects a ready replica from a load for batches, if any.
pub(crate) fn protection(
    pool: &Pool,
    room: BatchRoom,
    replica: &Replica,
    model: &Model,
) -> Option<Protection> {
    let always = Some(Protection::Batch { left: None });
    // It was loaded for batches that have ended, and keeps no request waiting.
    if pool.serves_only_batches(replica, model) && !pool.batches.has(replica.model) {
        return None;
    }
    let own = model.priority();
    if pool.protects(own) {
        return Some(Protection::AlwaysHot);
    }
    if own > Priority(0) {
        return Some(Protection::HigherPriority);
    }
    if room == BatchRoom::Free {
        return always;
    }
    if let Some(left) = model.lease_left(pool.wall()) {
        return Some(Protection::Leased { left });
    }
    if let Some(order) = pool.unfinished_load(replica.model) {
        return Some(Protection::Ordered { order });
    }
    let is_wished = model.wish.as_ref().is_some_and(|wish| wish.replicas > 0);
    let is_wanted = is_wished || !model.queue.is_empty() || pool.batches.has(replica.model);
    if is_wanted || model.over.keep_hot.is_some() {
        return always;
    }
    let (Some(since), Some(after)) = (replica.idle_since(), yields_after(pool, model)) else {
        return always;
    };
    let at = since + after;
    (at > pool.now).then(|| Protection::Batch {
        left: Some(at.since(pool.now)),
    })
}

#[cfg(test)]
mod tests;
