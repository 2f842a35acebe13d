//! NVIDIA GPUs through NVML. Every figure is queried separately, because old drivers, MIG and faulty GPUs each
//! refuse different calls; a refused figure is absent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use super::connection::Connection;
use super::deadline::{Driver, Readers, lock, within};
use super::device_files::closed;
use super::events::{self, Watch};
use super::links::{self, find};
use super::machine::MachineMemory;
use super::mps;
use super::ownership::{Figures, Ownership, ProcessList};
use super::source::{DeviceSource, FoundDevices, Tell};
use super::sysfs::Root;
use super::{DeviceError, DeviceInfo, DeviceKind, EnergyFigure, InventoryError, Provider, Reading};
use pool::{Bytes, DeviceId};

const NVML: Driver = Driver {
    name: "NVML",
    tool: "nvidia-smi",
};

/// The GPUs of NVML, and the slices of those in MIG mode.
#[derive(Clone)]
struct Gpus {
    connection: Arc<Connection>,
    readers: Arc<Readers>,
    ownership: Arc<Ownership>,
    /// Devices with contradictory figures, which are logged only once.
    warned: Arc<Mutex<BTreeSet<DeviceId>>>,
    root: Root,
    environment: BTreeMap<String, String>,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpus").finish_non_exhaustive()
    }
}

/// All GPUs and slices that NVML reports and this process may open, without their links.
pub(super) fn open(
    library: Option<&Path>,
    root: &Root,
    environment: &BTreeMap<String, String>,
    deadline: Duration,
) -> Result<FoundDevices, InventoryError> {
    let library: Option<PathBuf> = library.map(Path::to_owned);
    let files = root.clone();
    let (mut devices, excluded, connection) = within(deadline, NVML, move || {
        let connection = Connection::open(library.as_deref())?;
        let nvml = connection
            .get()
            .map_err(|source| InventoryError::Count { source })?;
        let (devices, excluded) = list(&nvml, &files)?;
        Ok::<_, InventoryError>((devices, excluded, connection))
    })??;
    if mps::daemon(root, environment).is_some() {
        devices.iter_mut().for_each(|device| device.has_mps = true);
    }
    let gpus = Gpus {
        connection: Arc::new(connection),
        readers: Arc::default(),
        ownership: Arc::default(),
        warned: Arc::default(),
        root: root.clone(),
        environment: environment.clone(),
    };
    Ok(FoundDevices {
        excluded,
        ..FoundDevices::new(devices, gpus)
    })
}

fn list(nvml: &Nvml, root: &Root) -> Result<(Vec<DeviceInfo>, Vec<String>), InventoryError> {
    let count = nvml
        .device_count()
        .map_err(|source| InventoryError::Count { source })?;
    let mut devices = Vec::new();
    let mut excluded = Vec::new();
    let mut last_error = None;
    for index in 0..count {
        let found = nvml.device_by_index(index).and_then(|gpu| {
            let file = gpu.minor_number().map(|minor| format!("/dev/nvidia{minor}"));
            if let Some(problem) = file.ok().and_then(|file| closed(root, &file)) {
                return Ok(Err(format!(
                    "{problem}, so the pool does not use GPU {index}"
                )));
            }
            let pci = gpu.pci_info().ok().map(|pci| pci.bus_id);
            let mut parts = slices(&gpu, index)?;
            if parts.is_empty() && is_in_mig_mode(&gpu) {
                return Ok(Err(format!(
                    "GPU {index} is in MIG mode and has no slices, so the pool does not use it; create some with `nvidia-smi mig -cgi`, or leave MIG mode"
                )));
            }
            if parts.is_empty() {
                parts.push(card(&gpu, index, root)?);
            }
            for part in &mut parts {
                part.pci.clone_from(&pci);
            }
            Ok(Ok(parts))
        });
        match found {
            Ok(Ok(parts)) => devices.extend(parts),
            Ok(Err(problem)) => {
                last_error = Some(problem.clone());
                excluded.push(problem);
            }
            Err(error) => {
                tracing::warn!(gpu = index, %error, "NVML cannot read this GPU; the pool does not use it");
                last_error = Some(format!("GPU {index}: {error}"));
            }
        }
    }
    if devices.is_empty() {
        return Err(InventoryError::NoGpu { last_error });
    }
    Ok((devices, excluded))
}

/// A GPU that is one device. A GPU without separate memory shares the machine's: its driver reports a query as not supported.
fn card(gpu: &nvml_wrapper::Device<'_>, index: u32, root: &Root) -> Result<DeviceInfo, NvmlError> {
    let (memory, is_unified) = match gpu.memory_info() {
        Ok(memory) => (Bytes(memory.total), false),
        Err(NvmlError::NotSupported) => {
            let machine = MachineMemory::read(root).ok_or(NvmlError::NotSupported)?;
            (machine.total, true)
        }
        Err(error) => return Err(error),
    };
    Ok(DeviceInfo {
        uuid: gpu.uuid().ok(),
        product_name: gpu.name().ok(),
        is_unified,
        ..DeviceInfo::new(DeviceKind::Nvidia, format!("gpu{index}"), index, memory)
    })
}

fn is_in_mig_mode(gpu: &nvml_wrapper::Device<'_>) -> bool {
    gpu.mig_mode().is_ok_and(|mode| mode.current == 1)
}

