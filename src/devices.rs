//! Where devices come from, as the configuration says: for `serve`, and for `check`.

use std::path::PathBuf;

use config::{Config, Provider};
use inventory::InventorySettings;

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
                labels: device.labels.clone(),
            })
            .collect(),
        choices: section
            .devices
            .iter()
            .filter(|_| section.provider == Provider::Nvml)
            .map(|device| inventory::DeviceChoice {
                name: Some(device.name.clone()),
                index: device.index,
                uuid: device.uuid.clone(),
                memory: Some(device.memory.0),
                labels: device.labels.clone(),
            })
            .collect(),
        nvml_library: std::env::var_os("MODEL_POOL_NVML_LIBRARY").map(PathBuf::from),
    }
}
