//! The devices that the environment leaves to this process. Slurm, Ray, container runtimes and administrators of shared machines
//! lend some of a machine's GPUs through these variables, and may lend the others to other jobs.
//!
//! | variable | read for | format |
//! |---|---|---|
//! | `CUDA_VISIBLE_DEVICES` | NVIDIA; AMD as `HIP_VISIBLE_DEVICES`, if that is empty and no NVIDIA GPU is in use | CUDA C++ Programming Guide, "CUDA Environment Variables": indices, UUIDs, UUIDs of MIG slices |
//! | `NVIDIA_VISIBLE_DEVICES` | NVIDIA, without the first | NVIDIA Container Toolkit, "GPU Enumeration": also `all`, `none`, `void`, and `0:1` for a slice |
//! | `ROCR_VISIBLE_DEVICES` | AMD; an empty value hides all | ROCm, "GPU isolation techniques": indices and UUIDs |
//! | `HIP_VISIBLE_DEVICES` | AMD; indices count what the former leaves | the same page, and `Device::init` in `rocdevice.cpp` of ROCm's clr: indices and UUIDs |
//! | `ZE_AFFINITY_MASK` | Intel | Level Zero, "Environment Variables", and `parseAffinityMask` in Intel's compute-runtime: indices |
//!
//! Indices count in the order of the driver: for CUDA in that of the PCI bus, as in `nvidia-smi`. Level Zero counts tiles unless
//! `ZE_FLAT_DEVICE_HIERARCHY` is `COMPOSITE`, and GPUs of the processor last unless `ZE_ENABLE_PCI_ID_DEVICE_ORDER` is 1.

use std::collections::BTreeMap;

use super::choice::list;
use super::mps::PIPE_DIRECTORY;
use super::{DeviceInfo, DeviceKind, InventoryError, Provider};
use pool::DeviceId;

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const CUDA_ORDER: &str = "CUDA_DEVICE_ORDER";
const NVIDIA: &str = "NVIDIA_VISIBLE_DEVICES";
const ROCR: &str = "ROCR_VISIBLE_DEVICES";
const HIP: &str = "HIP_VISIBLE_DEVICES";
const LEVEL_ZERO: &str = "ZE_AFFINITY_MASK";
const LEVEL_ZERO_TILES: &str = "ZE_FLAT_DEVICE_HIERARCHY";
const LEVEL_ZERO_ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";

/// The variables that decide which devices are used, and how they are shared.
pub const DEVICE_VARIABLES: [&str; 9] = [
    CUDA,
    CUDA_ORDER,
    NVIDIA,
    ROCR,
    HIP,
    LEVEL_ZERO,
    LEVEL_ZERO_TILES,
    LEVEL_ZERO_ORDER,
    PIPE_DIRECTORY,
];

/// The variable of a Slurm job whose GPUs are found in another way.
pub const VISIBLE_DEVICES: &str = CUDA;

/// The devices of one maker that the environment leaves.
#[derive(Debug)]
pub(super) struct VisibleDevices {
    /// In the order of the variable, renumbered.
    pub devices: Vec<DeviceInfo>,
    /// The variables that decided, as in `A and B`.
    pub by: String,
}

/// One variable that applies, and how its indices count.
struct Limit<'a> {
    variable: &'static str,
    value: &'a str,
    /// Indices count in the list that the variable before has left.
    by_position: bool,
}

/// The devices that the environment leaves of `found`, which are of one kind; `None` if no variable limits them. `with_nvidia` says
/// that GPUs of NVIDIA are also in use.
///
/// # Errors
/// [`InventoryError::NotVisible`] if a name matches no device, several, or the device of an earlier name, and
/// [`InventoryError::NoneVisible`] if no device is left.
pub(super) fn visible(
    found: &[DeviceInfo],
    environment: &BTreeMap<String, String>,
    provider: Provider,
    with_nvidia: bool,
) -> Result<Option<VisibleDevices>, InventoryError> {
    let limits = limits(found, environment, with_nvidia);
    let Some(last) = limits.last() else {
        return Ok(None);
    };
    if let Some(problem) = other_count(found, environment) {
        return Err(InventoryError::NotVisible {
            variable: last.variable,
            value: last.value.into(),
            name: last.value.into(),
            problem,
            known: list(found),
            provider: provider.name(),
        });
    }
    let by: Vec<&str> = limits.iter().map(|limit| limit.variable).collect();
    let mut devices = found.to_vec();
    for limit in &limits {
        devices = narrowed(&devices, limit, provider)?;
    }
    if devices.is_empty() {
        return Err(InventoryError::NoneVisible {
            variable: last.variable,
            value: last.value.to_owned(),
            provider: provider.name(),
        });
    }
    for (device, id) in devices.iter_mut().zip(0..) {
        device.id = DeviceId(id);
    }
    Ok(Some(VisibleDevices {
        devices,
        by: by.join(" and "),
    }))
}

