//! The parts into which the time of a device is divided.

use std::fmt;

use pool::{DeviceId, KeyId, ModelId, NodeId};

/// The most parts that are kept between two calls of `Account::take`. Payers beyond the limit are counted together.
pub const PARTS_MAX: usize = 65_536;

/// The state of a part of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Requests were inside the replica.
    Used,
    /// Requests of batches were inside the replica.
    UsedByBatches,
    /// A replica held the memory without a request.
    Idle,
    Loading,
    /// Held by a sleeping replica: what stays on its devices, and its weights in host memory.
    Asleep,
    /// Held by other programs, or by an ended engine until the driver returns it.
    Foreign,
    /// Free memory of a cordoned device.
    Cordoned,
    Free,
    /// The device could not be read, its node was silent, or no controller ran.
    Unknown,
}

impl Use {
    pub const ALL: [Use; 9] = [
        Use::Used,
        Use::UsedByBatches,
        Use::Idle,
        Use::Loading,
        Use::Asleep,
        Use::Foreign,
        Use::Cordoned,
        Use::Free,
        Use::Unknown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Use::Used => "used",
            Use::UsedByBatches => "used_by_batches",
            Use::Idle => "idle",
            Use::Loading => "loading",
            Use::Asleep => "asleep",
            Use::Foreign => "foreign",
            Use::Cordoned => "cordoned",
            Use::Free => "free",
            Use::Unknown => "not_known",
        }
    }

    pub fn parse(name: &str) -> Option<Use> {
        Use::ALL.into_iter().find(|this| this.name() == name)
    }
}

/// The account that a part is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    #[default]
    Unassigned,
    /// Replicas that an administrator keeps loaded: always-hot models and leases.
    Administrator,
    Key(KeyId),
    /// Keys beyond [`PARTS_MAX`].
    Others,
}

impl fmt::Display for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payer::Unassigned => Ok(()),
            Payer::Administrator => f.write_str("administrator"),
            Payer::Key(key) => key.fmt(f),
            Payer::Others => f.write_str("others"),
        }
    }
}

/// A device, or the host memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Device(DeviceId),
    Host(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartKey {
    pub place: Place,
    pub model: Option<ModelId>,
    pub payer: Payer,
    pub state: Use,
}

/// Device time in nanoseconds, and byte time in byte-milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub ns: u128,
    pub byte_ms: u128,
}

impl Amount {
    pub fn add(&mut self, other: Amount) {
        self.ns += other.ns;
        self.byte_ms += other.byte_ms;
    }

    pub fn is_zero(self) -> bool {
        self == Amount::default()
    }
}

/// A part of the time of a device since the last call of `Account::take`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name under which the device is stored, or that of the host memory of a node.
    pub device: String,
    /// Empty for memory without a model.
    pub model: String,
    pub payer: Payer,
    pub state: Use,
    /// Zero for host memory.
    pub device_ms: u64,
    pub byte_seconds: u64,
    /// The energy during `energy_ms`, in millijoules.
    pub energy_mj: u64,
    /// The part of `device_ms` during which the energy is known.
    pub energy_ms: u64,
}
