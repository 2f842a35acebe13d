//! The devices, indexed by kind and free memory: a load visits only devices with room for it, however many devices exist. A ledger
//! changes only through `get_mut`, which marks the device as changed. `update_index` is the only place that updates the index;
//! devices marked since its last call are examined individually, so results are never stale.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use core::ops::Deref;

use crate::facts::device::Device;
use crate::types::event::DeviceReading;
use crate::types::ids::{Bytes, DeviceId, KindId, NodeId};
use crate::types::link::Link;
use crate::types::model::Cordon;

#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    all: BTreeMap<DeviceId, Device>,
    by_room: BTreeMap<KindId, BTreeSet<Entry>>,
    /// The index entry of each device that has one.
    entry_of: BTreeMap<DeviceId, (KindId, Entry)>,
    /// Devices that may have changed since the last index update.
    changed: BTreeSet<DeviceId>,
    /// Devices that wait for memory of ended processes (M4).
    settling: BTreeSet<DeviceId>,
    /// Devices that have left with their nodes.
    departed: BTreeMap<DeviceId, Departed>,
}

/// The facts kept about a device whose node is gone and may come back.
#[derive(Clone, Debug)]
pub(crate) struct Departed {
    pub name: String,
    cordon: Option<Cordon>,
    links: BTreeMap<DeviceId, Link>,
}

/// The number of devices of gone nodes whose names and cordons are remembered.
const DEPARTED_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// The bytes that a plan may use there; an upper bound if it is not exact.
    at_most: Bytes,
    device: DeviceId,
    node: NodeId,
    /// False if replicas hold more than their shares: the figure then depends on which of them leave.
    is_exact: bool,
}

/// A device that may have room for a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub device: DeviceId,
    pub node: NodeId,
    /// Its kind and the bytes that a plan may use there. `None` if only its ledger can tell.
    pub known: Option<(KindId, Bytes)>,
}