fn limits<'a>(
    found: &[DeviceInfo],
    environment: &'a BTreeMap<String, String>,
    with_nvidia: bool,
) -> Vec<Limit<'a>> {
    let limit = |variable: &'static str, by_position| {
        let value = environment.get(variable)?;
        Some(Limit {
            variable,
            value,
            by_position,
        })
    };
    // HIP and Level Zero take an empty value for an unset variable, and Level Zero also `default`.
    let filled = |limit: &Limit<'_>| !limit.value.trim().is_empty();
    match found.first().map(|device| device.kind) {
        Some(DeviceKind::Nvidia) => {
            let of_container = || limit(NVIDIA, false).filter(|limit| is_list(found, limit.value));
            limit(CUDA, false)
                .or_else(of_container)
                .into_iter()
                .collect()
        }
        Some(DeviceKind::Amd) => {
            let rocr = limit(ROCR, false);
            let hip = limit(HIP, rocr.is_some()).filter(filled);
            let cuda = limit(CUDA, rocr.is_some()).filter(filled);
            // Slurm without AutoDetect sets ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES to the same list, which counts once.
            let is_same =
                |cuda: &Limit<'_>| rocr.as_ref().is_some_and(|rocr| rocr.value == cuda.value);
            let cuda = cuda.filter(|cuda| hip.is_none() && !with_nvidia && !is_same(cuda));
            [rocr, hip, cuda].into_iter().flatten().collect()
        }
        Some(DeviceKind::Intel) => {
            let mask = limit(LEVEL_ZERO, false).filter(filled);
            let mask = mask.filter(|mask| mask.value != "default");
            mask.into_iter().collect()
        }
        Some(DeviceKind::Host | DeviceKind::Other) | None => Vec::new(),
    }
}

/// The reason why the indices of Level Zero's mask do not count these devices.
fn other_count(found: &[DeviceInfo], environment: &BTreeMap<String, String>) -> Option<String> {
    let is = |name: &str, value: &str| environment.get(name).is_some_and(|set| set == value);
    let first = found.first()?;
    if first.kind != DeviceKind::Intel {
        return None;
    }
    if is(LEVEL_ZERO_TILES, "COMPOSITE") && found.iter().any(|tile| tile.partition.is_some()) {
        return Some(format!(
            "it counts cards with {LEVEL_ZERO_TILES}=COMPOSITE, and the pool counts tiles; remove that variable, and write the indices of tiles"
        ));
    }
    is(LEVEL_ZERO_ORDER, "1").then(|| {
        format!(
            "it counts GPUs of the processor among the others with {LEVEL_ZERO_ORDER}=1, and the pool counts them last; remove that variable, and write indices in Level Zero's own order"
        )
    })
}

/// Returns true if the value of `NVIDIA_VISIBLE_DEVICES` still limits these GPUs. A container runtime applies it before this
/// process starts and numbers the GPUs again: exactly the named GPUs are left then.
fn is_list(found: &[DeviceInfo], value: &str) -> bool {
    match value.trim() {
        "" | "all" | "void" => false,
        "none" => true,
        list => list.split(',').count() != found.len(),
    }
}

/// The parts of a value that name a device. As in CUDA, the list ends at the first part that cannot be a name, such as `-1`.
fn names(value: &str) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| {
        name.starts_with(|letter: char| letter.is_ascii_digit())
            || name.contains('-') && !name.starts_with('-')
    };
    value.split(',').map(str::trim).take_while(is_name)
}

