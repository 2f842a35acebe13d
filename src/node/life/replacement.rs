//! The replacement of a node's process by another one: it records what the next process needs, leaves its engines to that process,
//! and finishes the requests that pass through it.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Node;
use crate::identity::{Identity, milliseconds};

/// Time that loads, stops and sleep commands in progress may delay a takeover.
const BUSY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(25);

impl Node {
    /// Returns when this process has listed its engines to a controller.
    pub async fn has_joined(&self) {
        while !self.engines.machine.lock().is_connected {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Closes the listener, because a later process could not bind its address again. The future completes when the requests that
    /// pass through this process have ended, at most after the drain time.
    pub fn finish(self) -> impl Future<Output = ()> {
        let drain = self.agreement().drain;
        let mut open = self.relay.close();
        async move {
            let ended = async { while open.join_next().await.is_some() {} };
            if timeout(drain, ended).await.is_err() {
                tracing::warn!(
                    "requests of the replaced process have not ended within {} s",
                    drain.as_secs()
                );
            }
        }
    }

    /// Waits for a process that takes over, and then for orders in progress. A node that leaves the pool is not replaced.
    pub(super) async fn replaced_by<T>(&self, successor: impl Future<Output = T>) -> T {
        let machine = &self.engines.machine;
        let leaves = async {
            loop {
                let changed = machine.fewer.notified();
                if machine.lock().leaving.is_some() {
                    return;
                }
                changed.await;
            }
        };
        let successor = tokio::select! {
            successor = successor => successor,
            () = leaves => std::future::pending().await,
        };
        let settled = async {
            while !machine.is_settled() {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(BUSY_WITHIN, settled).await.is_err() {
            tracing::warn!(
                "an engine still starts, stops, falls asleep or wakes after {} s: it ends, and the controller loads it again if needed",
                BUSY_WITHIN.as_secs()
            );
        }
        if machine.lock().leaving.is_some() {
            // It began to leave during the wait, and another process would not know that.
            drop(successor);
            return std::future::pending().await;
        }
        successor
    }

    /// Leaves the engines to the next process. From now on this one carries out no orders.
    pub(super) async fn leave_engines(&self) {
        self.engines.machine.lock().is_replaced = true;
        self.engines.leave(self.agreement().orphan_after).await;
    }

    /// Records the agreement with the controller for a later process, if it has changed.
    pub(super) fn record(&self) {
        let agreement = self.agreement();
        let mut kept = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        let current = Identity {
            controller: agreement.controller,
            credential: agreement.credential,
            orphan_after_ms: milliseconds(agreement.orphan_after),
            drain_ms: milliseconds(agreement.drain),
            alone_since_ms: agreement.alone_since_ms,
            ..kept.clone()
        };
        self.engines
            .guardians
            .set_adopt_within(agreement.orphan_after);
        let is_over = {
            let inner = self.engines.machine.lock();
            inner.leaving.is_some() || inner.is_replaced
        };
        if current == *kept || is_over {
            return;
        }
        match current.save(&self.settings.data) {
            Ok(()) => *kept = current,
            Err(error) => tracing::warn!(
                "cannot record this node in {}: {error}; after a crash its engines end. Make the folder writable for this user",
                self.settings.data.display()
            ),
        }
    }

    /// Joins as a new node from now on: the controller has given up the earlier one, of which no engine is left.
    pub(super) fn begin_anew(&self) {
        let mut kept = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        kept.epoch = rand::random();
        kept.controller = None;
        self.change(|agreement| {
            agreement.controller = None;
            agreement.credential.clone_from(&self.settings.token);
        });
    }

    /// Removes the record of this node: later processes start as a new one.
    pub(super) fn forget(&self) {
        Identity::remove(&self.settings.data);
    }
}
