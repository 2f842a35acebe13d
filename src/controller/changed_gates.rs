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

    /// Empties the list into `taken`, whose memory it goes on with: a request allocates nothing for it. Each once, in their
    /// order: a turn is the same whichever gate was faster.
    pub fn take(&self, taken: &mut Vec<ReplicaId>) {
        taken.clear();
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *changed, taken);
        drop(changed);
        taken.sort_unstable();
        taken.dedup();
    }
}
