//! Section `inventory`: the devices that models are placed on. The doc comments are the descriptions in the schema.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{DeviceKind, MemoryPart, Size};
use pool::Bytes;

/// The devices that models are placed on (M2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InventorySection {
    /// The source of the devices. `auto`: all GPUs of NVIDIA, AMD and Intel if there are any, otherwise the host.
    pub provider: Provider,
    /// Maximum host memory that the pool may fill, when the device is the host.
    pub host_memory: Size,
    /// The part of each device that is never used: a share from 0% to 90%, or a size.
    pub headroom: MemoryPart,
    /// The devices of provider `fixed`. With `nvml`, `amd`, `intel` and `command`, the devices to use; an empty list means all.
    pub devices: Vec<FixedDevice>,
    /// The program of provider `command`, with its arguments. It prints the devices and their processes as JSON.
    pub command: Vec<String>,
    /// The program that runs the embedded engine on NVIDIA GPUs; null: `model-pool-cuda` in the folder of `model-pool`.
    pub cuda_program: Option<PathBuf>,
}

impl Default for InventorySection {
    fn default() -> InventorySection {
        InventorySection {
            provider: Provider::Auto,
            host_memory: Size(Bytes(64 * Bytes::MIB)),
            headroom: MemoryPart::Share(500),
            devices: Vec::new(),
            command: Vec::new(),
            cuda_program: None,
        }
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    #[default]
    Auto,
    Nvml,
    Amd,
    Intel,
    Host,
    Fixed,
    Command,
}

impl Provider {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Auto => "auto",
            Provider::Nvml => "nvml",
            Provider::Amd => "amd",
            Provider::Intel => "intel",
            Provider::Host => "host",
            Provider::Fixed => "fixed",
            Provider::Command => "command",
        }
    }

    /// Returns true if the provider reads memory on devices other than the host, by process.
    pub fn measures_devices(self) -> bool {
        match self {
            Provider::Nvml | Provider::Amd | Provider::Intel | Provider::Command => true,
            Provider::Auto | Provider::Host | Provider::Fixed => false,
        }
    }
}

/// A device of provider `fixed`; or, with providers that find devices, one to use, of which the pool fills at most `memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedDevice {
    /// The device's name in API responses and logs; must be unique.
    pub name: String,
    pub memory: Size,
    /// The number of its machine; a replica never spans two machines (M5).
    #[serde(default)]
    pub node: u32,
    /// With providers that find devices: selects the device with this UUID, whatever its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// With providers that find devices: selects the device with this index, whatever its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// With provider `fixed`: the GPU's product name, such as `NVIDIA A100-SXM4-40GB`, which is matched by a model's
    /// `pool_config.devices.kinds` and by the accelerator types of older files.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// With provider `fixed`: the maker of the device, which is matched by a model's `pool_config.accelerator`; `nvidia` if it is
    /// missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<DeviceKind>,
    /// Labels that a model's `pool_config.devices.labels` can select.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}
