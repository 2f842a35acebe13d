//! Whether the programs of engines are on this machine, looked at when a model that has no replica is demanded: a load
//! that would fail for its program evicts nothing, and a program that comes back ends the quarantine that its absence
//! caused.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::catalog_change::Change;
use super::control::Control;
use super::handle::Handle;
use super::message::Message;
use super::routing::Route;
use catalog::{Entry, Recipe};
use config::ClusterKind;
use engine::missing_program;

/// A file system that answers later than this is not waited for.
const LOOK_MAX: Duration = Duration::from_secs(1);

impl Control {
    /// Engines run on this machine alone: no node is known, and no cluster gives any.
    pub(super) fn runs_alone(&self) -> bool {
        self.config.cluster.kind == ClusterKind::None
            && self.nodes.known.is_empty()
            && self.nodes.expected.is_empty()
    }

    /// Looks again at the programs that were missing: models that are loaded without a request come back, too.
    pub(super) fn look_for_missing_programs(&mut self) {
        let lacking = self.models.facts.values().filter(|it| it.lacks_program);
        let entries: Vec<Arc<Entry>> = lacking.map(|it| Arc::clone(&it.entry)).collect();
        if entries.is_empty() {
            return;
        }
        let inbox = self.inbox.clone();
        self.tasks.spawn_blocking(move || {
            for entry in entries {
                if missing_program(&entry.name, &entry.recipe).is_none() {
                    let (name, then) = (entry.name.clone(), Change::Figure);
                    let _ = inbox.send(Message::Figure { name, then });
                }
            }
        });
    }
}

impl Handle {
    /// Looks at the model's program, and has the pool take in what has changed since the last look. Returns when the pool
    /// decides by it, or after two seconds at most.
    pub async fn look_for_program(&self, route: &Route) {
        let has_program = matches!(route.entry.recipe, Recipe::Command(_) | Recipe::Server(_));
        let snapshot = self.snapshot();
        let Some(facts) = snapshot.models.get(&route.model).filter(|_| has_program) else {
            return;
        };
        let entry = Arc::clone(&facts.entry);
        let looked = move || missing_program(&entry.name, &entry.recipe).is_some();
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
            // A change of the catalogue that takes longer is not waited for.
            let _ = timeout(LOOK_MAX, figured).await;
        }
    }
}
