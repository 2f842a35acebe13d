//! The kinds of devices: their names in files, and what distinguishes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maker of a device. Decides how it is read, and which variable gives it to an engine.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The memory of the machine, for engines that compute on the CPU.
    Host,
    Nvidia,
    Amd,
    Intel,
    /// A device that a site's own program reports.
    Other,
}

impl DeviceKind {
    /// The name in files, messages and the API.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Host => "host",
            DeviceKind::Nvidia => "nvidia",
            DeviceKind::Amd => "amd",
            DeviceKind::Intel => "intel",
            DeviceKind::Other => "other",
        }
    }

    /// Returns true for every device that is not the host's memory.
    pub const fn is_gpu(self) -> bool {
        !matches!(self, DeviceKind::Host)
    }
}