/// The named devices in the order of the variable. A UUID may be shortened, as in CUDA.
fn narrowed(
    found: &[DeviceInfo],
    limit: &Limit<'_>,
    provider: Provider,
) -> Result<Vec<DeviceInfo>, InventoryError> {
    let mut chosen: Vec<DeviceInfo> = Vec::new();
    for name in names(limit.value) {
        let wrong = |problem: String| InventoryError::NotVisible {
            variable: limit.variable,
            value: limit.value.into(),
            name: name.into(),
            problem,
            known: list(found),
            provider: provider.name(),
        };
        let device = find(found, limit, name).map_err(wrong)?;
        if chosen.iter().any(|other| other.name == device.name) {
            return Err(wrong("it names this GPU twice".to_owned()));
        }
        chosen.push(device.clone());
    }
    Ok(chosen)
}

fn find<'a>(
    found: &'a [DeviceInfo],
    limit: &Limit<'_>,
    name: &str,
) -> Result<&'a DeviceInfo, String> {
    let none = || "no such GPU exists".to_owned();
    if let Ok(index) = name.parse::<u32>() {
        if limit.by_position {
            return found.get(index as usize).ok_or_else(none);
        }
        let device = found.iter().find(|device| device.index == index);
        let device = device.ok_or_else(none)?;
        return if device.is_slice() {
            Err(slices_of(found, |other| other.index == index))
        } else {
            Ok(device)
        };
    }
    if let Some((index, slice)) = name.split_once(':') {
        let numbers = index.parse::<u32>().ok().zip(slice.parse::<u32>().ok());
        let (index, slice) = numbers.ok_or_else(none)?;
        let is_it = |device: &&DeviceInfo| {
            device.index == index && device.is_slice() && device.partition == Some(slice)
        };
        return found.iter().find(is_it).ok_or_else(none);
    }
    if name.contains('.') {
        return Err(
            "a part of a card is named by its own index, with ZE_FLAT_DEVICE_HIERARCHY=FLAT"
                .to_owned(),
        );
    }
    let matches = |device: &&DeviceInfo| {
        let uuid = device.uuid.as_ref();
        uuid.is_some_and(|uuid| uuid.starts_with(name))
    };
    let mut matching = found.iter().filter(matches);
    match (matching.next(), matching.next()) {
        (Some(device), None) => Ok(device),
        (Some(_), Some(_)) => Err("more than one GPU begins with this UUID".to_owned()),
        (None, _) => Err(none()),
    }
}

/// The problem with a name of a GPU in MIG mode.
pub(super) fn slices_of(found: &[DeviceInfo], is_it: impl Fn(&DeviceInfo) -> bool) -> String {
    let slices = found.iter().filter(|device| is_it(device));
    let uuids: Vec<&str> = slices.filter_map(|slice| slice.uuid.as_deref()).collect();
    format!(
        "this GPU is in MIG mode; name its slices: {}",
        uuids.join(", ")
    )
}

/// The devices in `found` that are not in `chosen`, as `index 0, 2`; `None` if all are.
pub(super) fn left_out(found: &[DeviceInfo], chosen: &[DeviceInfo]) -> Option<String> {
    let is_chosen = |device: &&DeviceInfo| {
        let same =
            |other: &DeviceInfo| (other.index, other.partition) == (device.index, device.partition);
        chosen.iter().any(same)
    };
    let others = found.iter().filter(|device| !is_chosen(device));
    let indices: Vec<String> = others
        .map(|device| match device.partition {
            Some(part) if device.is_slice() => format!("{}:{part}", device.index),
            _ => device.index.to_string(),
        })
        .collect();
    (!indices.is_empty()).then(|| format!("index {}", indices.join(", ")))
}

/// A warning about indices that CUDA itself may count in another order: by default it begins with the fastest GPU.
pub(super) fn ambiguous_order(
    found: &[DeviceInfo],
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    let value = environment.get(CUDA)?;
    let has_index = names(value).any(|name| name.parse::<u32>().is_ok());
    let by_bus = environment
        .get(CUDA_ORDER)
        .is_some_and(|order| order == "PCI_BUS_ID");
    let mut products = found.iter().map(|device| &device.product_name);
    let first = products.next()?;
    let differ = products.any(|product| product != first);
    let is_nvidia = found.first()?.kind == DeviceKind::Nvidia;
    (is_nvidia && has_index && differ && !by_bus).then(|| {
        format!(
            "{CUDA} is `{value}`, which counts in PCI order here, as in nvidia-smi; CUDA's own order begins with the fastest GPU, and these GPUs differ: set {CUDA_ORDER}=PCI_BUS_ID, or write UUIDs"
        )
    })
}
