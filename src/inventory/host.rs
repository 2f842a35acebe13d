//! The host's memory as one device, for machines without a GPU. Its size is a budget that a person
//! set, not what the machine has.
//!
//! Others do not take from a budget, they take from the machine. So foreign is only what the budget
//! lacks: `budget − (available to new programs + ours that would come back)`, if that is more than
//! nothing. `MemAvailable` counts file pages as available already, weights that are mapped from
//! files among them; therefore of ours only anonymous and shared memory counts and comes back.

use std::collections::BTreeSet;
use std::path::Path;

use super::device::machine_name;
use super::source::Source;
use super::{DeviceInfo, DeviceKind, DeviceUse, InventoryFault};
use pool::{Bytes, DeviceId, NodeId};

#[derive(Debug)]
pub(super) struct Host;

pub(super) fn open(budget: Bytes) -> Result<(Vec<DeviceInfo>, Source), InventoryFault> {
    if budget == Bytes::ZERO {
        return Err(InventoryFault::NoHostMemory);
    }
    let device = DeviceInfo {
        id: DeviceId(0),
        name: "host".into(),
        kind: DeviceKind::Host,
        index: 0,
        uuid: None,
        node: NodeId(0),
        node_name: machine_name(),
        total: budget,
        installed: budget,
        headroom: Bytes::ZERO,
        product_name: None,
        product: 0,
        pci: None,
        links: Vec::new(),
        labels: Vec::new(),
    };
    Ok((vec![device], Source::Host(Host)))
}

impl Host {
    pub(super) fn read(&self, device: &DeviceInfo, ours: &BTreeSet<u32>) -> DeviceUse {
        let mut processes = Vec::new();
        let mut own = Bytes::ZERO;
        for &pid in ours {
            // A process that is gone holds nothing.
            if let Some(held) = own_memory(pid) {
                processes.push((pid, held));
                own = own + held;
            }
        }
        // Where the machine does not say, the budget is believed.
        let foreign = field(Path::new("/proc/meminfo"), &["MemAvailable:"])
            .map(|available| device.total.saturating_sub(available + own))
            .unwrap_or(Bytes::ZERO);
        DeviceUse {
            id: device.id,
            total: device.total,
            used: own + foreign,
            own,
            foreign,
            processes,
            utilisation_percent: None,
            temperature_celsius: None,
        }
    }
}

/// The machine's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    pub total: Bytes,
    /// What programs may take without swapping.
    pub available: Bytes,
}

/// What the machine has, or what the control group of this process leaves of it; `None` where the
/// system does not say.
pub fn machine_memory() -> Option<MachineMemory> {
    let meminfo = Path::new("/proc/meminfo");
    let machine = MachineMemory {
        total: field(meminfo, &["MemTotal:"])?,
        available: field(meminfo, &["MemAvailable:"])?,
    };
    let number = |name: &str| -> Option<Bytes> {
        let text = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok()?;
        text.trim().parse().ok().map(Bytes)
    };
    // `max`, which is no number, limits nothing.
    let Some(limit) = number("memory.max") else {
        return Some(machine);
    };
    let used = number("memory.current").unwrap_or_default();
    Some(MachineMemory {
        total: machine.total.min(limit),
        available: machine.available.min(limit.saturating_sub(used)),
    })
}

/// What comes back when the process ends. Pages of files, its program and weights that it maps among
/// them, are the machine's, and available to everybody as they are.
fn own_memory(pid: u32) -> Option<Bytes> {
    field(
        Path::new(&format!("/proc/{pid}/status")),
        &["RssAnon:", "RssShmem:"],
    )
}

/// The sum of these fields of a file of `/proc`; `None` when there is no such file or none of them.
fn field(file: &Path, names: &[&str]) -> Option<Bytes> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut found = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next().is_some_and(|name| names.contains(&name)) {
            let kib: u64 = words.next()?.parse().ok()?;
            found = Some(found.unwrap_or(Bytes::ZERO) + Bytes(kib.saturating_mul(1 << 10)));
        }
    }
    found
}
