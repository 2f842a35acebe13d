//! The settings of a storm, including its planted fault, and its final report.

use alloc::string::String;
use alloc::vec::Vec;

use super::super::plan_check::PlansCompared;

/// A planted fault in the world around the core that the referee must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The pool is informed that a process is gone as soon as it was ordered to stop.
    StoppingCountsAsFree,
    /// A gate reports that it is idle although it is not.
    GateLies,
    /// Every hundredth response is given twice.
    AnsweredTwice,
    /// Readings omit memory that ended processes have not returned.
    MemoryUnseen,
    /// The pool is informed that a cordon has ended as soon as it was ordered.
    CordonForgotten,
    /// The pool is informed that loads come from host memory although they come from a disk.
    LoaderLies,
    /// A replica is evicted in addition to the victims.
    UnneededVictim,
    /// Readings of hosts omit the memory of engines.
    HostUnseen,
    /// The pool is not informed that weights were deleted.
    DeletionUnseen,
    /// The pool is not informed that waiting clients have gone.
    DepartureUnseen,
    /// The pool switches to the other eviction rule with each load, and counts none of these changes.
    ChangesUncounted,
    /// The pool is not informed of the leases that administrators grant.
    LeasesUnseen,
    /// Each plan is made for a forced load, and the load is not forced.
    PlansForced,
}

/// Every storm with this index has many devices, and is shorter instead.
const MANY_DEVICES_EVERY: u64 = 40;

#[derive(Clone, Debug)]
pub struct Storm {
    pub seed: u64,
    pub requests: u64,
    pub orders: u64,
    pub fault: Option<Fault>,
    /// Nothing fails and no administrator acts, so every wait must end within a bound.
    pub calm: bool,
    /// Up to 96 devices on several nodes, instead of 16.
    pub many_devices: bool,
    /// The number of steps between checks of the pool's own ledgers; 1 checks each step. Less often with many devices.
    pub check_every: u64,
    /// Compares plans with their loads, in copies of the world.
    pub compares_plans: bool,
    /// Some models keep a part on the host.
    pub has_parts: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StormReport {
    pub steps: u64,
    pub devices: u64,
    pub requests: u64,
    pub seated_by_gate: u64,
    pub granted: u64,
    pub refused: u64,
    pub left: u64,
    /// Clients among them that waited as long as they had announced.
    pub gave_up: u64,
    pub launches: u64,
    pub crashes: u64,
    /// Engines that fell asleep, and that were woken.
    pub slept: u64,
    pub woken: u64,
    /// Models chosen for read-ahead, and measured peaks that decayed.
    pub read_ahead: u64,
    pub faded: u64,
    /// Fetches of weights that were started.
    pub fetches: u64,
    /// Loads that ran out of memory.
    pub ran_out_of_memory: u64,
    pub evictions: u64,
    pub settled: u64,
    /// Orders and failures that took a device out of service.
    pub cordons: u64,
    /// Victim choices that were compared with every alternative.
    pub judged: u64,
    /// Plans that were compared with their loads.
    pub plans: PlansCompared,
    /// Switches to the other rule for victims.
    pub rule_changes: u64,
    pub finished: bool,
    pub transcript_hash: u64,
    /// The longest wait for a seat in a calm storm, in thousandths of its bound.
    pub worst_wait: u64,
    /// Findings of the referee or the checker; empty if all is well.
    pub broken: Vec<String>,
}

impl Storm {
    pub fn new(seed: u64) -> Storm {
        let many_devices = seed % MANY_DEVICES_EVERY == MANY_DEVICES_EVERY - 1;
        Storm {
            seed,
            requests: if many_devices { 60 } else { 150 },
            orders: 12,
            fault: None,
            calm: false,
            many_devices,
            check_every: 1,
            compares_plans: false,
            has_parts: false,
        }
    }

    pub fn calm(seed: u64) -> Storm {
        Storm {
            orders: 0,
            requests: 300,
            calm: true,
            many_devices: false,
            ..Storm::new(seed)
        }
    }
}
