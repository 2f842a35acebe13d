//! The machine's devices and their memory use (M2). Reads NVIDIA GPUs through NVML and host memory through `/proc`, or uses
//! configured figures. Only measures, and does not know which replica a process belongs to.
//!
//! | provider | devices | foreign memory |
//! |---|---|---|
//! | `nvml` | every GPU that NVML reports | used − ours, and what the driver keeps for itself |
//! | `nvml`, a GPU that shares the machine's memory | the same; its size is the machine's memory | what the machine lacks, − ours |
//! | `host` | one, `host`, of the configured size | the part of the budget that the machine lacks |
//! | `fixed` | as written | nothing |
//! | `auto` | as `nvml` if its library loads and finds a GPU, otherwise as `host` | |
//!
//! All calls block for as long as the driver takes: usually a millisecond, at most their deadline if a GPU is faulty. Do not call
//! them on async threads.

mod attribution;
mod choice;
mod connection;
mod device;
mod error;
mod events;
mod fixed_devices;
mod host;
mod links;
mod machine;
mod nvml;
mod source;
mod unified;
mod visible;
mod xid_errors;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

pub use attribution::{Attribution, attribute};
pub use choice::DeviceChoice;
pub use device::{DeviceInfo, DeviceKind, DeviceUse, Link, Reading};
pub use error::{DeviceError, InventoryError};
pub use events::Watch;
pub use fixed_devices::FixedDevice;
pub use machine::{MachineMemory, machine_memory};
pub use visible::VISIBLE_DEVICES;
pub use xid_errors::{DeviceEvent, DeviceTrouble, ErrorScope};

use config::MemoryPart;
pub use config::Provider;
use pool::{Bytes, DeviceId};

use source::Source;

/// Working GPUs respond within milliseconds.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// Without persistence mode, the driver first initialises each GPU, which takes seconds each.
const OPEN_DEADLINE: Duration = Duration::from_secs(60);

/// The least headroom of a GPU that shares the machine's memory, as a part of that memory: the system and other programs grow too.
const UNIFIED_HEADROOM_PART: u64 = 16;

/// The source of devices, as configured under `inventory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventorySettings {
    pub provider: Provider,
    /// Memory budget of the device `host`.
    pub host_memory: Bytes,
    /// Memory kept free on each device (M2).
    pub headroom: MemoryPart,
    /// The devices of provider `fixed`.
    pub devices: Vec<FixedDevice>,
    /// The GPUs of provider `nvml` to use, with their settings; empty uses all, unchanged.
    pub choices: Vec<DeviceChoice>,
    /// The value of `CUDA_VISIBLE_DEVICES`, which limits the GPUs if `choices` is empty.
    pub visible: Option<String>,
    /// The path of an NVML library to use instead of the system's.
    pub nvml_library: Option<PathBuf>,
}

/// The devices of this machine, or the configured ones.
#[derive(Debug)]
pub struct Inventory {
    devices: Vec<DeviceInfo>,
    source: Source,
    /// The GPUs that `CUDA_VISIBLE_DEVICES` leaves out.
    left_out: Option<String>,
    /// The GPUs that the configuration takes although the variable leaves them out.
    taken_anyway: Option<String>,
}

impl Inventory {
    /// Finds the devices. Blocks for up to a minute.
    ///
    /// # Errors
    /// [`InventoryError`] if provider `nvml` finds no library or no GPU, with the library's own message, if NVML does not respond,
    /// if the settings name a GPU that does not exist, or if a setting leaves a device without memory.
    pub fn open(settings: &InventorySettings) -> Result<Inventory, InventoryError> {
        Inventory::open_within(settings, OPEN_DEADLINE)
    }

    /// Like [`Inventory::open`], with another deadline for NVML.
    ///
    /// # Errors
    /// See [`Inventory::open`].
    pub fn open_within(
        settings: &InventorySettings,
        deadline: Duration,
    ) -> Result<Inventory, InventoryError> {
        let visible = settings.visible.as_deref();
        let visible = visible.filter(|_| settings.choices.is_empty());
        let nvml = || match visible.filter(|value| visible::names(value).is_empty()) {
            Some(value) => Err(InventoryError::NoneVisible {
                value: value.to_owned(),
            }),
            None => nvml::open(settings.nvml_library.as_deref(), deadline)
                .map(|(found, gpus)| (found, Source::Nvml(Box::new(gpus)))),
        };
        let host = || {
            let (devices, host) = host::open(settings.host_memory)?;
            Ok((devices, Source::Host(host)))
        };
        let (mut devices, source) = match settings.provider {
            Provider::Host => host()?,
            Provider::Fixed => (fixed_devices::devices(&settings.devices)?, Source::Fixed),
            Provider::Nvml => nvml()?,
            Provider::Auto => match nvml() {
                Ok(found) => found,
                // A driver exists but does not respond: host memory would not be a replacement.
                Err(error @ InventoryError::Hangs { .. }) => return Err(error),
                // A named library that does not work is probably a mistake; a missing driver is not.
                Err(error) => {
                    let reason = error.why_no_gpu();
                    if settings.nvml_library.is_some() {
                        tracing::warn!(%reason, "no NVIDIA GPU through the named library; the pool uses the host's memory");
                    } else {
                        tracing::info!(%reason, "no NVIDIA GPU here; the pool uses the host's memory");
                    }
                    host()?
                }
            },
        };
        let (mut left_out, mut taken_anyway) = (None, None);
        if let Source::Nvml(gpus) = &source {
            let found = devices;
            devices = match visible {
                Some(value) => visible::visible(&found, value)?,
                None => choice::choose(found.clone(), &settings.choices)?,
            };
            if visible.is_some() {
                left_out = visible::left_out(&found, &devices);
            } else if let Some(value) = &settings.visible {
                let lent = visible::visible(&found, value).unwrap_or_default();
                taken_anyway = visible::left_out(&devices, &lent);
            }
            gpus.connect(&mut devices, deadline)?;
        }
        for device in &mut devices {
            device.headroom = headroom(settings.headroom, device)?;
            if device.is_unified {
                let least = Bytes(device.installed.0 / UNIFIED_HEADROOM_PART);
                let least = least.min(Bytes(device.total.0 / 2));
                device.headroom = device.headroom.max(least);
            }
        }
        let inventory = Inventory {
            devices,
            source,
            left_out,
            taken_anyway,
        };
        if let Some(others) = inventory.left_out() {
            tracing::info!("{others}");
        }
        if let Some(notice) = inventory.notice() {
            tracing::warn!("{notice}");
        }
        Ok(inventory)
    }

