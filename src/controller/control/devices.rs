//! The last reading of each device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::view::{DeviceSnapshot, Staleness};
use config::Provider;
use inventory::{DeviceInfo, DeviceUse, Inventory, Link};
use pool::{Bytes, DeviceId, DeviceReading, Event, KindId, NodeId, ReplicaId, Share, Time};

/// Maximum number of products with a separate kind. Nodes choose the names, and the controller forgets none.
const KINDS_MAX: usize = 4096;
/// The kind shared by all further products.
const OTHER_KIND: KindId = KindId(u32::MAX);

#[derive(Debug)]
pub(crate) struct Devices {
    provider: Provider,
    kinds: BTreeMap<String, KindId>,
    /// Triggers an immediate reading of the devices.
    look: Arc<Notify>,
    known: Arc<BTreeMap<DeviceId, DeviceSnapshot>>,
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

    /// The way memory is counted on this machine.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    pub fn kinds(&self) -> &BTreeMap<String, KindId> {
        &self.kinds
    }

    /// Triggers an immediate reading of this machine's devices.
    pub fn look_again(&self) {
        self.look.notify_one();
    }

    /// The signal of [`Devices::look_again`], for the task that reads.
    pub fn look(&self) -> Arc<Notify> {
        Arc::clone(&self.look)
    }

    /// All devices, for readers.
    pub fn known(&self) -> &Arc<BTreeMap<DeviceId, DeviceSnapshot>> {
        &self.known
    }

    pub fn get(&self, device: DeviceId) -> Option<&DeviceSnapshot> {
        self.known.get(&device)
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeviceSnapshot> {
        self.known.values()
    }

    /// The name of a device, for the log.
    pub fn name(&self, device: DeviceId) -> String {
        let known = self.get(device);
        known.map_or_else(|| device.to_string(), |known| known.info.name.clone())
    }

    /// The device with this key in the store.
    pub fn find(&self, key: &str) -> Option<DeviceId> {
        self.known.keys().copied().find(|&id| self.key(id) == key)
    }

    /// The links between these devices and others (M5).
    pub fn links(&self, between: &BTreeSet<DeviceId>) -> Event {
        let mut links = Vec::new();
        for device in between.iter().filter_map(|&id| self.get(id)) {
            for &(other, link) in &device.info.links {
                let link = match link {
                    Link::NvLink => pool::Link::NvLink,
                    Link::SameRoot => pool::Link::SameRoot,
                    Link::Node => pool::Link::Node,
                };
                links.push((device.info.id, other, link));
            }
        }
        Event::LinksRead { links }
    }

    /// The first readings of these devices.
    pub fn unread<'a>(&'a self, ids: impl IntoIterator<Item = &'a DeviceId>) -> Vec<Event> {
        let devices = ids.into_iter().filter_map(|&id| self.get(id));
        let event = |device: &DeviceSnapshot| Event::DeviceRead {
            device: device.info.id,
            reading: self.reading_of(&device.info),
        };
        devices.map(event).collect()
    }

    /// The reading of a device that has not been read yet.
    fn reading_of(&self, info: &DeviceInfo) -> DeviceReading {
        unread(info, &self.kinds)
    }

    /// The name of the controller's machine.
    pub fn own_machine(&self) -> Option<&str> {
        let mut known = self.known.values();
        let own = known.find(|device| device.info.node == NodeId(0));
        own.map(|device| device.info.node_name.as_str())
    }

    /// Adds the devices of a node that joins. Returns the new and changed ones.
    pub fn add(&mut self, infos: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
        let known = Arc::make_mut(&mut self.known);
        let mut new = Vec::new();
        for info in infos {
            if self.kinds.len() < KINDS_MAX {
                let next = KindId(u32::try_from(self.kinds.len()).unwrap_or(u32::MAX));
                self.kinds.entry(kind_name(&info)).or_insert(next);
            }
            let same = known.get(&info.id).is_some_and(|known| *known.info == info);
            if !same {
                known.insert(info.id, DeviceSnapshot::unread(info.clone()));
                new.push(info);
            }
        }
        new
    }

    /// Removes the devices of a node that has left.
    pub fn remove(&mut self, ids: &BTreeSet<DeviceId>) {
        let known = Arc::make_mut(&mut self.known);
        known.retain(|id, _| !ids.contains(id));
    }

    /// Records a reading, for readers and for the pool. `own` is the memory that replicas hold. Returns `None` for an unknown
    /// device.
    ///
    /// Copies the device map only once per published snapshot, not once per reading: a thousand nodes send a thousand readings a
    /// second.
    pub fn read(
        &mut self,
        used: DeviceUse,
        own: BTreeMap<ReplicaId, Bytes>,
        (began, is_measured): (Time, bool),
    ) -> Option<DeviceReading> {
        let device = Arc::make_mut(&mut self.known).get_mut(&used.id)?;
        let reading = DeviceReading {
            taken: is_measured.then_some(began),
            total: used.total,
            foreign: used.foreign,
            own: own
                .iter()
                .map(|(&replica, &bytes)| (replica, bytes))
                .collect(),
            ..unread(&device.info, &self.kinds)
        };
        if device.stale.take().is_some() {
            tracing::info!(device = device.info.name, "the device can be read again");
        }
        device.own = own;
        device.used = Some(used);
        device.read_at = Some(began);
        Some(reading)
    }

    /// Records that a reading started at `began` has failed. The last figures stay.
    pub fn not_read(&mut self, id: DeviceId, why: String, began: Time) {
        let Some(device) = Arc::make_mut(&mut self.known).get_mut(&id) else {
            return;
        };
        match &mut device.stale {
            Some(stale) => stale.why = why,
            None => {
                tracing::warn!(
                    device = device.info.name,
                    why,
                    "the device cannot be read; its last known figures are kept"
                );
                let since = device.read_at.unwrap_or(began);
                device.stale = Some(Staleness { since, why });
            }
        }
    }

    /// The node of a replica's devices.
    pub fn node_of(&self, placement: &[Share]) -> NodeId {
        let first = placement.first();
        let device = first.and_then(|share| self.known.get(&share.device));
        device.map_or(NodeId(0), |device| device.info.node)
    }

    /// The parts of a placement on each node, in the order of the ranks.
    pub fn by_node(&self, placement: &[Share]) -> Vec<(NodeId, Vec<Share>)> {
        let mut parts: Vec<(NodeId, Vec<Share>)> = Vec::new();
        for share in placement {
            let node = self.node_of(std::slice::from_ref(share));
            match parts.iter_mut().find(|(known, _)| *known == node) {
                Some((_, part)) => part.push(*share),
                None => parts.push((node, vec![*share])),
            }
        }
        parts
    }

    /// All existing devices.
    pub fn infos(&self) -> Vec<DeviceInfo> {
        let infos = self.known.values().map(|device| device.info.as_ref());
        infos.cloned().collect()
    }

    /// The key under which the store knows a device: its UUID, which stays when indices change, or its name.
    pub fn key(&self, device: DeviceId) -> String {
        self.known.get(&device).map_or_else(
            || device.to_string(),
            |device| {
                device
                    .info
                    .uuid
                    .clone()
                    .unwrap_or_else(|| device.info.name.clone())
            },
        )
    }
}

fn unread(info: &DeviceInfo, kinds: &BTreeMap<String, KindId>) -> DeviceReading {
    DeviceReading {
        name: info.name.clone(),
        node: info.node,
        kind: kinds.get(&kind_name(info)).copied().unwrap_or(OTHER_KIND),
        total: info.total,
        headroom: info.headroom,
        ..DeviceReading::default()
    }
}

/// Assigns a kind to each product. Memory measurements apply to all devices of a kind (M1).
pub(crate) fn kinds(devices: &[DeviceInfo]) -> BTreeMap<String, KindId> {
    let mut kinds = BTreeMap::new();
    for device in devices {
        let next = KindId(u32::try_from(kinds.len()).unwrap_or(u32::MAX));
        kinds.entry(kind_name(device)).or_insert(next);
    }
    kinds
}

/// The name shared by devices whose measurements are comparable. Stable across restarts.
pub(crate) fn kind_name(device: &DeviceInfo) -> String {
    let product = || format!("{:?}", device.kind).to_lowercase();
    device.product_name.clone().unwrap_or_else(product)
}
