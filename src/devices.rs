//! The devices according to the configuration, for `serve`, `check`, `node` and `simulate`.

use std::path::PathBuf;

use config::Config;
use inventory::{DeviceChoice, DeviceInfo, DeviceKind, Inventory, InventorySettings};
use pool::DeviceReading;
use simulate::MachineDevices;

pub(crate) fn settings(config: &Config) -> InventorySettings {
    let section = &config.inventory;
    InventorySettings {
        provider: section.provider,
        host_memory: section.host_memory.0,
        headroom: section.headroom,
        devices: section
            .devices
            .iter()
            .map(|device| inventory::FixedDevice {
                name: device.name.clone(),
                memory: device.memory.0,
                node: device.node.to_string(),
                product: device.product.clone(),
                kind: device.accelerator.unwrap_or(DeviceKind::Nvidia),
                labels: device.labels.clone(),
            })
            .collect(),
        choices: section
            .devices
            .iter()
            .filter(|_| section.provider.measures_devices())
            .map(|device| DeviceChoice {
                name: Some(device.name.clone()),
                index: device.index,
                uuid: device.uuid.clone(),
                memory: Some(device.memory.0),
                labels: device.labels.clone(),
            })
            .collect(),
        command: section.command.clone(),
        environment: inventory::DEVICE_VARIABLES
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect(),
        nvml_library: std::env::var_os("MODEL_POOL_NVML_LIBRARY").map(PathBuf::from),
        root: inventory::device_root().to_owned(),
    }
}

/// The devices that `serve` would find, with no memory in use.
pub(crate) fn found(config: &Config) -> Result<MachineDevices, String> {
    let inventory = Inventory::open(&settings(config)).map_err(|error| error.to_string())?;
    let devices = inventory.devices();
    Ok(MachineDevices {
        readings: devices.iter().map(unused).collect(),
        has_gpus: devices.iter().any(|device| device.kind.is_gpu()),
    })
}

/// The reading of an unused device.
pub(crate) fn unused(info: &DeviceInfo) -> DeviceReading {
    DeviceReading {
        name: info.name.clone(),
        node: info.node,
        total: info.total,
        headroom: info.headroom,
        ..DeviceReading::default()
    }
}
