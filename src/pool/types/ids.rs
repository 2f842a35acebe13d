//! Ids and quantities of the core. Newtypes with arithmetic only.

use core::fmt;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident($inner:ty, $prefix:literal)),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

id! {
    /// An entry of the catalogue. Never reused, even after the model is removed.
    ModelId(u32, "m"),
    /// A machine that holds devices.
    NodeId(u32, "n"),
    /// A GPU, or the host's memory.
    DeviceId(u32, "d"),
    /// A type of device: measurements apply to all devices of one kind.
    KindId(u32, "kind"),
    /// A disk or link through which weights are read.
    LoaderId(u32, "l"),
    /// An engine instance. Never reused, so late events can be recognised.
    ReplicaId(u64, "r"),
    /// A request that waits for a seat.
    Ticket(u64, "t"),
    /// A size of node that a cluster can bring.
    ShapeId(u32, "shape "),
    /// A request of the pool for another node. Never reused.
    DemandId(u64, "demand "),
    /// An administrator's order.
    OrderId(u64, "o"),
    /// The key of a request, for fairness within a queue. 0 stands for all requests without a key.
    KeyId(u64, "k"),
    /// A group of keys (F1).
    GroupId(u32, "g"),
}

impl DemandId {
    /// Marks the numbers of requests for batches. Times in milliseconds do not reach it.
    const FOR_BATCHES: u64 = 1 << 48;

    /// The number of a request for batches (B8). The cluster stores the number with the lease, and the node reports it, so the mark
    /// outlives the controller.
    #[must_use]
    pub fn for_batches(self) -> DemandId {
        DemandId(self.0 | DemandId::FOR_BATCHES)
    }

    pub fn is_for_batches(self) -> bool {
        self.0 & DemandId::FOR_BATCHES != 0
    }
}

/// A model's rank: 0 is lowest and the default, 2 and above is always-hot (P1, P4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u32);

impl Priority {
    /// The lowest always-hot priority (P4).
    pub const ALWAYS_HOT: Priority = Priority(2);
    /// The largest accepted priority; far beyond any use and far below overflow.
    pub const MAX: Priority = Priority(1_000_000);
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);
    pub const MIB: u64 = 1 << 20;
    pub const GIB: u64 = 1 << 30;
    pub const TIB: u64 = 1 << 40;

    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl core::ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl core::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(all: I) -> Bytes {
        all.fold(Bytes::ZERO, core::ops::Add::add)
    }
}

/// Formats with one decimal, in the largest binary unit in which the figure is at least 1.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            b if b >= Bytes::TIB => (Bytes::TIB, "TiB"),
            b if b >= Bytes::GIB => (Bytes::GIB, "GiB"),
            b if b >= Bytes::MIB => (Bytes::MIB, "MiB"),
            b if b >= 1 << 10 => (1 << 10, "KiB"),
            b => return write!(f, "{b} B"),
        };
        let tenths = (u128::from(self.0) * 10 + u128::from(unit) / 2) / u128::from(unit);
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

/// Milliseconds on the caller's monotonic clock. The shell anchors it at the Unix time of its start, so values can be stored and
/// compared after a restart. The core only compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl core::ops::Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1000, self.0 % 1000)
    }
}

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

/// Saturates.
impl core::ops::Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Span {
    pub const ZERO: Span = Span(0);

    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1000))
    }

    /// Whole seconds, rounded up, as a `Retry-After` header needs.
    pub fn secs_up(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms < 1000 => write!(f, "{ms} ms"),
            ms if ms < 120_000 => write!(f, "{}.{} s", ms / 1000, ms % 1000 / 100),
            ms if ms < 7_200_000 => write!(f, "{} min", ms / 60_000),
            ms => write!(f, "{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
        }
    }
}
