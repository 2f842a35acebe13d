//! The properties of a device that a model's file can select devices by.

use catalog::{DeviceFacts, Entry};
use inventory::DeviceInfo;
use pool::Bytes;

pub fn facts_of(info: &DeviceInfo) -> DeviceFacts<'_> {
    DeviceFacts {
        name: &info.name,
        uuid: info.uuid.as_deref(),
        index: info.index,
        product: info.product_name.as_deref(),
        labels: &info.labels,
    }
}

/// The memory of the largest device that the model may use, or of the largest device if it may use none.
pub(crate) fn largest_for(entry: &Entry, devices: &[DeviceInfo]) -> Option<Bytes> {
    let allowed = devices
        .iter()
        .filter(|info| entry.devices.is_empty() || entry.devices.allows(facts_of(info)));
    let largest = allowed.map(|info| info.total).max();
    largest.or_else(|| devices.iter().map(|info| info.total).max())
}