/// The energy counter of a GPU, or its power if it has no counter. The figures of a GPU in MIG mode do not belong to one slice.
fn energy(gpu: &nvml_wrapper::Device<'_>, device: &DeviceInfo) -> Option<EnergyFigure> {
    if device.partition.is_some() {
        return None;
    }
    let counter = gpu.total_energy_consumption().ok();
    let power = || Some(EnergyFigure::Power(u64::from(gpu.power_usage().ok()?)));
    counter.map(EnergyFigure::Counter).or_else(power)
}

/// The slices of a GPU in MIG mode ("MIG device handles" in the NVML API reference). NVML counts the places for slices, some of
/// which are empty.
fn slices(gpu: &nvml_wrapper::Device<'_>, index: u32) -> Result<Vec<DeviceInfo>, NvmlError> {
    let mut slices = Vec::new();
    if !is_in_mig_mode(gpu) {
        return Ok(slices);
    }
    for place in 0..gpu.mig_device_count()? {
        let slice = match gpu.mig_device_by_index(place) {
            Ok(slice) => slice,
            Err(NvmlError::NotFound) => continue,
            Err(error) => return Err(error),
        };
        let number = u32::try_from(slices.len()).unwrap_or(u32::MAX);
        let memory = Bytes(slice.memory_info()?.total);
        let name = format!("gpu{index}-mig{number}");
        slices.push(DeviceInfo {
            // An engine can be given a slice only by its UUID.
            uuid: Some(slice.uuid()?),
            product_name: slice.name().ok(),
            partition: Some(number),
            ..DeviceInfo::new(DeviceKind::Nvidia, name, index, memory)
        });
    }
    Ok(slices)
}

impl DeviceSource for Gpus {
    fn provider(&self) -> Provider {
        Provider::Nvml
    }

    /// The links between devices do not change while the program runs.
    fn connect(
        &self,
        devices: &mut Vec<DeviceInfo>,
        deadline: Duration,
    ) -> Result<(), InventoryError> {
        let (connection, mut these) = (Arc::clone(&self.connection), devices.clone());
        *devices = within(deadline, NVML, move || {
            if let Ok(nvml) = connection.get() {
                links::connect(&nvml, &mut these);
            }
            these
        })?;
        Ok(())
    }

    fn notice(&self, devices: &[DeviceInfo]) -> Option<String> {
        let has_mps = devices.iter().any(|device| device.has_mps);
        has_mps.then(|| mps::NOTICE.to_owned())
    }

    fn watch(&self, devices: &[DeviceInfo], tell: Tell) -> Option<Watch> {
        Some(events::watch(&self.connection, devices, &tell))
    }

    fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let (gpus, ours) = (self.clone(), ours.clone());
        self.readers.read_each(devices, deadline, move |device| {
            gpus.read_one(device, &ours)
        })
    }
}

impl Gpus {
    fn read_one(&self, device: &DeviceInfo, ours: &BTreeSet<u32>) -> Reading {
        let fault = |error| DeviceError::new(device, error);
        let nvml = self.connection.get().map_err(fault)?;
        match self.ask(&nvml, device, ours) {
            Ok(reading) => reading,
            Err(error) => {
                self.connection.failed(nvml, &error);
                Err(fault(error))
            }
        }
    }

    fn ask(
        &self,
        nvml: &Nvml,
        device: &DeviceInfo,
        ours: &BTreeSet<u32>,
    ) -> Result<Reading, NvmlError> {
        let gpu = find(nvml, device)?;
        let has_mps = mps::daemon(&self.root, &self.environment).is_some();
        let listed = ProcessList::of_gpu(&gpu, has_mps);
        let mut figures = Figures {
            total: device.installed,
            used: Bytes::ZERO,
            reserved: Bytes::ZERO,
            listed,
            utilisation_percent: gpu.utilization_rates().ok().map(|rates| rates.gpu),
            temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
            energy: energy(&gpu, device),
        };
        if device.is_unified {
            let machine = MachineMemory::read(&self.root).ok_or(NvmlError::NotSupported)?;
            return Ok(Ok(self.ownership.unified(device, machine, figures, ours)));
        }
        if device.partition.is_none() && is_in_mig_mode(&gpu) {
            return Ok(Err(DeviceError::NowInMigMode {
                device: device.name.clone(),
            }));
        }
        let memory = gpu.memory_info()?;
        figures.total = Bytes(memory.total);
        figures.used = Bytes(memory.used);
        figures.reserved = Bytes(memory.reserved);
        if memory.used > memory.total && lock(&self.warned).insert(device.id) {
            tracing::warn!(device = %device.name, used = %figures.used, total = %figures.total, "NVML reports more memory used than the GPU has; the pool treats the GPU as full");
        }
        Ok(Ok(self.ownership.dedicated(device, figures, ours)))
    }
}

impl ProcessList {
    /// The processes that NVML reports, in up to three lists.
    fn of_gpu(gpu: &nvml_wrapper::Device<'_>, has_mps: bool) -> ProcessList {
        let mut processes: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
        let mut complete = true;
        let of_mps = has_mps.then(|| gpu.mps_running_compute_processes());
        let lists = [
            gpu.running_compute_processes(),
            gpu.running_graphics_processes(),
        ];
        for list in lists.into_iter().chain(of_mps) {
            let Ok(list) = list else {
                complete = false;
                continue;
            };
            for process in list {
                let held = match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
                    UsedGpuMemory::Unavailable => None,
                };
                // A process in several lists has the same bytes in each.
                let known = processes.entry(process.pid).or_insert(None);
                *known = (*known).max(held);
            }
        }
        ProcessList {
            processes,
            complete,
        }
    }
}
