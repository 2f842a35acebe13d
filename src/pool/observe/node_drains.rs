//! Nodes that are out of service: while a node drains, all its devices count as cordoned, including devices that it gets later
//! (N5).

use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::DeviceId;
use crate::types::model::Cordon;

impl Pool {
    pub(crate) fn node_drain_restored(&mut self, name: String, drain: Cordon) {
        self.nodes.set_drain(name, drain);
        self.drains_change();
    }

    /// Applies each node's drain to its devices.
    pub(crate) fn drains_change(&mut self) {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        for id in ids {
            let drain = self.drain_of(self.devices[&id].node);
            self.devices.get_mut(&id).expect("listed").drain = drain;
        }
        self.touch_everything();
    }
}
