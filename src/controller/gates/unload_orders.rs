//! Models that administrators have unloaded since the start: applications of earlier processes found later are not adopted for
//! them.

use std::collections::BTreeSet;

use pool::{Command, ModelId};

/// Orders since the start after which a model no longer needs an application of an earlier process.
#[derive(Debug, Default)]
pub(crate) struct UnloadOrders {
    all: bool,
    models: BTreeSet<ModelId>,
}

impl UnloadOrders {
    pub fn order(&mut self, command: &Command) {
        match command {
            Command::Unload {
                model,
                replica: None,
                ..
            } => {
                self.models.insert(*model);
            }
            Command::Cleanup { .. } | Command::Reset | Command::Shutdown { .. } => self.all = true,
            _ => {}
        }
    }

    pub fn has(&self, model: ModelId) -> bool {
        self.all || self.models.contains(&model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{ReplicaId, Span};

    #[test]
    fn an_unload_order_covers_applications_of_an_earlier_process() {
        let mut unloaded = UnloadOrders::default();
        let (one, other) = (ModelId(1), ModelId(2));
        let unload = |replica| Command::Unload {
            model: one,
            replica,
            now: false,
        };
        unloaded.order(&unload(Some(ReplicaId(7))));
        assert!(!unloaded.has(one), "another replica");
        unloaded.order(&unload(None));
        assert!(unloaded.has(one) && !unloaded.has(other));
        unloaded.order(&Command::Shutdown { drain: Span::ZERO });
        assert!(unloaded.has(other));
    }
}
