//! The planted faults of a storm of gangs, and its counters.

use alloc::string::String;
use alloc::vec::Vec;

use super::super::plan_check::PlansCompared;

/// A planted fault around the core that the checks must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangFault {
    /// The end of one process is reported as the end of the replica.
    OneEndsAll,
    /// Only the leader is ordered to end.
    OthersRunOn,
    /// Every node claims to reach all others.
    ReachHidden,
    /// The nodes of a cluster join without the request that they come for.
    DemandHidden,
    /// The cluster refuses all but the first request of a set, and the pool does not learn it.
    RefusalHidden,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangStormReport {
    pub steps: u64,
    pub responded: u64,
    /// Launches of replicas on several nodes, and of all others.
    pub gangs: u64,
    pub others: u64,
    /// Gangs that were ready and gave their places to others.
    pub evicted: u64,
    /// Processes that ended on their own.
    pub crashes: u64,
    pub gone: u64,
    pub restarts: u64,
    pub adopted: u64,
    /// Gangs that did not return completely after a restart.
    pub incomplete: u64,
    /// Storms in which nodes do not all reach each other.
    pub mixed: u64,
    /// Nodes that were requested, and that were given back.
    pub requested: u64,
    pub given_back: u64,
    /// Sets of requests for gangs. Complete sets have all of their nodes; broken ones failed or were withdrawn.
    pub sets: u64,
    pub complete_sets: u64,
    pub broken_sets: u64,
    /// Launches of gangs on requested nodes.
    pub on_requested: u64,
    /// Plans that were compared with their loads.
    pub plans: PlansCompared,
    pub broken: Vec<String>,
}
