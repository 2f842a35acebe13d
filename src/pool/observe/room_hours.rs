//! Reads the memory that others than batches hold, about once a minute. Makes no choices.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::room_hours::{HeldParts, PARTS};
use crate::facts::state::Pool;
use crate::plan::batches::may_leave_for_batches;
use crate::types::ids::{Bytes, DeviceId, ModelId, ReplicaId};

impl Pool {
    /// Notes the state since the last reading, before the facts change. A reading visits all devices.
    pub(crate) fn read_rooms(&mut self) {
        let Some((from, to)) = self.room_hours.next_reading(self.now) else {
            return;
        };
        let time = (self.service.wall(from), self.service.wall(to));
        let devices = self.devices.iter();
        let held: Vec<(DeviceId, HeldParts)> = devices
            .map(|(id, device)| (*id, self.held_for_others(&device.holders, *id)))
            .collect();
        for (device, held) in held {
            self.room_hours.add_device(device, time, held);
        }
        let serves_others = |id: &&ReplicaId| {
            let replica = &self.replicas[*id];
            let model = &self.models[&replica.model];
            replica.ready_since().is_some() && !self.serves_only_batches(replica, model)
        };
        let models: BTreeSet<ModelId> = self
            .replicas
            .keys()
            .filter(serves_others)
            .map(|id| self.replicas[id].model)
            .collect();
        for model in models {
            self.room_hours.add_model(model, time);
        }
        let devices = &self.devices;
        self.room_hours
            .keep_devices(|device| devices.contains_key(device));
    }

    /// The memory of a device that is not for batches.
    fn held_for_others<'a>(
        &self,
        holders: impl IntoIterator<Item = &'a ReplicaId>,
        device: DeviceId,
    ) -> HeldParts {
        let (mut all, mut firmly) = (Bytes::ZERO, Bytes::ZERO);
        for id in holders {
            let (for_batches, may_leave) = match (self.replicas.get(id), self.planned.get(id)) {
                (_, Some(planned)) => (self.loads_only_for_batches(planned), false),
                (Some(replica), None) => {
                    let model = &self.models[&replica.model];
                    let for_batches = self.serves_only_batches(replica, model);
                    (for_batches, may_leave_for_batches(self, replica, model))
                }
                (None, None) => continue,
            };
            if for_batches {
                continue;
            }
            let bytes = self.held(*id, device);
            all = all + bytes;
            if !may_leave {
                firmly = firmly + bytes;
            }
        }
        let known = &self.devices[&device];
        let capacity = known.capacity().saturating_sub(known.foreign);
        HeldParts {
            all: parts(all, capacity),
            firmly: parts(firmly, capacity),
        }
    }
}

/// The part of a device in eighths, rounded up.
fn parts(bytes: Bytes, capacity: Bytes) -> usize {
    let parts = u128::from(bytes.0) * PARTS as u128;
    let parts = parts.div_ceil(u128::from(capacity.0.max(1)));
    usize::try_from(parts).unwrap_or(PARTS).min(PARTS)
}
