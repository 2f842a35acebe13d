//! The alternatives of a decision: the replicas that held the memory, the keys by which they were compared, and the result for
//! each. Plain data, stored with the record of the decision, and its texts.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::types::action::MemoryChange;
use crate::types::ids::{Bytes, DeviceId, Priority, ReplicaId, Span, Time};
use crate::types::obstacle::{Blocker, Protection};

/// The maximum number of replicas that an explanation lists.
pub const CONSIDERED_MAX: usize = 32;

/// The decision for a load and its alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The model that is loaded, or would have been.
    pub load: String,
    /// The priority that was compared.
    pub priority: Priority,
    pub devices: u32,
    /// The bytes on each device.
    pub needs: Bytes,
    /// The time since which the pool compares by least recent use, because that would have caused fewer loads here than its own
    /// estimate (P5).
    pub by_recency_since: Option<Time>,
    /// First the replicas that leave, then those able to leave, then the protected ones.
    pub considered: Vec<Considered>,
    /// The number of further replicas.
    pub more: u32,
    /// Obstacles other than replicas of the pool.
    pub others: Vec<(DeviceId, Bytes, Blocker)>,
    /// The committed bytes on each device of the placement, before and after.
    pub memory: Vec<MemoryChange>,
}

/// A replica that holds memory where the load could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    pub replica: ReplicaId,
    pub model: String,
    /// The first of its devices.
    pub device: DeviceId,
    pub priority: Priority,
    pub in_flight: u32,
    /// The time it has been ready without a request; zero while it is busy.
    pub idle: Span,
    /// The expected time to get it back.
    pub reload: Span,
    /// The bytes on all its devices.
    pub bytes: Bytes,
    pub verdict: Standing,
}

/// The decision about a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It leaves.
    Chosen,
    /// It could have left, but a cheaper set was found (P5).
    Spared,
    Protected(Protection),
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Standing::Chosen => write!(f, "leaves: ")?,
            Standing::Spared => write!(f, "may leave and was not needed (P5): ")?,
            Standing::Protected(why) => write!(f, "stays, {why}: ")?,
        }
        write!(f, "priority {}, ", self.priority)?;
        match self.in_flight {
            0 => write!(f, "idle for {}", self.idle)?,
            1 => write!(f, "busy with 1 request")?,
            busy => write!(f, "busy with {busy} requests")?,
        }
        write!(
            f,
            ", about {} to load again, {} held",
            self.reload, self.bytes
        )
    }
}

impl Explanation {
    /// The explanation as a sentence. `moment` formats times.
    pub fn sentence(&self, moment: &dyn Fn(Time) -> String) -> String {
        let mut text = format!(
            "{}, priority {}, needs {} on {} device{}",
            self.load,
            self.priority,
            self.needs,
            self.devices,
            if self.devices == 1 { "" } else { "s" }
        );
        if let Some(since) = self.by_recency_since {
            text.push_str(&format!(
                "; the least recently used leaves first since {}: that rule has loaded less here than the pool's own estimate",
                moment(since)
            ));
        }
        text
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence(&|at: Time| at.to_string()))
    }
}
