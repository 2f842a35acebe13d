//! Composes a record of the history with what the facts say about its model.

use alloc::string::String;

use crate::facts::state::Pool;
use crate::types::action::{Record, RecordKind};
use crate::types::ids::{ModelId, Priority};

impl Pool {
    pub(crate) fn record(
        &self,
        kind: RecordKind,
        model: Option<ModelId>,
        reason: String,
    ) -> Record {
        let priority: Option<Priority> = model.map(|model| self.priority(model));
        Record {
            priority,
            ..Record::new(self.now, kind, model.map(|model| self.name(model)), reason)
        }
    }
}
