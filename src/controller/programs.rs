//! Checks that an engine's program exists on this machine when a model without a replica is requested. A load that would fail for a
//! missing program evicts nothing. A program that reappears ends the quarantine that its absence caused.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::control::Control;
use crate::gates::Route;
use crate::handle::Handle;
use crate::messages::{Change, Message};
use catalog::{Entry, Recipe};
use config::ClusterKind;
use engine::missing_program;

/// Time limit for a slow file system.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Concurrent checks. Bounds the threads that a hanging file system holds.
static LOOKS: Semaphore = Semaphore::const_new(8);

impl Control {
    /// Returns true if engines run only on this machine: no node has joined, and no cluster can provide one.
    pub(super) fn runs_alone(&self) -> bool {
        self.config.cluster.kind == ClusterKind::None
            && self.nodes.is_empty()
            && !self.nodes.expects_any()
    }

    /// Checks missing programs again, which lets models that load without a request recover.
    pub(super) fn look_for_missing_programs(&mut self) {
        let lacking = self
            .models
            .facts()
            .values()
            .filter(|facts| facts.lacks_program);
        let entries: Vec<Arc<Entry>> = lacking.map(|facts| Arc::clone(&facts.entry)).collect();
        if entries.is_empty() {
            return;
        }
        let inbox = self.background.inbox();
        let look = move || {
            for entry in entries {
                if missing_program(&entry.name, &entry.recipe).is_none() {
                    let (name, then) = (entry.name.clone(), Change::Figure);
                    let _ = inbox.send(Message::Figure { name, then });
                }
            }
        };
        // A check that hangs in a system call must not delay the shutdown: only the task around it can be aborted.
        self.background.spawn(async move {
            if let Ok(_turn) = LOOKS.acquire().await {
                let _ = tokio::task::spawn_blocking(look).await;
            }
        });
    }
}

impl Handle {
    /// Checks the model's program, and reports changes since the last check to the pool. Returns after the pool has taken them in,
    /// or after three seconds at most.
    pub async fn look_for_program(&self, route: &Route) {
        let has_program = matches!(route.entry.recipe, Recipe::Command(_) | Recipe::Server(_));
        let snapshot = self.snapshot();
        let Some(facts) = snapshot.models.get(&route.model).filter(|_| has_program) else {
            return;
        };
        let entry = Arc::clone(&facts.entry);
        let Ok(Ok(turn)) = timeout(LOOK_MAX, LOOKS.acquire()).await else {
            return;
        };
        let looked = move || {
            let _turn = turn;
            missing_program(&entry.name, &entry.recipe).is_some()
        };
        let looked = timeout(LOOK_MAX, tokio::task::spawn_blocking(looked)).await;
        let Ok(Ok(is_missing)) = looked else {
            return;
        };
        if (is_missing && snapshot.runs_alone) == facts.lacks_program {
            return;
        }
        let (reply, figured) = oneshot::channel();
        let name = route.entry.name.clone();
        let then = Change::Looked { reply };
        if self.inbox.send(Message::Figure { name, then }).is_ok() {
            // Continues without a change of the catalogue that takes longer.
            let _ = timeout(LOOK_MAX, figured).await;
        }
    }
}
