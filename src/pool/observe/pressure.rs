//! Updates the busy replicas under pressure (P3) when the queues or the gates' counts change, instead of in each plan.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::ReplicaId;
use crate::types::policy::Part;

impl Pool {
    /// Recomputes which busy replicas are under pressure. A replica newly under pressure may leave for a blocked demand.
    pub(crate) fn press(&mut self) {
        if !self.closings.is_empty() {
            self.closings.settle(self.now);
        }
        let nothing_waits = self.demand_index.is_empty() && self.closings.pressed().is_empty();
        if (nothing_waits && self.closings.is_empty()) || !self.limits.policy.has(Part::Pressure) {
            return;
        }
        let pressed = self.under_pressure();
        let new: Vec<ReplicaId> = pressed
            .difference(self.closings.pressed())
            .copied()
            .collect();
        if self.closings.are_made() {
            self.closings.set_pressed(pressed);
            for id in new {
                self.grows_at(id);
            }
        } else {
            self.closings.set_pressed(BTreeSet::new());
            // The waiting requests have found another place.
            for id in self.closings.kept_open() {
                if !pressed.contains(&id) {
                    self.no_longer_in_use(id);
                }
            }
            let pressures = self.pressures();
            for id in new {
                let Some(closing) = self.closing(id, &pressures) else {
                    continue;
                };
                self.closings.stays_open(closing, self.now);
            }
        }
    }

    /// The replica's last request has ended, or it is being stopped.
    pub(crate) fn no_longer_in_use(&mut self, id: ReplicaId) {
        let Some(entered) = self.replicas.get(&id).map(|replica| replica.entered) else {
            return;
        };
        self.closings.drained(id, self.now);
        self.closings.became_free(id, entered, self.now);
    }
}
