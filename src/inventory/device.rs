//! What is known of a device: its properties, and its memory use at a moment. Each provider fills these types.

use pool::{Bytes, DeviceId, NodeId};

use super::fault::DeviceFault;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    Host,
    Nvidia,
}

/// Properties of a device that do not change while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub id: DeviceId,
    /// `gpu0`, `host`, or the configured name.
    pub name: String,
    pub kind: DeviceKind,
    /// NVML's index, which is what `CUDA_VISIBLE_DEVICES` counts in PCI order; otherwise the position in the
    /// list.
    pub index: u32,
    /// The GPU's UUID, which stays the same when indices change.
    pub uuid: Option<String>,
    pub node: NodeId,
    pub node_name: String,
    /// The memory that the pool may fill, including the headroom.
    pub total: Bytes,
    /// The device's memory; more than `total` when the configuration limits it.
    pub installed: Bytes,
    pub headroom: Bytes,
    /// Like `NVIDIA H100 80GB HBM3`.
    pub product_name: Option<String>,
    /// Interchangeable devices of the same product have the same number. It is assigned anew at each start.
    pub product: u32,
    /// The PCI address, such as `00000000:1B:00.0`.
    pub pci: Option<String>,
    /// Every other device of this node with the best link to it, best first.
    pub links: Vec<(DeviceId, Link)>,
    /// As configured; the pool does not interpret them.
    pub labels: Vec<String>,
}

/// The best way from one device to another, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Direct or over NVSwitch.
    NvLink,
    /// On one board, below PCIe switches, or at one host bridge.
    SameRoot,
    /// Through the machine's processors, or unknown.
    Node,
}

/// One reading of one device. `used`, `own` and `foreign` are measured at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pub id: DeviceId,
    pub total: Bytes,
    /// Held by any process.
    pub used: Bytes,
    /// Held by the processes that the caller passed as the pool's.
    pub own: Bytes,
    /// Held by other programs: never free, never evictable (M2).
    pub foreign: Bytes,
    /// What is known about single processes, the pool's and others, by process id.
    pub processes: Vec<(u32, Bytes)>,
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
}

/// The result of one device's reading.
pub type Reading = Result<DeviceUse, DeviceFault>;

/// This machine's host name.
pub(super) fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}
