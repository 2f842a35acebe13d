//! NVIDIA GPUs through NVML. Every figure is queried separately, because old drivers, MIG and faulty GPUs each
//! refuse different calls; a refused figure is absent.
//!
//! **Attribution.** NVML reports used memory as a sum, so `foreign = used − ours` plus the part that the driver reserves for
//! itself. That requires the bytes of each of our processes, which NVML does not always report: in a container with its own process
//! ids the list is empty, and with some drivers the bytes are missing. While we have processes, ours is then computed the other way
//! round: `ours = used − foreign`, where foreign is the last certain figure of this device (measured while we had no process, or
//! while NVML reported all bytes), but never less than what NVML now reports for others. Growth in between counts as ours. Until
//! there is a certain figure, everything not known to be ours counts as foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use super::connection::Connection;
use super::device::machine_name;
use super::events::{self, Watch};
use super::links::{self, find};
use super::machine::machine_memory;
use super::{DeviceError, DeviceEvent, DeviceInfo, DeviceKind, DeviceUse, InventoryError, Reading};
use pool::{Bytes, DeviceId, NodeId};

#[derive(Clone)]
pub(super) struct Gpus {
    connection: Arc<Connection>,
    memory: Arc<Memory>,
}

/// State kept between readings.
#[derive(Default)]
struct Memory {
    /// Foreign memory of each device when it was last certain.
    sure: Mutex<BTreeMap<DeviceId, Bytes>>,
    /// Unfinished readings with their start times.
    running: Mutex<BTreeMap<DeviceId, Instant>>,
    /// Devices with contradictory figures, which are logged only once.
    warned: Mutex<BTreeSet<DeviceId>>,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpus").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All GPUs that NVML reports, without their links.
pub(super) fn open(
    library: Option<&Path>,
    deadline: Duration,
) -> Result<(Vec<DeviceInfo>, Gpus), InventoryError> {
    let library: Option<PathBuf> = library.map(Path::to_owned);
    let (devices, connection) = within_deadline(deadline, move || {
        let connection = Connection::open(library.as_deref())?;
        let nvml = connection
            .get()
            .map_err(|source| InventoryError::Count { source })?;
        let devices = list(&nvml)?;
        Ok((devices, connection))
    })??;
    let gpus = Gpus {
        connection: Arc::new(connection),
        memory: Arc::default(),
    };
    Ok((devices, gpus))
}

/// Runs a call of NVML on a separate thread, because it cannot be cancelled. A thread that does not return in
/// time is abandoned.
fn within_deadline<T: Send + 'static>(
    deadline: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, InventoryError> {
    let (sender, results) = mpsc::channel();
    let ask = move || drop(sender.send(act()));
    thread::Builder::new()
        .name("nvml".into())
        .spawn(ask)
        .map_err(|source| InventoryError::Thread { source })?;
    results
        .recv_timeout(deadline)
        .map_err(|_| InventoryError::Hangs {
            seconds: deadline.as_secs(),
        })
}

fn list(nvml: &Nvml) -> Result<Vec<DeviceInfo>, InventoryError> {
    let count = nvml
        .device_count()
        .map_err(|source| InventoryError::Count { source })?;
    let node_name = machine_name();
    let mut devices = Vec::new();
    let mut products: BTreeMap<Option<String>, u32> = BTreeMap::new();
    let mut last_error = None;
    for index in 0..count {
        let known = nvml.device_by_index(index).and_then(|gpu| {
            let memory = match gpu.memory_info() {
                Ok(memory) => (Bytes(memory.total), false),
                // A GPU without separate memory shares the machine's (`unified.rs`).
                Err(NvmlError::NotSupported) => {
                    let machine = machine_memory().ok_or(NvmlError::NotSupported)?;
                    (machine.total, true)
                }
                Err(error) => return Err(error),
            };
            let pci = gpu.pci_info().ok().map(|pci| pci.bus_id);
            Ok((gpu.uuid().ok(), gpu.name().ok(), pci, memory))
        });
        let (uuid, product_name, pci, (installed, is_unified)) = match known {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(gpu = index, %error, "NVML cannot read this GPU; the pool does not use it");
                last_error = Some(format!("GPU {index}: {error}"));
                continue;
            }
        };
        let next = u32::try_from(products.len()).unwrap_or(u32::MAX);
        devices.push(DeviceInfo {
            id: DeviceId(u32::try_from(devices.len()).unwrap_or(u32::MAX)),
            name: format!("gpu{index}"),
            kind: DeviceKind::Nvidia,
            index,
            uuid,
            node: NodeId(0),
            node_name: node_name.clone(),
            total: installed,
            installed,
            is_unified,
            headroom: Bytes::ZERO,
            product: *products.entry(product_name.clone()).or_insert(next),
            product_name,
            pci,
            links: Vec::new(),
            labels: Vec::new(),
        });
    }
    if devices.is_empty() {
        return Err(InventoryError::NoGpu { last_error });
    }
    Ok(devices)
}

impl Gpus {
    /// Finds the links between these devices, which do not change while the program runs.
    pub(super) fn connect(
        &self,
        devices: &mut Vec<DeviceInfo>,
        deadline: Duration,
    ) -> Result<(), InventoryError> {
        let (connection, mut these) = (Arc::clone(&self.connection), devices.clone());
        *devices = within_deadline(deadline, move || {
            if let Ok(nvml) = connection.get() {
                links::connect(&nvml, &mut these);
            }
            these
        })?;
        Ok(())
    }

