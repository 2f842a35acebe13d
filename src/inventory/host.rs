//! The host's memory as one device, for machines without a GPU. Its size is a configured budget, not the memory
//! of the machine.
//!
//! Other programs take memory from the machine, not from the budget. Foreign memory is therefore only what the budget lacks:
//! `budget − (available to new programs + ours that would come back)`, if that is positive. `MemAvailable` already counts file
//! pages as available, including mapped weights, so only anonymous and shared memory of our engines counts as ours and comes back.

use std::collections::BTreeSet;
use std::path::Path;

use super::device::machine_name;
use super::machine::{MachineMemory, field, own_memory};
use super::{DeviceInfo, DeviceKind, DeviceUse, InventoryError};
use pool::{Bytes, DeviceId, NodeId};

#[derive(Debug)]
pub(super) struct Host;

pub(super) fn open(budget: Bytes) -> Result<(Vec<DeviceInfo>, Host), InventoryError> {
    if budget == Bytes::ZERO {
        return Err(InventoryError::NoHostMemory);
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
        is_unified: false,
        headroom: Bytes::ZERO,
        product_name: None,
        product: 0,
        pci: None,
        links: Vec::new(),
        labels: Vec::new(),
    };
    Ok((vec![device], Host))
}

impl Host {
    pub(super) fn read(&self, device: &DeviceInfo, ours: &BTreeSet<u32>) -> DeviceUse {
        let mut processes = Vec::new();
        let mut own = Bytes::ZERO;
        for &pid in ours {
            // A process that is gone holds no memory.
            if let Some(held) = own_memory(pid) {
                processes.push((pid, held));
                own = own + held;
            }
        }
        // If the machine does not report it, the budget is trusted.
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

/// Returns a warning about a budget that exceeds the machine's memory.
pub(super) fn too_much(budget: Bytes, machine: Option<MachineMemory>) -> Option<String> {
    let total = machine?.total;
    (budget > total).then(|| {
        format!(
            "inventory.host_memory is {budget}, and this machine has {total}: loads that fill it run out of memory; write less"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_no_more_than_the_machine_has() {
        let machine = Some(MachineMemory {
            total: Bytes(23 << 30),
            available: Bytes(1 << 30),
        });
        assert_eq!(too_much(Bytes(23 << 30), machine), None);
        let notice = too_much(Bytes(9999 << 40), machine).expect("a notice");
        let expected = "inventory.host_memory is 9999.0 TiB, and this machine has 23.0 GiB";
        assert!(notice.starts_with(expected), "{notice}");
        assert_eq!(too_much(Bytes(9999 << 40), None), None, "it is not known");
    }
}
