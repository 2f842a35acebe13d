//! Devices from the configuration, for simulations, tests and machines whose memory cannot be measured. Their readings are not
//! measurements.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::source::{DeviceSource, FoundDevices};
use super::{DeviceInfo, DeviceKind, DeviceUse, InventoryError, Link, Provider, Reading};
use pool::{Bytes, DeviceId, NodeId};

/// A device from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedDevice {
    pub name: String,
    pub memory: Bytes,
    /// The node's name. Devices with the same node name share a node.
    pub node: String,
    /// The product's name, by which models can select the device too.
    pub product: Option<String>,
    pub kind: DeviceKind,
    /// Labels by which models select it.
    pub labels: Vec<String>,
}

#[derive(Debug)]
struct Fixed;

impl DeviceSource for Fixed {
    fn provider(&self) -> Provider {
        Provider::Fixed
    }

    fn read(
        &self,
        devices: &[DeviceInfo],
        _ours: &BTreeSet<u32>,
        _deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let each = devices.iter();
        each.map(|device| (device.id, Ok(read(device)))).collect()
    }
}

pub(super) fn open(written: &[FixedDevice]) -> Result<FoundDevices, InventoryError> {
    Ok(FoundDevices::new(devices(written)?, Fixed))
}

fn devices(written: &[FixedDevice]) -> Result<Vec<DeviceInfo>, InventoryError> {
    if written.is_empty() {
        return Err(InventoryError::NoFixedDevices);
    }
    let mut names = BTreeSet::new();
    let mut nodes: BTreeMap<&str, NodeId> = BTreeMap::new();
    // Configured devices differ in their size and in their configured product.
    let mut products: BTreeMap<(Bytes, Option<&str>), u32> = BTreeMap::new();
    let mut devices: Vec<DeviceInfo> = Vec::with_capacity(written.len());
    for (index, device) in written.iter().enumerate() {
        let wrong = |problem| InventoryError::FixedDevice {
            index,
            name: device.name.clone(),
            problem,
        };
        if device.name.trim().is_empty() {
            return Err(wrong("it has no name"));
        }
        if !names.insert(device.name.as_str()) {
            return Err(wrong("another device has the same name"));
        }
        if device.memory == Bytes::ZERO {
            return Err(wrong("its memory is 0; write for example 24GiB"));
        }
        let product = device.product.as_deref();
        if product.is_some_and(|name| name.trim().is_empty()) {
            return Err(wrong(
                "its type is empty; write a product's name, or remove it",
            ));
        }
        let next = NodeId(small(nodes.len()));
        let next_product = small(products.len());
        let key = (device.memory, product);
        devices.push(DeviceInfo {
            node: *nodes.entry(&device.node).or_insert(next),
            node_name: device.node.clone(),
            product_name: device.product.clone(),
            product: *products.entry(key).or_insert(next_product),
            labels: device.labels.clone(),
            ..DeviceInfo::new(
                device.kind,
                device.name.clone(),
                small(index),
                device.memory,
            )
        });
    }
    let places: Vec<_> = devices
        .iter()
        .map(|device| (device.id, device.node))
        .collect();
    for device in &mut devices {
        let others = places
            .iter()
            .filter(|(id, node)| *id != device.id && *node == device.node);
        device.links = others.map(|(id, _)| (*id, Link::Node)).collect();
    }
    Ok(devices)
}

fn read(device: &DeviceInfo) -> DeviceUse {
    DeviceUse {
        id: device.id,
        total: device.total,
        used: Bytes::ZERO,
        own: Bytes::ZERO,
        foreign: Bytes::ZERO,
        processes: Vec::new(),
        utilisation_percent: None,
        temperature_celsius: None,
        energy: None,
    }
}

/// No configuration has more than four billion devices.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
