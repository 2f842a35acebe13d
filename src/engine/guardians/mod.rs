//! Guardians, and what outlives the controller with them: the journal of engines, their logs, and stray processes.

pub(crate) mod container;
pub(crate) mod group;
mod guard;
mod journal;
pub(crate) mod link;
mod log;
mod reserved_endpoint;
mod settings;

pub(crate) use group::Group;
pub use group::{Orphan, kill_orphans};
pub(crate) use guard::{Guard, GuardianEnd, Plan};
pub use journal::{LaunchFacts, Record, RecordedWatch, recorded_models};
pub(crate) use link::{GuardianReader, GuardianWriter};
pub use log::{LogLine, LogStream, ReplicaLog};
pub(crate) use reserved_endpoint::ReservedEndpoint;
pub use settings::{GuardianSettings, Guardians, Use};
