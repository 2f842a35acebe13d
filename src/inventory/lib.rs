//! The machine's devices and their memory use (M2). Only measures, and does not know which replica a process belongs to.
//!
//! | provider | devices | foreign memory |
//! |---|---|---|
//! | `nvml` | every GPU, and every MIG slice, that NVML reports | used − ours, and what the driver keeps for itself |
//! | `amd` | every GPU, and every partition, of amdgpu | used − ours |
//! | `intel` | every GPU with memory, and every tile, of xe and i915 | used − ours |
//! | these, a GPU that shares the machine's memory | the same; its size is the machine's memory | what the machine lacks, − ours |
//! | `command` | as a site's own program prints them | used − ours |
//! | `host` | one, `host`, of the configured size | the part of the budget that the machine lacks |
//! | `fixed` | as written | nothing |
//! | `auto` | all of `nvml`, `amd` and `intel` that find a GPU, otherwise as `host` | |
//!
//! Each provider is one [`source::DeviceSource`]. All calls block for as long as the driver takes: usually a millisecond, at most
//! their deadline if a GPU is faulty. Do not call them on async threads.

mod amd;
mod attribution;
mod cgroup;
mod choice;
mod command_devices;
mod command_run;
mod connection;
mod deadline;
mod device;
mod device_files;
mod error;
mod events;
mod fdinfo;
mod fixed_devices;
mod host;
mod intel;
mod kfd;
mod links;
mod machine;
mod mps;
mod nvml;
mod opening;
mod ownership;
mod source;
mod sysfs;
mod visible;
mod xid_errors;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub use attribution::{Attribution, attribute};
pub use choice::DeviceChoice;
pub use command_run::CommandError;
pub use device::{DeviceInfo, DeviceKind, DeviceUse, EnergyFigure, Link, Reading};
pub use error::{DeviceError, InventoryError};
pub use events::Watch;
pub use fixed_devices::FixedDevice;
pub use machine::{MachineMemory, device_root, machine_memory};
pub use sysfs::{FileError, ROOT_VARIABLE};
pub use visible::{DEVICE_VARIABLES, VISIBLE_DEVICES};
pub use xid_errors::{DeviceEvent, DeviceTrouble, ErrorScope};

use config::MemoryPart;
pub use config::Provider;
use pool::{Bytes, DeviceId};

use opening::Opening;
use source::DeviceSource;
use sysfs::Root;

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
    /// The devices to use of a provider that finds them, with their settings; empty uses all, unchanged.
    pub choices: Vec<DeviceChoice>,
    /// The program of provider `command`, with its arguments.
    pub command: Vec<String>,
    /// The values of [`DEVICE_VARIABLES`] that are set. They limit the devices if `choices` is empty.
    pub environment: BTreeMap<String, String>,
    /// The path of an NVML library to use instead of the system's.
    pub nvml_library: Option<PathBuf>,
    /// The folder of the machine's files, usually `/`.
    pub root: PathBuf,
}

/// The devices of this machine, or the configured ones.
#[derive(Debug)]
pub struct Inventory {
    devices: Vec<DeviceInfo>,
    /// Each source with its devices.
    sources: Vec<(Box<dyn DeviceSource>, Vec<DeviceInfo>)>,
    /// Sentences about devices that exist and are not used.
    excluded: Vec<String>,
    notices: Vec<String>,
    root: Root,
}

impl Inventory {
    /// Finds the devices. Blocks for up to a minute.
    ///
    /// # Errors
    /// [`InventoryError`] if the provider finds no device, with its driver's own message, if the driver does not respond, if the
    /// settings name a device that does not exist, or if a setting leaves a device without memory.
    pub fn open(settings: &InventorySettings) -> Result<Inventory, InventoryError> {
        Inventory::open_within(settings, OPEN_DEADLINE)
    }

