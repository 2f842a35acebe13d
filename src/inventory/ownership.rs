//! Divides the memory in use on a device into the pool's and that of others.
//!
//! Drivers report used memory as a sum, so `foreign = used − ours` plus the part that the driver reserves for itself. That requires
//! the bytes of each of our processes, which drivers do not always report: in a container with its own process ids NVML's list is
//! empty and KFD's holds ids of the host, and with some drivers the bytes are missing. While we have processes, ours is then
//! computed the other way round: `ours = used − foreign`, where foreign is the last certain figure of this device (measured while we
//! had no process, or while the driver reported all bytes), but never less than what the driver now reports for others. Growth in
//! between counts as ours. Until there is a certain figure, everything not known to be ours counts as foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::deadline::lock;
use super::machine::{MachineMemory, own_memory};
use super::{DeviceInfo, DeviceUse, EnergyFigure};
use pool::{Bytes, DeviceId};

/// The foreign memory of each device when it was last certain.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    sure: Mutex<BTreeMap<DeviceId, Bytes>>,
}

/// The processes on a device, each with its bytes if known.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessList {
    pub processes: BTreeMap<u32, Option<Bytes>>,
    /// True if the list holds each of our processes that uses the device.
    pub complete: bool,
}

/// The figures of a device as its driver reports them.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub total: Bytes,
    /// At most `total`.
    pub used: Bytes,
    /// Memory that the driver keeps for itself, in addition to `used`.
    pub reserved: Bytes,
    pub listed: ProcessList,
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub energy: Option<EnergyFigure>,
}

impl ProcessList {
    fn known(self) -> Vec<(u32, Bytes)> {
        let known = |(pid, held): (u32, Option<Bytes>)| Some((pid, held?));
        self.processes.into_iter().filter_map(known).collect()
    }
}

impl Ownership {
    /// The use of a device with separate memory.
    pub fn dedicated(
        &self,
        device: &DeviceInfo,
        figures: Figures,
        ours: &BTreeSet<u32>,
    ) -> DeviceUse {
        let (there, used) = (figures.total, figures.used.min(figures.total));
        let own = self.own(device.id, used, &figures.listed, ours);
        let foreign = used.saturating_sub(own) + figures.reserved;
        let foreign = foreign.min(there.saturating_sub(own));
        // Memory of other programs outside the pool's part does not reduce that part.
        let total = if device.total < device.installed {
            device.total.min(there)
        } else {
            there
        };
        DeviceUse {
            id: device.id,
            total,
            used: used.min(total).max(own),
            own,
            foreign: foreign.saturating_sub(there.saturating_sub(total)),
            processes: figures.listed.known(),
            utilisation_percent: figures.utilisation_percent,
            temperature_celsius: figures.temperature_celsius,
            energy: figures.energy,
        }
    }

    /// The use of a device that shares the machine's memory. File pages count as available. The memory of our processes is what the
    /// driver reports for them on the device and what they hold as programs of the machine; `total` and `used` are the machine's.
    pub fn unified(
        &self,
        device: &DeviceInfo,
        machine: MachineMemory,
        figures: Figures,
        ours: &BTreeSet<u32>,
    ) -> DeviceUse {
        let used = machine.total.saturating_sub(machine.available);
        let mut listed = figures.listed;
        // An empty list is not certain while engines run: they are probably on the GPU.
        listed.complete &= ours.is_empty() || !listed.processes.is_empty();
        for &pid in ours {
            if let Some(held) = own_memory(pid) {
                let on_gpu = listed.processes.entry(pid).or_insert(Some(Bytes::ZERO));
                *on_gpu = on_gpu.map(|on_gpu| on_gpu + held);
            }
        }
        let own = self.own(device.id, used, &listed, ours);
        // The machine has `available` for the pool; other processes use the rest of the device.
        let foreign = device.total.saturating_sub(machine.available + own);
        DeviceUse {
            id: device.id,
            total: device.total,
            used: own + foreign,
            own,
            foreign,
            processes: listed.known(),
            utilisation_percent: figures.utilisation_percent,
            temperature_celsius: figures.temperature_celsius,
            energy: figures.energy,
        }
    }

    /// The pool's part of `used`, by the rule at the top.
    fn own(
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
        let mut sure = lock(&self.sure);
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
