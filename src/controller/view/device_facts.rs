//! The properties of a device that a model's file can select devices by.

use catalog::{DeviceFacts, DeviceSize, Entry};
use inventory::{DeviceInfo, DeviceKind};

pub fn facts_of(info: &DeviceInfo) -> DeviceFacts<'_> {
    DeviceFacts {
        name: &info.name,
        kind: info.kind,
        uuid: info.uuid.as_deref(),
        index: info.index,
        product: info.product_name.as_deref(),
        labels: &info.labels,
    }
}

/// Returns true if the model may use the device: its file allows it, and a replica on several devices takes no MIG slice, because
/// CUDA uses one slice in a process.
pub fn may_use(entry: &Entry, info: &DeviceInfo) -> bool {
    let is_possible = entry.devices_per_replica == 1 || !info.is_slice();
    is_possible && entry.devices.allows(facts_of(info))
}

/// The keys of its file that restrict the devices of a model.
pub fn restriction(entry: &Entry) -> String {
    if entry.devices.is_empty() {
        format!(
            "pool_config.gpus_per_replica {}, for which CUDA uses no MIG slice,",
            entry.devices_per_replica
        )
    } else {
        entry.devices.keys()
    }
}

/// The largest device that the model may use, or the largest device if it may use none.
pub(crate) fn largest_for(entry: &Entry, devices: &[DeviceInfo]) -> Option<DeviceSize> {
    let allowed = devices.iter().filter(|info| may_use(entry, info));
    let largest = allowed.max_by_key(|info| info.total);
    let largest = largest.or_else(|| devices.iter().max_by_key(|info| info.total));
    largest.map(size_of)
}

/// The size and kind of a device, for estimates.
pub fn size_of(info: &DeviceInfo) -> DeviceSize {
    DeviceSize {
        total: info.total,
        is_host: info.kind == DeviceKind::Host,
        is_unified: info.is_unified,
    }
}
