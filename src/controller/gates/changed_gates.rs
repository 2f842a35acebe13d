//! The gates that have changed since the loop last read them. Of ten thousand gates, hardly any changes between two turns of the
//! loop.

use std::sync::{Arc, Mutex, PoisonError};

use pool::ReplicaId;

/// All clones share the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedGates(Arc<Mutex<Vec<ReplicaId>>>);

impl ChangedGates {
    /// Each gate tracks whether it is in the list, so the list holds no duplicates.
    pub fn add(&self, replica: ReplicaId) {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changed.push(replica);
    }

    /// Moves the list into `taken`, reusing its memory so that requests allocate nothing. Each gate occurs once, sorted by id,
    /// which makes a turn independent of which gate was faster.
    pub fn take(&self, taken: &mut Vec<ReplicaId>) {
        taken.clear();
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *changed, taken);
        drop(changed);
        taken.sort_unstable();
        taken.dedup();
    }
}
