//! NVIDIA GPUs through NVML. Every figure is asked for by itself, because old drivers, MIG and ill
//! GPUs each refuse other calls; what is refused is absent.
//!
//! **Whose memory it is.** Used memory is the sum of what NVML reports, so `foreign = used − ours`
//! plus the part that the driver reserves for itself. That needs the bytes of each of our processes,
//! which NVML does not always give: in a container with its own process ids the list is empty, and
//! under some drivers the bytes are missing. Then, while we have processes, what is ours is found the
//! other way round: `ours = used − foreign`, where foreign is the last figure that was sure on this
//! device (measured while we had no process, or while NVML gave all bytes), but never less than what
//! NVML now reports for others. Growth in between counts as ours. Until a sure figure exists all that
//! is not known to be ours counts as foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{DeviceInfo, DeviceKind, DeviceUse, InventoryFault, Source, machine_name};
use crate::pool::{Bytes, DeviceId, NodeId};

/// The first is what a driver alone installs; the second comes with development packages.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

pub(super) struct Gpus {
    nvml: Nvml,
    /// Foreign memory of each device when it was last sure.
    sure: Mutex<BTreeMap<DeviceId, Bytes>>,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpus").finish_non_exhaustive()
    }
}

pub(super) fn open(library: Option<&Path>) -> Result<(Vec<DeviceInfo>, Source), InventoryFault> {
    let nvml = load(library)?;
    let count = nvml
        .device_count()
        .map_err(|source| InventoryFault::Count { source })?;
    let node_name = machine_name();
    let mut devices = Vec::new();
    let mut last_words = None;
    for index in 0..count {
        let known = nvml.device_by_index(index).and_then(|gpu| {
            let memory = gpu.memory_info()?;
            Ok((gpu.uuid().ok(), gpu.name().ok(), Bytes(memory.total)))
        });
        let (uuid, product_name, total) = match known {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(gpu = index, %error, "NVML cannot read this GPU, the pool does without it");
                last_words = Some(format!("GPU {index}: {error}"));
                continue;
            }
        };
        devices.push(DeviceInfo {
            id: DeviceId(u32::try_from(devices.len()).unwrap_or(u32::MAX)),
            name: format!("gpu{index}"),
            kind: DeviceKind::Nvidia,
            index,
            uuid,
            node: NodeId(0),
            node_name: node_name.clone(),
            total,
            headroom: Bytes::ZERO,
            product_name,
        });
    }
    if devices.is_empty() {
        return Err(InventoryFault::NoGpu { last_words });
    }
    let gpus = Gpus {
        nvml,
        sure: Mutex::default(),
    };
    Ok((devices, Source::Nvml(Box::new(gpus))))
}

fn load(library: Option<&Path>) -> Result<Nvml, InventoryFault> {
    let names: Vec<&OsStr> = match library {
        Some(path) => vec![path.as_os_str()],
        None => LIBRARIES.iter().map(OsStr::new).collect(),
    };
    let mut first_error = None;
    for name in &names {
        match Nvml::builder().lib_path(name).init() {
            Ok(nvml) => return Ok(nvml),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let tried = names
        .iter()
        .map(|name| name.to_string_lossy())
        .collect::<Vec<_>>()
        .join(", ");
    let source = first_error.unwrap_or(NvmlError::LibraryNotFound);
    Err(InventoryFault::NoLibrary { tried, source })
}

impl Gpus {
    pub(super) fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
    ) -> Result<Vec<DeviceUse>, InventoryFault> {
        let mut read = Vec::with_capacity(devices.len());
        let mut last_words = String::new();
        for device in devices {
            match self.read_one(device, ours) {
                Ok(figures) => read.push(figures),
                Err(error) => {
                    tracing::warn!(device = %device.name, %error, "NVML cannot read this GPU's memory");
                    last_words = format!("{}: {error}", device.name);
                }
            }
        }
        if read.is_empty() {
            Err(InventoryFault::Unreadable { last_words })
        } else {
            Ok(read)
        }
    }

    fn read_one(&self, device: &DeviceInfo, ours: &BTreeSet<u32>) -> Result<DeviceUse, NvmlError> {
        // By its own name where it has one: indices change when a GPU falls off the bus.
        let gpu = match &device.uuid {
            Some(uuid) => self.nvml.device_by_uuid(uuid.as_str()),
            None => self.nvml.device_by_index(device.index),
        }?;
        let memory = gpu.memory_info()?;
        let used = Bytes(memory.used);
        let listed = Listed::of(&gpu);
        let own = self.own(device.id, used, &listed, ours);
        Ok(DeviceUse {
            id: device.id,
            total: Bytes(memory.total),
            used,
            own,
            foreign: used.saturating_sub(own) + Bytes(memory.reserved),
            processes: listed
                .processes
                .into_iter()
                .filter_map(|(pid, held)| Some((pid, held?)))
                .collect(),
            utilisation_percent: gpu.utilization_rates().ok().map(|rates| rates.gpu),
            temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
        })
    }

    /// What of `used` is ours, by the rule at the top.
    fn own(&self, device: DeviceId, used: Bytes, listed: &Listed, ours: &BTreeSet<u32>) -> Bytes {
        let held = |mine: bool| -> Bytes {
            listed
                .processes
                .iter()
                .filter(|(pid, _)| ours.contains(pid) == mine)
                .filter_map(|(_, held)| *held)
                .sum()
        };
        let hidden = listed.processes.is_empty() && used > Bytes::ZERO;
        let unknown = listed
            .processes
            .iter()
            .any(|(pid, held)| held.is_none() && ours.contains(pid));
        let mut sure = self.sure.lock().unwrap_or_else(PoisonError::into_inner);
        if ours.is_empty() || (listed.complete && !hidden && !unknown) {
            let own = held(true).min(used);
            sure.insert(device, used.saturating_sub(own));
            return own;
        }
        match sure.get(&device) {
            Some(&foreign) => used.saturating_sub(foreign.max(held(false))),
            None => held(true).min(used),
        }
    }
}

/// The processes that NVML reports, each with its bytes if they are known.
struct Listed {
    processes: BTreeMap<u32, Option<Bytes>>,
    /// Whether both lists could be had.
    complete: bool,
}

impl Listed {
    fn of(gpu: &Device<'_>) -> Listed {
        let mut processes: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
        let mut complete = true;
        for list in [
            gpu.running_compute_processes(),
            gpu.running_graphics_processes(),
        ] {
            let Ok(list) = list else {
                complete = false;
                continue;
            };
            for process in list {
                let held = match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
                    UsedGpuMemory::Unavailable => None,
                };
                // A process in both lists is reported with the same bytes in each.
                let known = processes.entry(process.pid).or_insert(None);
                *known = (*known).max(held);
            }
        }
        Listed {
            processes,
            complete,
        }
    }
}
