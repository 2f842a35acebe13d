//! What devices there are and what their memory holds (M2). Reads NVIDIA GPUs through NVML, the
//! host's memory through `/proc`, or takes written figures. It only measures: it reserves nothing,
//! stops no process, and does not know which replica a process belongs to.
//!
//! | provider | devices | what is foreign |
//! |---|---|---|
//! | `nvml` | every GPU that NVML gives | used − ours, and what the driver keeps for itself |
//! | `host` | one, `host`, of the configured size | the part of the budget that the machine lacks |
//! | `fixed` | as written | nothing |
//! | `auto` | as `nvml` if its library loads and knows a GPU, otherwise as `host` | |
//!
//! All calls block for as long as the driver takes (usually a millisecond, seconds when a GPU is
//! ill); call them off the async threads.

mod fault;
mod fixed;
mod host;
mod nvml;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub use fault::InventoryFault;

use crate::config::Headroom;
use crate::pool::{Bytes, DeviceId, NodeId};

/// Where devices come from, as configured under `inventory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventorySettings {
    pub provider: Provider,
    /// Memory budget of the device `host`.
    pub host_memory: Bytes,
    /// Kept free on each device (M2).
    pub headroom: Headroom,
    /// The devices of provider `fixed`.
    pub devices: Vec<FixedDevice>,
    /// Another NVML library than the system's.
    pub nvml_library: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Auto,
    Nvml,
    Host,
    Fixed,
}

/// A device as written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedDevice {
    pub name: String,
    pub memory: Bytes,
    /// The node's name; devices with the same one are on the same node.
    pub node: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    Host,
    Nvidia,
}

/// What never changes of a device while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub id: DeviceId,
    /// `gpu0`, `host`, or as written.
    pub name: String,
    pub kind: DeviceKind,
    /// NVML's index, which is what `CUDA_VISIBLE_DEVICES` counts in PCI order; otherwise the place
    /// in the list.
    pub index: u32,
    /// The GPU's own, which stays the same when indices change.
    pub uuid: Option<String>,
    pub node: NodeId,
    pub node_name: String,
    pub total: Bytes,
    pub headroom: Bytes,
    /// Like `NVIDIA H100 80GB HBM3`.
    pub product_name: Option<String>,
}

/// One reading of one device. `used`, `own` and `foreign` are measured at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pub id: DeviceId,
    pub total: Bytes,
    /// Held by anybody.
    pub used: Bytes,
    /// Held by the processes that the caller named as ours.
    pub own: Bytes,
    /// Held by others: never free, never evictable (M2).
    pub foreign: Bytes,
    /// What is known of single processes, ours and others, by process id.
    pub processes: Vec<(u32, Bytes)>,
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
}

/// The devices of this machine, or those that were written down.
#[derive(Debug)]
pub struct Inventory {
    devices: Vec<DeviceInfo>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Nvml(Box<nvml::Gpus>),
    Host(host::Host),
    Fixed,
}

impl Inventory {
    /// Finds the devices. Blocking.
    ///
    /// # Errors
    /// [`InventoryFault`] when provider `nvml` finds no library or no GPU, with the library's own
    /// words, or when a figure in the settings leaves a device without memory.
    pub fn open(settings: &InventorySettings) -> Result<Inventory, InventoryFault> {
        let (mut devices, source) = match settings.provider {
            Provider::Host => host::open(settings.host_memory)?,
            Provider::Fixed => (fixed::devices(&settings.devices)?, Source::Fixed),
            Provider::Nvml => nvml::open(settings.nvml_library.as_deref())?,
            Provider::Auto => match nvml::open(settings.nvml_library.as_deref()) {
                Ok(found) => found,
                // A named library that does not work is probably a mistake; the lack of a driver is
                // not.
                Err(fault) => {
                    if settings.nvml_library.is_some() {
                        tracing::warn!(reason = %fault, "no NVIDIA GPU through the named library, the pool uses the host's memory");
                    } else {
                        tracing::info!(reason = %fault, "no NVIDIA GPU here, the pool uses the host's memory");
                    }
                    host::open(settings.host_memory)?
                }
            },
        };
        for device in &mut devices {
            device.headroom = headroom(settings.headroom, device)?;
        }
        Ok(Inventory { devices, source })
    }

    /// The name of what is really used: `nvml`, `host` or `fixed`.
    pub fn provider(&self) -> &'static str {
        match self.source {
            Source::Nvml(_) => "nvml",
            Source::Host(_) => "host",
            Source::Fixed => "fixed",
        }
    }

    /// The devices in the order of their ids, which count from 0.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// Measures all devices. `ours` are the process ids of all our engines with their children.
    /// Blocking.
    ///
    /// A device whose memory cannot be read is left out: what it holds is unknown, not zero. A
    /// single other figure that cannot be read is absent.
    ///
    /// # Errors
    /// [`InventoryFault::Unreadable`] when no device could be read.
    pub fn read(&self, ours: &BTreeSet<u32>) -> Result<Vec<DeviceUse>, InventoryFault> {
        match &self.source {
            Source::Nvml(gpus) => gpus.read(&self.devices, ours),
            Source::Host(host) => self
                .devices
                .iter()
                .map(|device| host.read(device, ours))
                .collect(),
            Source::Fixed => Ok(self.devices.iter().map(fixed::read).collect()),
        }
    }
}

fn headroom(wanted: Headroom, device: &DeviceInfo) -> Result<Bytes, InventoryFault> {
    let size = wanted.of(device.total);
    if size >= device.total {
        return Err(InventoryFault::Headroom {
            headroom: size,
            device: device.name.clone(),
            total: device.total,
        });
    }
    Ok(size)
}

/// What this machine calls itself.
fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}
