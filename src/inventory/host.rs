//! The host's memory as one device, for machines without a GPU. Its size is a configured budget, not the memory
//! of the machine.
//!
//! Other programs take memory from the machine, not from the budget. Foreign memory is therefore only what the budget lacks:
//! `budget − (available to new programs + ours that would come back)`, if that is positive. `MemAvailable` already counts file
//! pages as available, including mapped weights, so only anonymous and shared memory of our engines counts as ours and comes back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::machine::{MachineMemory, own_memory};
use super::source::{DeviceSource, FoundDevices};
use super::sysfs::Root;
use super::{DeviceInfo, DeviceKind, DeviceUse, InventoryError, Provider, Reading};
use pool::{Bytes, DeviceId};

#[derive(Debug)]
pub(super) struct Host(Root);

pub(super) fn open(budget: Bytes, root: &Root) -> Result<FoundDevices, InventoryError> {
    if budget == Bytes::ZERO {
        return Err(InventoryError::NoHostMemory);
    }
    let device = DeviceInfo::new(DeviceKind::Host, "host".into(), 0, budget);
    Ok(FoundDevices::new(vec![device], Host(root.clone())))
}

impl DeviceSource for Host {
    fn provider(&self) -> Provider {
        Provider::Host
    }

    fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        _deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let each = devices.iter();
        each.map(|device| (device.id, Ok(self.read_one(device, ours))))
            .collect()
    }

    fn notice(&self, devices: &[DeviceInfo]) -> Option<String> {
        too_much(devices.first()?.total, MachineMemory::read(&self.0))
    }
}

impl Host {
    fn read_one(&self, device: &DeviceInfo, ours: &BTreeSet<u32>) -> DeviceUse {
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
        let foreign = MachineMemory::read(&self.0).map_or(Bytes::ZERO, |machine| {
            device.total.saturating_sub(machine.available + own)
        });
        DeviceUse {
            id: device.id,
            total: device.total,
            used: own + foreign,
            own,
            foreign,
            processes,
            utilisation_percent: None,
            temperature_celsius: None,
            energy: None,
        }
    }
}

/// Returns a warning about a budget that exceeds the machine's memory.
fn too_much(budget: Bytes, machine: Option<MachineMemory>) -> Option<String> {
    let total = machine?.total;
    (budget > total).then(|| {
        format!(
            "inventory.host_memory is {budget}, and this machine, or its limit for this process, has {total}: loads that fill it run out of memory; write less"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_budget_above_the_machines_memory_is_reported() {
        let machine = Some(MachineMemory {
            total: Bytes(23 << 30),
            available: Bytes(1 << 30),
        });
        assert_eq!(too_much(Bytes(23 << 30), machine), None);
        let notice = too_much(Bytes(9999 << 40), machine).expect("a notice");
        assert!(
            notice.starts_with("inventory.host_memory is 9999.0 TiB"),
            "{notice}"
        );
        assert!(notice.contains("has 23.0 GiB"), "{notice}");
        assert_eq!(too_much(Bytes(9999 << 40), None), None, "it is not known");
    }
}