    pub(super) fn watch(
        &self,
        devices: &[DeviceInfo],
        tell: impl Fn(DeviceEvent) + Send + Sync + 'static,
    ) -> Watch {
        events::watch(&self.connection, devices, tell)
    }

    /// Reads each device on a separate thread, in the order of the devices. A device with an unanswered reading
    /// is not queried again.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long NVML takes is what is measured here"
    )]
    pub(super) fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let began = Instant::now();
        let ours = Arc::new(ours.clone());
        let (sender, results) = mpsc::channel();
        let mut readings: BTreeMap<DeviceId, Reading> = BTreeMap::new();
        for device in devices {
            let earlier = *lock(&self.memory.running).entry(device.id).or_insert(began);
            if earlier != began {
                continue;
            }
            let (gpus, ours, sender) = (self.clone(), Arc::clone(&ours), sender.clone());
            let own = device.clone();
            let ask = move || {
                let reading = {
                    let _running = ReadingGuard(&gpus.memory, own.id);
                    gpus.read_one(&own, &ours)
                };
                // The receiver is gone if this comes too late.
                let _ = sender.send((own.id, reading));
            };
            let name = format!("read-{}", device.name);
            if let Err(source) = thread::Builder::new().name(name).spawn(ask) {
                lock(&self.memory.running).remove(&device.id);
                let device_name = device.name.clone();
                let error = DeviceError::Thread {
                    device: device_name,
                    source,
                };
                readings.insert(device.id, Err(error));
            }
        }
        drop(sender);
        // Ends when all have responded, because each holds a sender of the channel.
        while let Ok((id, reading)) = results.recv_timeout(deadline.saturating_sub(began.elapsed()))
        {
            readings.insert(id, reading);
        }
        let running = lock(&self.memory.running).clone();
        let each = devices.iter().map(|device| {
            let stale = || {
                let since = running.get(&device.id).unwrap_or(&began).elapsed();
                Err(DeviceError::Stale {
                    device: device.name.clone(),
                    since,
                })
            };
            (device.id, readings.remove(&device.id).unwrap_or_else(stale))
        });
        each.collect()
    }

    fn read_one(&self, device: &DeviceInfo, ours: &BTreeSet<u32>) -> Reading {
        let fault = |error| DeviceError::new(&device.name, error);
        let nvml = self.connection.get().map_err(fault)?;
        match self.ask(&nvml, device, ours) {
            Ok(read) => Ok(read),
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
    ) -> Result<DeviceUse, NvmlError> {
        let gpu = find(nvml, device)?;
        if device.is_unified {
            return self.ask_unified(&gpu, device, ours);
        }
        let memory = gpu.memory_info()?;
        let there = Bytes(memory.total);
        if memory.used > memory.total && lock(&self.memory.warned).insert(device.id) {
            tracing::warn!(device = %device.name, used = %Bytes(memory.used), total = %there, "NVML reports more memory used than the GPU has; the pool treats the GPU as full");
        }
        let used = Bytes(memory.used).min(there);
        let listed = ProcessList::new(&gpu);
        let own = self.own(device.id, used, &listed, ours);
        let foreign = used.saturating_sub(own) + Bytes(memory.reserved);
        let foreign = foreign.min(there.saturating_sub(own));
        // Memory of other programs outside the pool's part does not reduce that part.
        let total = if device.total < device.installed {
            device.total.min(there)
        } else {
            there
        };
        Ok(DeviceUse {
            id: device.id,
            total,
            used: used.min(total).max(own),
            own,
            foreign: foreign.saturating_sub(there.saturating_sub(total)),
            processes: listed.known(),
            utilisation_percent: gpu.utilization_rates().ok().map(|rates| rates.gpu),
            temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
        })
    }

    /// The pool's part of `used`, by the rule at the top.
    pub(super) fn own(
        &self,
        device: DeviceId,
        used: Bytes,
        listed: &ProcessList,
        ours: &BTreeSet<u32>,
    ) -> Bytes {
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
        let mut sure = lock(&self.memory.sure);
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

/// Removes its entry even if the reading panics.
struct ReadingGuard<'a>(&'a Memory, DeviceId);

impl Drop for ReadingGuard<'_> {
    fn drop(&mut self) {
        lock(&self.0.running).remove(&self.1);
    }
}

/// The processes that NVML reports, each with its bytes if known.
pub(super) struct ProcessList {
    pub processes: BTreeMap<u32, Option<Bytes>>,
    /// True if both lists could be read.
    pub complete: bool,
}

impl ProcessList {
    pub fn new(gpu: &nvml_wrapper::Device<'_>) -> ProcessList {
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
                // A process in both lists has the same bytes in each.
                let known = processes.entry(process.pid).or_insert(None);
                *known = (*known).max(held);
            }
        }
        ProcessList {
            processes,
            complete,
        }
    }

    pub fn known(self) -> Vec<(u32, Bytes)> {
        let known = |(pid, held): (u32, Option<Bytes>)| Some((pid, held?));
        self.processes.into_iter().filter_map(known).collect()
    }
}