/// Reads like a map.
impl Deref for Devices {
    type Target = BTreeMap<DeviceId, Device>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Devices {
    pub(crate) fn get_mut(&mut self, id: &DeviceId) -> Option<&mut Device> {
        let device = self.all.get_mut(id)?;
        self.changed.insert(*id);
        Some(device)
    }

    /// The device of a reading; it is added if it is new.
    pub(crate) fn of_reading(&mut self, id: DeviceId, reading: &DeviceReading) -> &mut Device {
        self.changed.insert(id);
        let departed = &mut self.departed;
        self.all.entry(id).or_insert_with(|| {
            let mut device = Device::new(reading);
            if let Some(known) = departed.remove(&id) {
                (device.cordon, device.links) = (known.cordon, known.links);
            }
            device
        })
    }

    /// Removes a device whose node is gone, and remembers its name, cordon and links.
    pub(crate) fn depart(&mut self, id: &DeviceId) {
        let Some(gone) = self.all.remove(id) else {
            return;
        };
        self.changed.insert(*id);
        let departed = Departed {
            name: gone.name,
            cordon: gone.cordon,
            links: gone.links,
        };
        self.departed.insert(*id, departed);
        while self.departed.len() > DEPARTED_MAX {
            self.departed.pop_first();
        }
    }

    /// Devices that wait for memory of ended processes (M4), as of the last index update.
    pub(crate) fn settling(&self) -> &BTreeSet<DeviceId> {
        &self.settling
    }

    pub(crate) fn departed(&self, id: DeviceId) -> Option<&Departed> {
        self.departed.get(&id)
    }

    pub(crate) fn any_departed(&self) -> bool {
        !self.departed.is_empty()
    }

    /// The cordon of a device, present or departed.
    pub(crate) fn cordon_of(&self, id: DeviceId) -> Option<&Cordon> {
        match self.all.get(&id) {
            Some(device) => device.cordon.as_ref(),
            None => self.departed.get(&id)?.cordon.as_ref(),
        }
    }

    /// Cordons a device that has departed, for the time when it comes back.
    pub(crate) fn cordon_departed(&mut self, id: DeviceId, cordon: Option<Cordon>) {
        if let Some(departed) = self.departed.get_mut(&id) {
            departed.cordon = cordon;
        }
    }

    /// Cordons a device; if its node has not joined yet, the device is cordoned when it does.
    pub(crate) fn restore_cordon(&mut self, id: DeviceId, cordon: Cordon) {
        let cordon = Some(cordon);
        match self.get_mut(&id) {
            Some(device) => device.cordon = cordon,
            None => {
                let absent = Departed {
                    cordon,
                    ..Departed::unnamed(id)
                };
                self.departed.insert(id, absent);
            }
        }
    }

    /// The links of a device, present or still to come.
    pub(crate) fn links_of(&mut self, id: DeviceId) -> &mut BTreeMap<DeviceId, Link> {
        if self.all.contains_key(&id) {
            return &mut self.get_mut(&id).expect("present").links;
        }
        let absent = || Departed::unnamed(id);
        &mut self.departed.entry(id).or_insert_with(absent).links
    }

    /// All devices whose free memory suffices for what is needed on their kind, and some that have less or take nothing.
    pub(crate) fn with_room<'a>(
        &'a self,
        needs: impl Fn(KindId) -> Bytes + 'a,
    ) -> impl Iterator<Item = Room> + 'a {
        let (all, changed) = (&self.all, &self.changed);
        let indexed = self.by_room.iter().flat_map(move |(kind, entries)| {
            let least = Entry {
                at_most: needs(*kind),
                device: DeviceId(0),
                node: NodeId(0),
                is_exact: false,
            };
            entries.range(least..).map(move |entry| Room {
                device: entry.device,
                node: entry.node,
                known: entry.is_exact.then_some((*kind, entry.at_most)),
            })
        });
        let indexed = indexed.filter(move |room| !changed.contains(&room.device));
        let noted = changed.iter().filter_map(move |device| {
            let node = all.get(device)?.node;
            Some(Room {
                device: *device,
                node,
                known: None,
            })
        });
        indexed.chain(noted)
    }

    /// Updates the index for the devices that have changed.
    pub(crate) fn update_index(&mut self) {
        for id in core::mem::take(&mut self.changed) {
            let waits = |device: &Device| device.settling_since().is_some();
            if self.all.get(&id).is_some_and(waits) {
                self.settling.insert(id);
            } else {
                self.settling.remove(&id);
            }
            let device = self.all.get(&id).filter(|device| !device.takes_nothing());
            let entry = device.map(|device| (device.kind, Entry::new(id, device)));
            let before = match entry {
                Some(entry) => self.entry_of.insert(id, entry),
                None => self.entry_of.remove(&id),
            };
            // Most changes, such as a reading, do not change the free memory.
            if before == entry {
                continue;
            }
            if let Some((kind, entry)) = before {
                let of_kind = self.by_room.entry(kind).or_default();
                of_kind.remove(&entry);
                if of_kind.is_empty() {
                    self.by_room.remove(&kind);
                }
            }
            if let Some((kind, entry)) = entry {
                self.by_room.entry(kind).or_default().insert(entry);
            }
        }
    }

    /// Rebuilds the index and returns true if it equals the current one.
    pub(crate) fn is_index_right(&self) -> bool {
        let mut updated = self.clone();
        updated.update_index();
        let mut anew = Devices {
            all: updated.all.clone(),
            changed: updated.all.keys().copied().collect(),
            ..Devices::default()
        };
        anew.update_index();
        updated.by_room == anew.by_room
            && updated.entry_of == anew.entry_of
            && updated.settling == anew.settling
    }
}

impl Departed {
    /// A device that has never been here, for what is known of it in advance.
    fn unnamed(id: DeviceId) -> Departed {
        Departed {
            name: id.to_string(),
            cordon: None,
            links: BTreeMap::new(),
        }
    }
}

