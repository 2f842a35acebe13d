//! Where a replica of an engine is started, and the command line that starts it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use pool::Bytes;

use super::parsers::TemplateForms;
use crate::model_file::Secret;

/// Where an engine listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where<'a> {
    /// On 127.0.0.1.
    Port(u16),
    Socket(&'a Path),
}

/// One device of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedDevice {
    /// As the driver counts.
    pub index: u32,
    pub uuid: Option<String>,
    pub is_gpu: bool,
    /// The whole memory of the device.
    pub total: Bytes,
}

/// What is known only when an engine is started.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The catalogue's name.
    pub model_name: &'a str,
    pub at: Where<'a>,
    pub devices: &'a [PlacedDevice],
    /// On each of them.
    pub reserved: Bytes,
    /// The weights' part of each device, where their files could be read.
    pub weights: Option<Bytes>,
    /// A name that no other replica has.
    pub container: &'a str,
    /// Path prefix of the sockets between the engine's own processes. It lies in a folder private to this account, or is
    /// unpredictable.
    pub sockets: &'a str,
    /// What the model's chat template says.
    pub template: TemplateForms,
}

impl Place<'_> {
    /// A made-up place without devices, to show and check command lines with.
    pub fn example(reserved: Bytes) -> Place<'static> {
        Place {
            model_name: "organisation/model",
            at: Where::Port(8000),
            devices: &[],
            reserved,
            weights: None,
            container: "model-pool-1-1",
            sockets: "/run/model-pool/r1-own",
            template: TemplateForms::default(),
        }
    }
}

/// A command line with its environment. `Debug` shows it as `masked` does.
#[derive(Clone, PartialEq)]
pub struct ServerCommand {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, Secret>,
    /// Removes the container when the process is gone.
    pub cleanup: Option<Vec<String>>,
}

impl fmt::Debug for ServerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}