    /// Like [`Inventory::open`], with another deadline for drivers.
    ///
    /// # Errors
    /// See [`Inventory::open`].
    pub fn open_within(
        settings: &InventorySettings,
        deadline: Duration,
    ) -> Result<Inventory, InventoryError> {
        let root = Root::new(&settings.root);
        let mut opening = Opening {
            settings,
            deadline,
            root: &root,
            excluded: Vec::new(),
            notices: Vec::new(),
        };
        let mut found = match settings.provider {
            Provider::Host => vec![host::open(settings.host_memory, &root)?],
            Provider::Fixed => vec![fixed_devices::open(&settings.devices)?],
            Provider::Auto => opening.all_makers()?,
            provider => vec![opening.one(provider, false)?],
        };
        let mut inventory = Inventory {
            devices: Vec::new(),
            sources: Vec::new(),
            excluded: opening.excluded,
            notices: opening.notices,
            root,
        };
        let mut products = BTreeMap::new();
        for found in &mut found {
            number(
                &mut found.devices,
                inventory.devices.len(),
                &mut products,
                found.source.provider(),
            );
            found.source.connect(&mut found.devices, deadline)?;
            for device in &mut found.devices {
                device.headroom = headroom(settings.headroom, device)?;
            }
            inventory.devices.extend(found.devices.iter().cloned());
            inventory
                .notices
                .extend(found.source.notice(&found.devices));
        }
        if found.len() > 1 {
            let makers: Vec<&str> = found
                .iter()
                .map(|found| found.source.provider().name())
                .collect();
            inventory.notices.push(format!(
                "this machine has devices of {}: state in each model's file on which of them its engine computes (pool_config.accelerator)",
                makers.join(" and ")
            ));
        }
        let sources = found.into_iter();
        inventory.sources = sources.map(|found| (found.source, found.devices)).collect();
        for sentence in &inventory.excluded {
            tracing::info!("{sentence}");
        }
        for notice in &inventory.notices {
            tracing::warn!("{notice}");
        }
        Ok(inventory)
    }

    /// Returns warnings about a configuration of the devices that is probably a mistake.
    pub fn notice(&self) -> Option<String> {
        (!self.notices.is_empty()).then(|| self.notices.join("; "))
    }

    /// Names the devices of this machine that the environment or the system leaves to other programs.
    pub fn left_out(&self) -> Option<String> {
        (!self.excluded.is_empty()).then(|| self.excluded.join("; "))
    }

    /// The machine's memory next to its devices, for sleeping engines. `None` if it is unknown, or if a GPU shares it: an engine that
    /// sleeps there frees nothing.
    pub fn memory_for_sleepers(&self) -> Option<MachineMemory> {
        let has_unified = self.devices.iter().any(|device| device.is_unified);
        if has_unified {
            None
        } else {
            MachineMemory::read(&self.root)
        }
    }

    /// The provider in use; for [`Provider::Auto`] the first that found devices.
    pub fn provider(&self) -> Provider {
        let first = self.sources.first();
        first.map_or(Provider::Host, |(source, _)| source.provider())
    }

    /// The providers in use, as `nvml and amd`.
    pub fn providers(&self) -> String {
        let names = self.sources.iter();
        let names: Vec<&str> = names.map(|(source, _)| source.provider().name()).collect();
        names.join(" and ")
    }

    /// The devices in the order of their ids, which count from 0.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// Measures all devices, each independently: a GPU that is lost or hangs does not affect the others. `ours` holds the process
    /// ids of all our engines with their children. Returns within five seconds even if a driver does not respond.
    ///
    /// Figures other than memory are absent if they cannot be read.
    pub fn measure(&self, ours: &BTreeSet<u32>) -> Vec<(DeviceId, Reading)> {
        self.measure_within(ours, READ_DEADLINE)
    }

    /// Like [`Inventory::measure`], with another deadline for drivers.
    pub fn measure_within(
        &self,
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        if let [(source, devices)] = self.sources.as_slice() {
            return source.read(devices, ours, deadline);
        }
        // A source that hangs takes no time from the others.
        let all = thread::scope(|scope| {
            let readers: Vec<_> = (self.sources.iter())
                .map(|(source, devices)| scope.spawn(move || source.read(devices, ours, deadline)))
                .collect();
            let each = readers.into_iter().zip(&self.sources);
            let readings = each.map(|(reader, (_, devices))| {
                reader.join().unwrap_or_else(|_| {
                    let unknown = devices.iter().map(|device| {
                        let error = DeviceError::Stale {
                            device: device.name.clone(),
                            since: Duration::ZERO,
                        };
                        (device.id, Err(error))
                    });
                    unknown.collect()
                })
            });
            readings.collect::<Vec<_>>()
        });
        all.into_iter().flatten().collect()
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
        let tell: source::Tell = Arc::new(tell);
        let mut watches = self.sources.iter();
        watches.find_map(|(source, devices)| source.watch(devices, Arc::clone(&tell)))
    }
}

/// Numbers the devices of one source after the devices of earlier sources, and their products over all sources.
fn number(
    devices: &mut [DeviceInfo],
    before: usize,
    products: &mut BTreeMap<(Provider, u32, Option<String>), u32>,
    provider: Provider,
) {
    for (device, id) in devices.iter_mut().zip(before..) {
        device.id = DeviceId(u32::try_from(id).unwrap_or(u32::MAX));
        let next = u32::try_from(products.len()).unwrap_or(u32::MAX);
        let key = (provider, device.product, device.product_name.clone());
        device.product = *products.entry(key).or_insert(next);
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
    if !device.is_unified {
        return Ok(size);
    }
    let least = Bytes(device.installed.0 / UNIFIED_HEADROOM_PART);
    Ok(size.max(least.min(Bytes(device.total.0 / 2))))
}
