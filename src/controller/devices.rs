//! The devices as they were last read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

use super::snapshot::DeviceSnapshot;
use config::Provider;
use inventory::{DeviceInfo, Inventory};
use pool::{DeviceId, DeviceReading, KindId};

#[derive(Debug)]
pub(super) struct Devices {
    pub provider: Provider,
    pub kinds: BTreeMap<String, KindId>,
    /// Has the devices read at once.
    pub look: Arc<Notify>,
    pub known: Arc<BTreeMap<DeviceId, DeviceSnapshot>>,
}

impl Devices {
    pub fn new(inventory: &Inventory) -> Devices {
        let devices = inventory.devices().iter();
        Devices {
            provider: inventory.provider(),
            kinds: kinds(inventory.devices()),
            look: Arc::default(),
            known: Arc::new(
                devices
                    .map(|info| (info.id, DeviceSnapshot::unread(info.clone())))
                    .collect(),
            ),
        }
    }

    /// Of a device that has not been read yet.
    pub fn reading_of(&self, info: &DeviceInfo) -> DeviceReading {
        DeviceReading {
            name: info.name.clone(),
            node: info.node,
            kind: self.kinds[&kind_name(info)],
            total: info.total,
            headroom: info.headroom,
            ..DeviceReading::default()
        }
    }

    /// Devices of a node that joins. Gives those that are new, or not as they were.
    pub fn add(&mut self, infos: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
        let mut known = self.known.as_ref().clone();
        let mut new = Vec::new();
        for info in infos {
            let next = KindId(u32::try_from(self.kinds.len()).unwrap_or(u32::MAX));
            self.kinds.entry(kind_name(&info)).or_insert(next);
            let same = known.get(&info.id).is_some_and(|it| it.info == info);
            if !same {
                known.insert(info.id, DeviceSnapshot::unread(info.clone()));
                new.push(info);
            }
        }
        self.known = Arc::new(known);
        new
    }

    /// Devices of a node that is gone.
    pub fn remove(&mut self, ids: &BTreeSet<DeviceId>) {
        let mut known = self.known.as_ref().clone();
        known.retain(|id, _| !ids.contains(id));
        self.known = Arc::new(known);
    }

    /// Those that are there.
    pub fn infos(&self) -> Vec<DeviceInfo> {
        self.known.values().map(|it| it.info.clone()).collect()
    }

    /// What the store knows a device by: its UUID, which stays when indices change, or its name.
    pub fn key(&self, device: DeviceId) -> String {
        self.known.get(&device).map_or_else(
            || device.to_string(),
            |it| it.info.uuid.clone().unwrap_or_else(|| it.info.name.clone()),
        )
    }
}

/// A kind for each product: what a replica takes was measured for devices that are alike (M1).
fn kinds(devices: &[DeviceInfo]) -> BTreeMap<String, KindId> {
    let mut kinds = BTreeMap::new();
    for device in devices {
        let next = KindId(u32::try_from(kinds.len()).unwrap_or(u32::MAX));
        kinds.entry(kind_name(device)).or_insert(next);
    }
    kinds
}

/// What devices that measure the same have in common, by a name that stays over restarts.
pub(super) fn kind_name(device: &DeviceInfo) -> String {
    let product = || format!("{:?}", device.kind).to_lowercase();
    device.product_name.clone().unwrap_or_else(product)
}
