//! State that the shell of a storm keeps between events, as the controller does: measured peaks, and which weights were read ahead.

use alloc::collections::BTreeMap;

use pool::{Bytes, KindId, ModelId, Pool, ReadAheadHistory, Span, Time};

#[derive(Default)]
pub(super) struct Measurements {
    /// The peaks of models, by number and kind of devices.
    pub(super) peaks: BTreeMap<(ModelId, u32, KindId), Bytes>,
    history: ReadAheadHistory,
    last_read: BTreeMap<ModelId, Time>,
}

impl Measurements {
    /// The model whose weights are read ahead now, and whether they were read within the last ten minutes.
    pub(super) fn read_ahead(&mut self, pool: &Pool, at: Time) -> Option<(ModelId, bool)> {
        let model = self.history.choose(pool, at, |_| true)?.model;
        let before = self.last_read.insert(model, at);
        let again = before.is_some_and(|read| at.since(read) < Span::from_secs(600));
        Some((model, again))
    }
}
