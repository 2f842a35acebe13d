//! Holds demands back while other loads come first. These wait for the same disk or link; a load for batches lets all others come
//! first (B4). Read-only.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::demand_index::PendingReplica;
use crate::facts::state::Pool;
use crate::plan::requirements::never_fits;
use crate::types::ids::{Bytes, DeviceId, LoaderId, Priority};

/// Disks and links that loads already wait for. Evicting more for a load from the same disk or link would be too early.
#[derive(Default)]
pub(crate) struct Queues {
    /// Demands of this rank or lower are held back. Batches have no priority, and rank below all others.
    behind: BTreeMap<LoaderId, Option<Priority>>,
    /// No load for batches may begin.
    batches_wait: bool,
}

impl Queues {
    pub(crate) fn new(pool: &Pool) -> Queues {
        let mut in_use: BTreeMap<LoaderId, usize> = BTreeMap::new();
        for (_, loader) in pool.disks.in_use() {
            *in_use.entry(loader).or_default() += 1;
        }
        let batches_wait = !pool.batches.is_empty() && pool.batch_loads_wait();
        let mut waiting: BTreeMap<LoaderId, Vec<Option<Priority>>> = BTreeMap::new();
        for planned in pool.planned.values() {
            if let Some(loader) = pool.models[&planned.model].spec.loader {
                let ranks = !pool.loads_only_for_batches(planned);
                let priority = ranks.then(|| pool.priority(planned.model));
                waiting.entry(loader.loader).or_default().push(priority);
            }
        }
        for rank in pool.demand_index.postponed() {
            if let Some(loader) = pool.models[&rank.model].spec.loader {
                let priority = Some(rank.priority.0);
                waiting.entry(loader.loader).or_default().push(priority);
            }
        }
        // Usually nothing waits, and there may be a thousand nodes.
        if waiting.is_empty() {
            return Queues {
                batches_wait,
                ..Queues::default()
            };
        }
        // A node without memory has no disk from which weights are read.
        let has_memory = |id: &DeviceId| pool.devices[id].total > Bytes::ZERO;
        let with_memory = pool
            .nodes
            .device_sets()
            .filter(|ids| ids.iter().any(has_memory));
        let nodes = with_memory.count().max(1);
        let behind = waiting.into_iter().filter_map(|(loader, mut waiting)| {
            // Each node may have one more waiting load if that load is more important than the others.
            waiting.sort_by_key(|priority| Reverse(*priority));
            let full = in_use.get(&loader).is_some_and(|count| *count >= nodes);
            let last = waiting.get(nodes - 1).copied()?;
            full.then_some((loader, last))
        });
        Queues {
            behind: behind.collect(),
            batches_wait,
        }
    }

    /// Returns true if the demand is not planned yet.
    pub(crate) fn holds_back(&self, pool: &Pool, pending: &PendingReplica) -> bool {
        let is_for_batches = pending.requirements.batch.is_some();
        if is_for_batches && self.batches_wait {
            return true;
        }
        if self.behind.is_empty() {
            return false;
        }
        let Some(loader) = pool.models[&pending.requirements.model].spec.loader else {
            return false;
        };
        let behind = self.behind.get(&loader.loader);
        // A load that can never fit is refused immediately.
        let rank = (!is_for_batches).then_some(pending.requirements.priority);
        behind.is_some_and(|last| rank <= *last)
            && never_fits(pool, &pending.requirements).is_none()
    }
}
