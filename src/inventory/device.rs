//! The properties of a device, and readings of its memory use. Each provider fills these types.

use pool::{Bytes, DeviceId, NodeId};

use super::error::DeviceError;
pub use config::DeviceKind;

/// Properties of a device that do not change while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub id: DeviceId,
    /// `gpu0`, `host`, or the configured name.
    pub name: String,
    pub kind: DeviceKind,
    /// The driver's index: that of NVML and of `CUDA_VISIBLE_DEVICES` in PCI order, of HIP, or of Level Zero; for other devices, the
    /// position in the list. The slices of a GPU in MIG mode share its index.
    pub index: u32,
    /// The UUID of the GPU or MIG slice, which stays the same when indices change.
    pub uuid: Option<String>,
    /// The number of this part of a card: a MIG slice, a partition of an AMD GPU, or a tile of an Intel GPU.
    pub partition: Option<u32>,
    /// The environment variable that gives a device of kind [`DeviceKind::Other`] to an engine, by its index.
    pub variable: Option<String>,
    pub node: NodeId,
    pub node_name: String,
    /// The memory that the pool may fill, including the headroom.
    pub total: Bytes,
    /// The device's memory; more than `total` when the configuration limits it.
    pub installed: Bytes,
    /// The GPU has no separate memory and shares the machine's, as GB10, Jetson and AMD's APUs do.
    pub is_unified: bool,
    /// A daemon of NVIDIA's Multi-Process Service ran at the start: engines on the GPU share a server process.
    pub has_mps: bool,
    pub headroom: Bytes,
    /// For example `NVIDIA H100 80GB HBM3`.
    pub product_name: Option<String>,
    /// Interchangeable devices of the same product share this number. Assigned at each start.
    pub product: u32,
    /// The PCI address, such as `00000000:1B:00.0`.
    pub pci: Option<String>,
    /// Every other device of this node with the best link to it, best first.
    pub links: Vec<(DeviceId, Link)>,
    /// Configured labels, which the pool does not interpret.
    pub labels: Vec<String>,
}

impl DeviceInfo {
    /// A device of this kind and memory, without properties that only some devices have.
    pub(super) fn new(kind: DeviceKind, name: String, index: u32, memory: Bytes) -> DeviceInfo {
        DeviceInfo {
            id: DeviceId(index),
            name,
            kind,
            index,
            uuid: None,
            partition: None,
            variable: None,
            node: NodeId(0),
            node_name: machine_name(),
            total: memory,
            installed: memory,
            is_unified: false,
            has_mps: false,
            headroom: Bytes::ZERO,
            product_name: None,
            product: 0,
            pci: None,
            links: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Returns true for a MIG slice. CUDA uses one slice in a process, so a replica takes no second device.
    pub fn is_slice(&self) -> bool {
        self.kind == DeviceKind::Nvidia && self.partition.is_some()
    }
}

/// The best link between two devices, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Direct or over NVSwitch.
    NvLink,
    /// On one board, below PCIe switches, or at one host bridge.
    SameRoot,
    /// Through the machine's processors, or unknown.
    Node,
}

/// One reading of one device. `used`, `own` and `foreign` are measured simultaneously.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pub id: DeviceId,
    pub total: Bytes,
    /// Memory held by any process.
    pub used: Bytes,
    /// Memory held by the processes that the caller passed as the pool's.
    pub own: Bytes,
    /// Memory held by other programs: never free, never evictable (M2).
    pub foreign: Bytes,
    /// Memory of single processes by process id, the pool's and others', as far as known.
    pub processes: Vec<(u32, Bytes)>,
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub energy: Option<EnergyFigure>,
}

/// The energy of a device, as far as its driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyFigure {
    /// The energy since the driver was loaded, in millijoules.
    Counter(u64),
    /// The current power, in milliwatts.
    Power(u64),
}

/// The result of one device's reading.
pub type Reading = Result<DeviceUse, DeviceError>;

/// This machine's host name.
pub(super) fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}
