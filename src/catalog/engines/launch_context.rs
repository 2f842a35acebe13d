//! The placement of an engine's replica, and the command line that starts it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use pool::Bytes;

use super::gang_member::GangMember;
use super::parsers::TemplateForms;
use crate::documents::Secret;

/// The address on which an engine listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineAddress<'a> {
    /// A port on 127.0.0.1.
    Port(u16),
    Socket(&'a Path),
}

/// One device of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedDevice {
    /// The index in the driver's order.
    pub index: u32,
    pub uuid: Option<String>,
    pub is_gpu: bool,
    /// The total memory of the device.
    pub total: Bytes,
}

/// Values known only when an engine is started.
#[derive(Clone, Copy, Debug)]
pub struct LaunchContext<'a> {
    /// The name in the catalogue.
    pub model_name: &'a str,
    pub at: EngineAddress<'a>,
    pub devices: &'a [PlacedDevice],
    /// Reserved memory on each device.
    pub reserved: Bytes,
    /// The share of the weights on each device, if their files could be read.
    pub weights: Option<Bytes>,
    /// A unique container name.
    pub container: &'a str,
    /// Path prefix of the sockets between the engine's own processes, in a folder private to this account or with an unpredictable
    /// name.
    pub sockets: &'a str,
    /// Formats found in the model's chat template.
    pub template: TemplateForms,
    /// Set for a process of a replica that spans several nodes. The devices are those of its own node.
    pub member: Option<&'a GangMember>,
}

impl LaunchContext<'_> {
    /// A fictitious place without devices, for displaying and checking command lines.
    pub fn example(reserved: Bytes) -> LaunchContext<'static> {
        LaunchContext {
            model_name: "organisation/model",
            at: EngineAddress::Port(8000),
            devices: &[],
            reserved,
            weights: None,
            container: "model-pool-1-1",
            sockets: "/run/model-pool/r1-own",
            template: TemplateForms::default(),
            member: None,
        }
    }
}

/// A command line with its environment. Its `Debug` output is that of `masked`.
#[derive(Clone, PartialEq)]
pub struct ServerCommand {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, Secret>,
    /// A command that removes the container after the process has ended.
    pub cleanup: Option<Vec<String>>,
}

impl fmt::Debug for ServerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}
