//! Whose memory a device holds, by process. It only sums what was measured; which process belongs
//! to which replica the caller knows, children included.

use std::collections::{BTreeMap, BTreeSet};

use super::DeviceUse;
use pool::{Bytes, ReplicaId};

/// What of one device's memory is whose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    pub by_replica: BTreeMap<ReplicaId, Bytes>,
    /// Held by processes that we started and that no replica has any more.
    pub orphaned: Bytes,
    /// Held by others, with what the driver keeps.
    pub foreign: Bytes,
    /// Ours, and NVML does not say which process holds it.
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
    // What the reading found to be ours stays ours, also if it knows no process of it; what it took
    // for foreign shrinks by the orphans that it was not told of.
    found.foreign = uses.foreign.min(rest);
    found.unattributed = rest.saturating_sub(found.foreign);
    found
}