    /// Returns a warning about a configuration of the devices that is probably a mistake.
    pub fn notice(&self) -> Option<String> {
        if let Some(others) = &self.taken_anyway {
            return Some(format!(
                "inventory.devices takes the GPUs of {others}, which {VISIBLE_DEVICES} leaves out: the configuration counts"
            ));
        }
        let budget = self.devices.first()?.total;
        match self.source {
            Source::Host(_) => host::too_much(budget, machine_memory()),
            Source::Nvml(_) | Source::Fixed => None,
        }
    }

    /// Names the GPUs of this machine that the environment leaves to other programs.
    pub fn left_out(&self) -> Option<String> {
        let others = self.left_out.as_deref()?;
        Some(format!(
            "{VISIBLE_DEVICES} leaves out the GPUs of {others}: the pool does not use them"
        ))
    }

    /// The machine's memory next to its devices, for sleeping engines. `None` if it is unknown, or if a GPU shares it: an engine that
    /// sleeps there frees nothing.
    pub fn memory_for_sleepers(&self) -> Option<MachineMemory> {
        let has_unified = self.devices.iter().any(|device| device.is_unified);
        if has_unified { None } else { machine_memory() }
    }

    /// The provider in use; never [`Provider::Auto`].
    pub fn provider(&self) -> Provider {
        match self.source {
            Source::Nvml(_) => Provider::Nvml,
            Source::Host(_) => Provider::Host,
            Source::Fixed => Provider::Fixed,
        }
    }

    /// The devices in the order of their ids, which count from 0.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// Measures all devices, each independently: a GPU that is lost or hangs does not affect the others. `ours` holds the process
    /// ids of all our engines with their children. Returns within five seconds even if NVML does not respond.
    ///
    /// Figures other than memory are absent if they cannot be read.
    pub fn measure(&self, ours: &BTreeSet<u32>) -> Vec<(DeviceId, Reading)> {
        self.measure_within(ours, READ_DEADLINE)
    }

    /// Like [`Inventory::measure`], with another deadline for NVML.
    pub fn measure_within(
        &self,
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let devices = self.devices.iter();
        match &self.source {
            Source::Nvml(gpus) => gpus.read(&self.devices, ours, deadline),
            Source::Host(host) => devices
                .map(|device| (device.id, Ok(host.read(device, ours))))
                .collect(),
            Source::Fixed => devices
                .map(|device| (device.id, Ok(fixed_devices::read(device))))
                .collect(),
        }
    }

    /// The devices that could be measured. The memory use of the others is unknown, not zero.
    ///
    /// # Errors
    /// [`InventoryError::Unreadable`] if no device could be read.
    pub fn read(&self, ours: &BTreeSet<u32>) -> Result<Vec<DeviceUse>, InventoryError> {
        let mut read = Vec::with_capacity(self.devices.len());
        let mut last_error = String::new();
        for (_, reading) in self.measure(ours) {
            match reading {
                Ok(figures) => read.push(figures),
                Err(error) => {
                    tracing::warn!(%error, "a device cannot be read");
                    last_error = error.to_string();
                }
            }
        }
        if read.is_empty() {
            Err(InventoryError::Unreadable { last_error })
        } else {
            Ok(read)
        }
    }

    /// Calls `tell`, on separate threads, for each Xid, double-bit memory error and loss of a GPU from now on, until the watch is
    /// dropped. `None` for devices that report nothing: configured ones and the host.
    ///
    /// Events while the driver is away are not reported; the next reading shows their effect.
    pub fn events(&self, tell: impl Fn(DeviceEvent) + Send + Sync + 'static) -> Option<Watch> {
        match &self.source {
            Source::Nvml(gpus) => Some(gpus.watch(&self.devices, tell)),
            Source::Host(_) | Source::Fixed => None,
        }
    }
}

fn headroom(wanted: MemoryPart, device: &DeviceInfo) -> Result<Bytes, InventoryError> {
    let size = wanted.resolve(device.total);
    if size >= device.total {
        return Err(InventoryError::MemoryPart {
            headroom: size,
            device: device.name.clone(),
            total: device.total,
        });
    }
    Ok(size)
}
