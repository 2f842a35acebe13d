//! The times at which requested nodes were chosen to be emptied, and at which models left them for a cheaper place.

use alloc::collections::BTreeMap;

use pool::{ModelId, NodeId, Span, Time};

/// `cluster.scale_down_after`, the default.
pub(super) const REST: Span = Span::from_secs(20 * 60);

#[derive(Clone, Debug, Default)]
pub(super) struct EmptiedTimes {
    pub chosen: BTreeMap<NodeId, Time>,
    pub moved: BTreeMap<ModelId, Time>,
}

impl EmptiedTimes {
    /// A new controller does not know the nodes that its predecessor has chosen.
    pub fn forget_chosen(&mut self) {
        self.chosen.clear();
    }
}
