//! The facts about this machine and the evening schedule that a replay takes from the service. The root package provides them.

use config::Config;
use pool::{Bytes, DeviceReading, Span, Time};

/// Finds the devices that the pool of a configuration has on this machine, as `serve` does.
pub type FindDevices<'a> = &'a dyn Fn(&Config) -> Result<MachineDevices, String>;

/// Computes the evenings of a replay of this duration, with the schedule of `serve`. The start is in milliseconds since 1970;
/// without one, the replay begins at midnight in the zone of the configuration.
pub type FindEvenings<'a> = &'a dyn Fn(&Config, Option<u64>, Span) -> Result<Evenings, String>;

pub struct Environment<'a> {
    pub devices: FindDevices<'a>,
    /// The host memory of this machine; `None` if the system does not report it.
    pub memory: Option<Bytes>,
    pub evenings: FindEvenings<'a>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineDevices {
    pub readings: Vec<DeviceReading>,
    /// Sleeping engines keep their weights in host memory only if the devices have separate memory.
    pub has_gpus: bool,
}

/// The evening schedule in the time of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evenings {
    /// The replay begins between a cleanup and its reopening.
    pub starts_closed: bool,
    pub cleanups: Vec<Time>,
    /// Empty without `evening.reopen`.
    pub reopenings: Vec<Time>,
    /// The start of the replay and the zone, for people.
    pub start: String,
}
