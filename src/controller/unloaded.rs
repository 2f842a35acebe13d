//! What administrators have unloaded since the start: an application of an earlier process that is found later is not adopted
//! for such a model.

use std::collections::BTreeSet;

use pool::{Command, ModelId};

/// By which orders since the start a model needs no application of an earlier process any more.
#[derive(Debug, Default)]
pub(super) struct Unloaded {
    all: bool,
    models: BTreeSet<ModelId>,
}

impl Unloaded {
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
    fn a_model_that_was_unloaded_needs_no_application_of_an_earlier_process() {
        let mut unloaded = Unloaded::default();
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
