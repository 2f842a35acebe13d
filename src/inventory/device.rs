//! What is known of a device: what it is, and what its memory holds at a moment. It owns the shapes
//! alone; each provider fills them.

use pool::{Bytes, DeviceId, NodeId};

use super::fault::DeviceFault;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    Host,
    Nvidia,
}

/// What never changes of a device while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub id: DeviceId,
    /// `gpu0`, `host`, or as written.
    pub name: String,
    pub kind: DeviceKind,
    /// NVML's index, which is what `CUDA_VISIBLE_DEVICES` counts in PCI order; otherwise the place
    /// in the list.
    pub index: u32,
    /// The GPU's own, which stays the same when indices change.
    pub uuid: Option<String>,
    pub node: NodeId,
    pub node_name: String,
    /// What the pool may fill, with the headroom.
    pub total: Bytes,
    /// What the device has; more than `total` when the configuration limits it.
    pub installed: Bytes,
    pub headroom: Bytes,
    /// Like `NVIDIA H100 80GB HBM3`.
    pub product_name: Option<String>,
    /// Devices of the same product, of which one can stand for the other, have the same number. It
    /// is given anew at each start.
    pub product: u32,
    /// On the PCI bus, like `00000000:1B:00.0`.
    pub pci: Option<String>,
    /// Each other device of this node with the best way there, best first.
    pub links: Vec<(DeviceId, Link)>,
    /// As configured; they mean nothing to the pool.
    pub labels: Vec<String>,
}

/// The best way from one device to another, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Straight or over NVSwitch.
    NvLink,
    /// On one board, below PCIe switches, or at one host bridge.
    SameRoot,
    /// Through the machine's processors, or not known.
    Node,
}

/// One reading of one device. `used`, `own` and `foreign` are measured at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pub id: DeviceId,
    pub total: Bytes,
    /// Held by anybody.
    pub used: Bytes,
    /// Held by the processes that the caller named as ours.
    pub own: Bytes,
    /// Held by others: never free, never evictable (M2).
    pub foreign: Bytes,
    /// What is known of single processes, ours and others, by process id.
    pub processes: Vec<(u32, Bytes)>,
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
}

/// What became of one device's reading.
pub type Reading = Result<DeviceUse, DeviceFault>;

/// What this machine calls itself.
pub(super) fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}
