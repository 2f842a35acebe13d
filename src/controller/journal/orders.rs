//! The loop's end of the keeper: jobs for the store, in their order, and the lead that they require.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::keeper::Job;
use store::Store;

pub(crate) struct Journal {
    store: Arc<Store>,
    jobs: mpsc::UnboundedSender<Job>,
}

impl Journal {
    pub fn new(store: Arc<Store>, jobs: mpsc::UnboundedSender<Job>) -> Journal {
        Journal { store, jobs }
    }

    /// Has the keeper write the job after all earlier ones.
    pub fn write(&self, job: Job) {
        // The keeper ends after the loop.
        let _ = self.jobs.send(job);
    }

    /// Returns true if this process leads: without the lead, nothing is decided or ordered (D4).
    pub fn leads(&self) -> bool {
        self.store.leads()
    }

    /// The store, for tasks that read it or wait for their write.
    pub fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }
}
