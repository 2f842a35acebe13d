//! The list of gates that the loop has to read: those that have changed since it read them last. A pool may have ten
//! thousand gates, of which hardly any changes between two turns of the loop.

use std::sync::{Arc, Mutex, PoisonError};

use pool::ReplicaId;

/// All clones are the same list.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedGates(Arc<Mutex<Vec<ReplicaId>>>);

impl ChangedGates {
    /// A gate keeps count of whether it is in the list, which stays short by that.
    pub fn add(&self, replica: ReplicaId) {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changed.push(replica);
    }

    /// Empties the list. Each once, in their order: a turn is the same whichever gate was faster.
    pub fn take(&self) -> Vec<ReplicaId> {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = std::mem::take(&mut *changed);
        drop(changed);
        taken.sort_unstable();
        taken.dedup();
        taken
    }
}
