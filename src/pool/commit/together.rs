//! Turns victims that leave together with others into facts (P8). Like the rest of `commit`, it makes no choices.

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::RecordKind;
use crate::types::ids::ReplicaId;
use crate::types::replica::LeavesWith;

impl Pool {
    /// Marks a victim that stays until the others have nearly finished. Its memory counts as leaving.
    pub(crate) fn leaves_later(&mut self, id: ReplicaId, with: LeavesWith) {
        let replica = self.replicas.get_mut(&id).expect("a victim");
        replica.leaves_with = Some(with);
        for share in replica.shares.clone() {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.starts_leaving(share.bytes);
        }
        self.replicas.leaves_later(id);
        self.touch(id);
        self.grows_at(id);
    }

    /// Takes the mark away. The memory still counts as leaving.
    pub(crate) fn leaves_now(&mut self, id: ReplicaId) -> Option<LeavesWith> {
        self.replicas.no_longer_leaves_later(id);
        self.replicas.get_mut(&id)?.leaves_with.take()
    }

    /// The replica stays after all, and its load is dropped if it has not begun.
    pub(crate) fn stays(&mut self, id: ReplicaId, actions: &mut Actions) {
        let Some(with) = self.leaves_now(id) else {
            return;
        };
        let replica = &self.replicas[&id];
        let model = replica.model;
        for share in replica.shares.clone() {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.stays(share.bytes);
        }
        if self.planned.contains_key(&with.load) {
            self.abandon(with.load);
        }
        let text = format!(
            "its load began without its memory, or was dropped; was to leave: {}",
            with.reason
        );
        let mut record = self.record(RecordKind::Stay, Some(model), text);
        record.replica = Some(id);
        actions.record(record);
        self.touch_model(model);
        self.agenda.promises_change();
    }
}
