//! AMD GPUs through the files of the amdgpu driver, without a library.
//!
//! Memory and load of a card come from its PCI folder (`mem_info_vram_total`, `mem_info_vram_used`, `mem_info_gtt_total`,
//! `gpu_busy_percent`, `unique_id`, `product_name`, `current_compute_partition`: "Misc AMDGPU driver information" and "GPU
//! Power/Thermal Controls and Monitoring" in the kernel's documentation), the GPUs and their processes from KFD (`kfd.rs`) and from
//! `fdinfo`. While the driver resets a GPU, its power files respond with EPERM, or EBUSY since Linux 6.14; a GPU that left the bus
//! has no files.
//!
//! **Partitions.** Each partition of an MI300 is a device: its size is that of its memory banks, its use that of its processes, and
//! an equal part of what no process holds.
//!
//! **APUs** whose memory is mostly the machine's (GTT) share it. With more carved out for graphics than GTT has, that part is the
//! device. Only they have the voltage `vddnb` of a northbridge (`amdgpu_hwmon_show_vddnb` in `amdgpu_pm.c`); KFD's properties do not
//! tell them apart. An MI300A reports no VRAM (`gmc_v9_0_mc_init`): its device is its memory bank.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::deadline::{Driver, Readers, within};
use super::device_files::closed_drm;
use super::fdinfo::Clients;
use super::kfd::{KfdNode, KfdProcesses, nodes};
use super::machine::MachineMemory;
use super::ownership::{Figures, Ownership, ProcessList};
use super::source::{DeviceSource, FoundDevices};
use super::sysfs::{FileError, Root};
use super::{DeviceError, DeviceInfo, DeviceKind, InventoryError, Provider, Reading};
use pool::{Bytes, DeviceId};

const AMDGPU: Driver = Driver {
    name: "the amdgpu driver",
    tool: "rocm-smi",
};

#[derive(Debug)]
struct Amd(Arc<State>);

#[derive(Debug)]
struct State {
    root: Root,
    /// By the device's index.
    nodes: BTreeMap<u32, KfdNode>,
    readers: Arc<Readers>,
    ownership: Ownership,
}

/// Processes of one reading, found once for all devices.
#[derive(Debug, Default)]
struct Processes {
    kfd: KfdProcesses,
    clients: Clients,
}

/// All GPUs and partitions that this process may open. `with_apus` also takes the GPUs of processors, which most machines do not
/// compute on.
pub(super) fn open(
    root: &Root,
    deadline: Duration,
    with_apus: bool,
) -> Result<FoundDevices, InventoryError> {
    let root = root.clone();
    within(deadline, AMDGPU, move || list(root, with_apus))?
}

fn list(root: Root, with_apus: bool) -> Result<FoundDevices, InventoryError> {
    let (all, errors) = nodes(&root);
    let mut excluded: Vec<String> = (errors.iter())
        .map(|error| format!("{error}, so the pool does not use that AMD GPU"))
        .collect();
    let mut last_error = errors.last().map(ToString::to_string);
    let (mut devices, mut used) = (Vec::new(), BTreeMap::new());
    let mut counted = 0_u32;
    for node in &all {
        let parts = all.iter().filter(|other| other.pci == node.pci).count();
        let file = node
            .render_minor
            .map(|minor| format!("/dev/dri/renderD{minor}"));
        let problem = file.and_then(|file| closed_drm(&root, &file));
        if let Some(problem) = problem {
            excluded.push(format!(
                "{problem}, so the pool does not use the AMD GPU at {}",
                node.pci
            ));
            last_error = Some(problem);
            continue;
        }
        // HIP counts every GPU that it can open.
        let index = counted;
        counted += 1;
        if !with_apus && is_apu(&root, node) {
            excluded.push(format!(
                "AMD GPU {index} ({}) is part of the processor: the pool uses it only with inventory.provider amd",
                node.isa
            ));
            continue;
        }
        match device(&root, node, index, parts) {
            Ok(device) => {
                devices.push(device);
                used.insert(index, node.clone());
            }
            Err(error) => {
                tracing::warn!(gpu = index, %error, "amdgpu does not report the memory of this GPU; the pool does not use it");
                last_error = Some(error.to_string());
            }
        }
    }
    if devices.is_empty() {
        return Err(InventoryError::NoDevice {
            maker: "AMD",
            tool: "rocm-smi",
            last_error: last_error.or(excluded.pop()),
        });
    }
    let source = Amd(Arc::new(State {
        root,
        nodes: used,
        readers: Arc::default(),
        ownership: Ownership::default(),
    }));
    Ok(FoundDevices {
        excluded,
        ..FoundDevices::new(devices, source)
    })
}

