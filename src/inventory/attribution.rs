//! Attributes a device's memory to replicas, by process. Only adds up measurements; the caller knows which process belongs to which
//! replica, children included.

use std::collections::{BTreeMap, BTreeSet};

use super::DeviceUse;
use pool::{Bytes, ReplicaId};

/// One device's memory, divided by owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    pub by_replica: BTreeMap<ReplicaId, Bytes>,
    /// Memory of processes that the pool started and that no longer belong to a replica.
    pub orphaned: Bytes,
    /// Memory of other programs, including the driver's own.
    pub foreign: Bytes,
    /// Memory of the pool's engines that NVML does not assign to a process.
    pub unattributed: Bytes,
}

/// `owners` and `orphans` are process ids. A process in both belongs to its replica.
pub fn attribute(
    uses: &DeviceUse,
    owners: &BTreeMap<u32, ReplicaId>,
    orphans: &BTreeSet<u32>,
) -> Attribution {
    let mut found = Attribution::default();
    for (pid, held) in &uses.processes {
        if let Some(replica) = owners.get(pid) {
            let sum = found.by_replica.entry(*replica).or_insert(Bytes::ZERO);
            *sum = *sum + *held;
        } else if orphans.contains(pid) {
            found.orphaned = found.orphaned + *held;
        }
    }
    let known = found.by_replica.values().copied().sum::<Bytes>() + found.orphaned;
    let rest = (uses.own + uses.foreign).saturating_sub(known);
    // Memory that the reading attributed to the pool stays the pool's, even if no process is known for it. The foreign part shrinks
    // by the orphans, which the reading did not know.
    found.foreign = uses.foreign.min(rest);
    found.unattributed = rest.saturating_sub(found.foreign);
    found
}
