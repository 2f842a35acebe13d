//! Intel GPUs with memory, through the files of the xe and i915 drivers, without a library.
//!
//! xe has the size of each tile in `tileN/physical_vram_size_bytes`. i915 has `lmem_total_bytes` and `lmem_avail_bytes` in the folder
//! of the card where Intel's own driver packages are installed. The memory of processes comes from `fdinfo`, in the regions `vramN`
//! of xe and `localN` of i915. xe reports no sum: what processes of other accounts hold is unknown without the right to read them.
//!
//! Each tile is a device, as Level Zero counts them with `ZE_FLAT_DEVICE_HIERARCHY=FLAT` and without
//! `ZE_ENABLE_PCI_ID_DEVICE_ORDER` (`comparePciIdBusNumber` in Intel's compute-runtime): in the order of the PCI bus, with the GPU of
//! the processor last. GPUs whose file cannot be opened are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::deadline::{Driver, Readers, lock, within};
use super::device_files::closed_drm;
use super::fdinfo::Clients;
use super::ownership::{Figures, Ownership, ProcessList};
use super::source::{DeviceSource, FoundDevices};
use super::sysfs::{FileError, Root};
use super::{DeviceError, DeviceInfo, DeviceKind, InventoryError, Provider, Reading};
use pool::{Bytes, DeviceId};

const INTEL: Driver = Driver {
    name: "Intel's GPU driver",
    tool: "xpu-smi",
};
const CARDS: &str = "/sys/bus/pci/devices";
/// Processes of other programs rarely begin to use a GPU, and finding them takes time.
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Intel(Arc<State>);

#[derive(Debug)]
struct State {
    root: Root,
    /// By the device's index.
    tiles: BTreeMap<u32, Tile>,
    readers: Arc<Readers>,
    ownership: Ownership,
    /// The processes that use a GPU, and when they were found.
    users: Mutex<Option<(Instant, Vec<u32>)>>,
}

#[derive(Clone, Debug)]
struct Tile {
    pci: String,
    /// The region of this tile in `fdinfo`.
    region: String,
    size: String,
    /// The free bytes, where the driver has them.
    available: Option<String>,
}

/// All tiles that this process may open.
pub(super) fn open(root: &Root, deadline: Duration) -> Result<FoundDevices, InventoryError> {
    let root = root.clone();
    within(deadline, INTEL, move || list(root))?
}

fn list(root: Root) -> Result<FoundDevices, InventoryError> {
    let (mut devices, mut tiles) = (Vec::new(), BTreeMap::new());
    let (mut excluded, mut last_error) = (Vec::new(), None);
    let mut index = 0;
    for pci in root.names(CARDS) {
        let folder = format!("{CARDS}/{pci}");
        let text = |name: &str| root.text(format!("{folder}/{name}")).unwrap_or_default();
        let is_gpu = text("vendor").trim() == "0x8086" && text("class").starts_with("0x03");
        if !is_gpu {
            continue;
        }
        let found = tiles_of(&root, &pci);
        let drm = root.names(format!("{folder}/drm"));
        let render = drm.iter().find(|name| name.starts_with("renderD"));
        let problem = render.and_then(|name| closed_drm(&root, &format!("/dev/dri/{name}")));
        if let Some(problem) = problem {
            excluded.push(format!(
                "{problem}, so the pool does not use the Intel GPU at {pci}"
            ));
            last_error = Some(problem);
            continue;
        }
        let first = index;
        // The GPU of a processor, always on bus 0, is counted last. One without a known memory is counted.
        let is_of_processor = pci.starts_with("0000:00:");
        let counted = if is_of_processor {
            0
        } else {
            found.len().max(1)
        };
        index += u32::try_from(counted).unwrap_or(1);
        let several = found.len() > 1;
        for ((tile, part), index) in found.into_iter().zip(0..).zip(first..) {
            match root.number(&tile.size) {
                Ok(bytes) if bytes > 0 => {
                    let id = text("device");
                    devices.push(DeviceInfo {
                        partition: several.then_some(part),
                        product_name: Some(format!("Intel GPU {}", id.trim())),
                        pci: Some(pci.clone()),
                        ..DeviceInfo::new(
                            DeviceKind::Intel,
                            format!("intel{index}"),
                            index,
                            Bytes(bytes),
                        )
                    });
                    tiles.insert(index, tile);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(gpu = index, %error, "the memory of this Intel GPU is unknown; the pool does not use it");
                    last_error = Some(error.to_string());
                }
            }
        }
    }
    if devices.is_empty() {
        return Err(InventoryError::NoDevice {
            maker: "Intel",
            tool: "xpu-smi",
            last_error,
        });
    }
    let source = Intel(Arc::new(State {
        root,
        tiles,
        readers: Arc::default(),
        ownership: Ownership::default(),
        users: Mutex::default(),
    }));
    Ok(FoundDevices {
        excluded,
        ..FoundDevices::new(devices, source)
    })
}