fn device(root: &Root, node: &KfdNode, index: u32, parts: usize) -> Result<DeviceInfo, FileError> {
    let card = card(node);
    let text = |name: &str| {
        let text = root.text(format!("{card}/{name}")).ok()?;
        let text = text.trim();
        (!text.is_empty() && text.len() < 100).then(|| text.to_owned())
    };
    let vram = root.number(format!("{card}/mem_info_vram_total"))?;
    let gtt = root
        .number(format!("{card}/mem_info_gtt_total"))
        .unwrap_or(0);
    let machine = MachineMemory::read(root);
    let is_unified = vram < gtt && (vram == 0 || is_apu(root, node));
    let memory = match machine {
        // A machine has several MI300A, each with its own part of the memory.
        Some(machine) if vram == 0 && node.memory > Bytes::ZERO => machine.total.min(node.memory),
        Some(machine) if is_unified => machine.total.min(Bytes(gtt)),
        _ if parts > 1 => node.memory,
        _ => Bytes(vram),
    };
    if memory == Bytes::ZERO {
        let path = format!("{card}/mem_info_vram_total");
        let text = "0".to_owned();
        return Err(FileError::NotANumber { path, text });
    }
    let product = text("product_name").unwrap_or_else(|| {
        let id = text("device").unwrap_or_default();
        format!("AMD {} {id}", node.isa).trim().to_owned()
    });
    let modes = || {
        let modes = ["current_compute_partition", "current_memory_partition"].map(text);
        modes.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    let mut info = DeviceInfo::new(DeviceKind::Amd, format!("amd{index}"), index, memory);
    info.is_unified = is_unified;
    info.pci = Some(node.pci.clone());
    if parts > 1 {
        info.partition = Some(node.part);
        info.product_name = Some(format!("{product} {}", modes()).trim().to_owned());
    } else {
        info.uuid = text("unique_id").map(|id| format!("GPU-{}", id.trim_start_matches("0x")));
        info.product_name = Some(product);
    }
    Ok(info)
}

/// Returns true for the GPU of a processor that has other memory than the card's.
fn is_apu(root: &Root, node: &KfdNode) -> bool {
    let folder = format!("{}/hwmon", card(node));
    root.names(&folder).iter().any(|name| {
        let label = root.text(format!("{folder}/{name}/in1_label"));
        label.is_ok_and(|label| label.trim() == "vddnb")
    })
}

fn card(node: &KfdNode) -> String {
    format!("/sys/bus/pci/devices/{}", node.pci)
}

impl DeviceSource for Amd {
    fn provider(&self) -> Provider {
        Provider::Amd
    }

    fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let (state, ours) = (Arc::clone(&self.0), ours.clone());
        let processes = OnceLock::new();
        self.0.readers.read_each(devices, deadline, move |device| {
            let processes = processes.get_or_init(|| Processes {
                kfd: KfdProcesses::read(&state.root),
                clients: Clients::of_processes(&state.root, ours.iter().copied()),
            });
            let reading = state.read_one(device, processes, &ours);
            reading.map_err(|error| fault(device, error))
        })
    }
}

/// The error of a reading. A file that is refused belongs to a GPU that is being reset.
fn fault(device: &DeviceInfo, source: FileError) -> DeviceError {
    match source.kind() {
        Some(ErrorKind::PermissionDenied | ErrorKind::ResourceBusy) => DeviceError::Resetting {
            device: device.name.clone(),
            source,
        },
        _ => DeviceError::of_file(device, source),
    }
}