impl Entry {
    fn new(device: DeviceId, ledger: &Device) -> Entry {
        Entry {
            // Includes all memory beyond the shares, as if every replica there left.
            at_most: ledger.later(ledger.excess).0,
            device,
            node: ledger.node,
            is_exact: ledger.excess_of.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::{ReplicaId, Span, Time};
    use crate::types::node::Away;
    use alloc::vec::Vec;

    fn devices(totals: &[u64]) -> Devices {
        let mut devices = Devices::default();
        for (nth, total) in totals.iter().enumerate() {
            let reading = DeviceReading {
                total: Bytes(*total),
                ..DeviceReading::default()
            };
            devices.of_reading(DeviceId(nth as u32), &reading);
        }
        devices.update_index();
        devices
    }

    fn with_room(devices: &Devices, needs: u64) -> Vec<(u32, Option<u64>)> {
        let found = devices.with_room(|_| Bytes(needs));
        let plain = |room: Room| (room.device.0, room.known.map(|(_, free)| free.0));
        found.map(plain).collect()
    }

    #[test]
    fn the_tightest_device_with_room_is_first() {
        let devices = devices(&[40, 10, 20, 20]);
        let all = [(2, Some(20)), (3, Some(20)), (0, Some(40))];
        assert_eq!(with_room(&devices, 15), all);
        assert!(with_room(&devices, 41).is_empty());
        assert!(devices.is_index_right());
    }

    #[test]
    fn a_changed_device_is_checked_individually_until_the_index_is_updated() {
        let mut devices = devices(&[40, 20]);
        let first = devices.get_mut(&DeviceId(0)).expect("it is there");
        first.reserve(ReplicaId(1), Bytes(30));
        assert_eq!(with_room(&devices, 15), [(1, Some(20)), (0, None)]);
        devices.update_index();
        assert_eq!(with_room(&devices, 15), [(1, Some(20))]);
        assert_eq!(with_room(&devices, 10), [(0, Some(10)), (1, Some(20))]);
        assert!(devices.is_index_right());
    }

    #[test]
    fn a_device_with_excess_memory_is_checked_against_the_ledger() {
        let mut devices = devices(&[40, 40]);
        let first = devices.get_mut(&DeviceId(0)).expect("it is there");
        first.reserve(ReplicaId(1), Bytes(10));
        first.excess = Bytes(5);
        first.excess_of.insert(ReplicaId(1), Bytes(5));
        devices.update_index();
        assert_eq!(with_room(&devices, 30), [(0, None), (1, Some(40))]);
        assert_eq!(with_room(&devices, 31), [(1, Some(40))]);
    }

    #[test]
    fn unavailable_devices_are_not_in_the_index() {
        let mut devices = devices(&[40, 30, 20]);
        devices.get_mut(&DeviceId(0)).expect("it is there").away = Some(Away::Silent);
        devices.depart(&DeviceId(1));
        devices.update_index();
        assert_eq!(with_room(&devices, 0), [(2, Some(20))]);
        devices.get_mut(&DeviceId(0)).expect("it is there").away = None;
        devices.update_index();
        assert_eq!(with_room(&devices, 0), [(2, Some(20)), (0, Some(40))]);
        assert!(devices.is_index_right());
    }

    #[test]
    fn a_device_waits_until_a_reading_shows_the_freed_memory_of_an_ended_process() {
        let reading = |taken| DeviceReading {
            total: Bytes(40),
            taken: Some(Time(taken)),
            ..DeviceReading::default()
        };
        let (id, replica) = (DeviceId(0), ReplicaId(1));
        let mut devices = Devices::default();
        let device = devices.of_reading(id, &reading(1));
        device.reserve(replica, Bytes(10));
        device.release(replica, Bytes(10), false, Time(2));
        devices.update_index();
        assert!(devices.settling().contains(&id) && devices.is_index_right());
        let device = devices.get_mut(&id).expect("it is there");
        device.read(&reading(3), BTreeMap::new(), Time(3), Span::from_secs(10));
        devices.update_index();
        assert!(devices.settling().is_empty() && devices.is_index_right());
    }

    #[test]
    fn a_returning_device_has_the_cordon_set_during_its_absence() {
        let mut devices = devices(&[40]);
        let id = DeviceId(0);
        devices.depart(&id);
        assert!(devices.cordon_of(id).is_none() && devices.any_departed());
        let cordon = Cordon {
            reason: "cable".into(),
            since: Time(1),
            until: None,
            failed: false,
        };
        devices.cordon_departed(id, Some(cordon.clone()));
        let reading = DeviceReading {
            total: Bytes(40),
            ..DeviceReading::default()
        };
        let device = devices.of_reading(id, &reading);
        assert_eq!(device.cordon.as_ref(), Some(&cordon));
        assert!(!devices.any_departed());
    }
}