/// The parts of a card with memory; none for a GPU of the processor.
fn tiles_of(root: &Root, pci: &str) -> Vec<Tile> {
    let folder = format!("{CARDS}/{pci}");
    let mut tiles = Vec::new();
    for number in 0..8 {
        let size = format!("{folder}/tile{number}/physical_vram_size_bytes");
        if root.path(&size).exists() {
            tiles.push(Tile {
                pci: pci.to_owned(),
                region: format!("vram{number}"),
                size,
                available: None,
            });
        }
    }
    let cards = root.names(format!("{folder}/drm")).into_iter();
    let card = cards
        .map(|name| format!("{folder}/drm/{name}"))
        .find(|card| root.path(format!("{card}/lmem_total_bytes")).exists());
    match card {
        Some(card) if tiles.is_empty() => vec![Tile {
            pci: pci.to_owned(),
            region: "local0".to_owned(),
            size: format!("{card}/lmem_total_bytes"),
            available: Some(format!("{card}/lmem_avail_bytes")),
        }],
        _ => tiles,
    }
}

impl DeviceSource for Intel {
    fn provider(&self) -> Provider {
        Provider::Intel
    }

    fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let (state, ours) = (Arc::clone(&self.0), ours.clone());
        let clients = OnceLock::new();
        self.0.readers.read_each(devices, deadline, move |device| {
            let clients = clients.get_or_init(|| {
                let all = ours.iter().copied().chain(state.users());
                Clients::of_processes(&state.root, all.collect::<BTreeSet<u32>>())
            });
            let reading = state.read_one(device, clients, &ours);
            reading.map_err(|error| DeviceError::of_file(device, error))
        })
    }
}

impl State {
    /// The processes of all accounts that are seen to use a GPU.
    #[expect(
        clippy::disallowed_methods,
        reason = "the age of the list decides only how often it is read"
    )]
    fn users(&self) -> Vec<u32> {
        let mut users = lock(&self.users);
        if let Some((at, known)) = users.as_ref().filter(|(at, _)| at.elapsed() < LOOK_EVERY) {
            let _ = at;
            return known.clone();
        }
        let uses_a_gpu = |pid: &u32| {
            let files = fs::read_dir(self.root.path(format!("/proc/{pid}/fd")));
            let mut files = files.into_iter().flatten().flatten();
            files.any(|file| {
                fs::read_link(file.path()).is_ok_and(|target| target.starts_with("/dev/dri"))
            })
        };
        let names = self.root.names("/proc").into_iter();
        let found: Vec<u32> = names
            .filter_map(|name| name.parse().ok())
            .filter(uses_a_gpu)
            .collect();
        *users = Some((Instant::now(), found.clone()));
        found
    }

    fn read_one(
        &self,
        device: &DeviceInfo,
        clients: &Clients,
        ours: &BTreeSet<u32>,
    ) -> Result<super::DeviceUse, FileError> {
        let tile = self
            .tiles
            .get(&device.index)
            .ok_or_else(|| FileError::Unreadable {
                path: device.name.clone(),
                source: std::io::ErrorKind::NotFound.into(),
            })?;
        let total = Bytes(self.root.number(&tile.size)?);
        let held = clients.held(&tile.pci, |region| region == tile.region);
        let used = match &tile.available {
            Some(file) => total.saturating_sub(Bytes(self.root.number(file)?)),
            None => held.values().copied().sum::<Bytes>(),
        };
        let figures = Figures {
            total,
            used,
            reserved: Bytes::ZERO,
            listed: ProcessList {
                complete: clients.unreadable.is_disjoint(ours),
                processes: held
                    .into_iter()
                    .map(|(pid, bytes)| (pid, Some(bytes)))
                    .collect(),
            },
            utilisation_percent: None,
            temperature_celsius: None,
            energy: None,
        };
        Ok(self.ownership.dedicated(device, figures, ours))
    }
}