impl State {
    fn read_one(
        &self,
        device: &DeviceInfo,
        processes: &Processes,
        ours: &BTreeSet<u32>,
    ) -> Result<super::DeviceUse, FileError> {
        let gone = || FileError::Unreadable {
            path: device.name.clone(),
            source: ErrorKind::NotFound.into(),
        };
        let node = self.nodes.get(&device.index).ok_or_else(gone)?;
        let card = card(node);
        let number = |name: &str| self.root.number(format!("{card}/{name}"));
        let total = Bytes(number("mem_info_vram_total")?);
        let used = Bytes(number("mem_info_vram_used")?);
        let utilisation = match number("gpu_busy_percent") {
            Ok(percent) => u32::try_from(percent.min(100)).ok(),
            // Some GPUs have no such file.
            Err(error) if error.is_gone() => None,
            Err(error @ FileError::Unreadable { .. }) => return Err(error),
            Err(_) => None,
        };
        let region = |name: &str| name == "vram" || device.is_unified && name == "gtt";
        let mut held = processes.kfd.on(node.gpu_id);
        if device.partition.is_none() {
            // Vulkan and OpenGL do not go through KFD; ROCm's memory is in both.
            for (pid, bytes) in processes.clients.held(&node.pci, region) {
                let known = held.entry(pid).or_insert(Bytes::ZERO);
                *known = (*known).max(bytes);
            }
        }
        let unreadable = processes.clients.unreadable.iter();
        let hidden = unreadable.filter(|pid| !held.contains_key(pid)).count();
        let mut figures = Figures {
            total,
            used,
            reserved: Bytes::ZERO,
            listed: ProcessList {
                complete: processes.kfd.complete && hidden == 0,
                processes: held
                    .into_iter()
                    .map(|(pid, bytes)| (pid, Some(bytes)))
                    .collect(),
            },
            utilisation_percent: utilisation,
            temperature_celsius: self.temperature(&card),
            energy: None,
        };
        if device.is_unified {
            let machine = MachineMemory::read(&self.root).ok_or_else(gone)?;
            return Ok(self.ownership.unified(device, machine, figures, ours));
        }
        if device.partition.is_some() {
            figures.total = device.installed;
            figures.used = self.used_by_part(node, used, processes);
        }
        Ok(self.ownership.dedicated(device, figures, ours))
    }

    /// The memory of the processes on a partition, and its share of the card's memory that no process holds.
    fn used_by_part(&self, node: &KfdNode, used: Bytes, processes: &Processes) -> Bytes {
        let held = |node: &KfdNode| processes.kfd.on(node.gpu_id).into_values().sum::<Bytes>();
        let parts = self.nodes.values().filter(|other| other.pci == node.pci);
        let (count, all) = parts.fold((0, Bytes::ZERO), |(count, sum), part| {
            (count + 1, sum + held(part))
        });
        held(node) + Bytes(used.saturating_sub(all).0 / count.max(1))
    }

    fn temperature(&self, card: &str) -> Option<u32> {
        let folder = format!("{card}/hwmon");
        let names = self.root.names(&folder);
        let milli = self
            .root
            .number(format!("{folder}/{}/temp1_input", names.first()?));
        u32::try_from(milli.ok()? / 1000).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_driver_refuses_means_a_reset_and_one_that_is_gone_a_lost_gpu() {
        let info = DeviceInfo::new(DeviceKind::Amd, "amd0".to_owned(), 0, Bytes::ZERO);
        let error = |source: std::io::Error| {
            let path = "gpu_busy_percent".to_owned();
            fault(&info, FileError::Unreadable { path, source })
        };
        // EPERM, EBUSY, ENOENT and ENODEV.
        for (number, is_reset, is_lost) in [
            (1, true, false),
            (16, true, false),
            (2, false, true),
            (19, false, true),
            (5, false, false),
        ] {
            let error = error(std::io::Error::from_raw_os_error(number));
            let seen = matches!(error, DeviceError::Resetting { .. });
            assert_eq!((seen, error.is_lost()), (is_reset, is_lost), "{error}");
        }
    }
}
