//! The actions of one step, in order. Every layer may add to the history; only `commit` can order anything else.

use alloc::vec::Vec;

use crate::types::action::{Action, Record};

#[derive(Debug, Default)]
pub(crate) struct Actions(Vec<Action>);

impl Actions {
    /// Adds a record to the history.
    pub(crate) fn record(&mut self, record: Record) {
        self.0.push(Action::Record(record));
    }

    pub(crate) fn into_vec(self) -> Vec<Action> {
        self.0
    }

    /// Orders something. Private to `commit`: the compiler refuses it in `observe` and `plan`.
    pub(in crate::commit) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    pub(in crate::commit) fn len(&self) -> usize {
        self.0.len()
    }

    /// The records added since there were `count` actions.
    pub(in crate::commit) fn records_since(
        &mut self,
        count: usize,
    ) -> impl Iterator<Item = &mut Record> {
        self.0[count..]
            .iter_mut()
            .filter_map(|action| match action {
                Action::Record(record) => Some(record),
                _ => None,
            })
    }
}
