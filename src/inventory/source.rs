//! A source of devices: one implementation for each maker, for the host, and for devices that a person or a program describes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::{DeviceEvent, DeviceInfo, InventoryError, Provider, Reading, Watch};
use pool::DeviceId;

/// Receives the errors that devices report, on any thread.
pub(super) type Tell = Arc<dyn Fn(DeviceEvent) + Send + Sync>;

/// Reads the devices that it has found.
pub(super) trait DeviceSource: Debug + Send + Sync {
    fn provider(&self) -> Provider;

    /// Measures these devices, each independently. `ours` holds the processes of our engines. Returns within about `deadline`, with
    /// an error for a device that does not respond.
    fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)>;

    /// Completes the devices in use by their links.
    ///
    /// # Errors
    /// [`InventoryError::Hangs`] if the driver does not respond.
    fn connect(
        &self,
        _devices: &mut Vec<DeviceInfo>,
        _deadline: Duration,
    ) -> Result<(), InventoryError> {
        Ok(())
    }

    /// Reports errors of these devices until the watch is dropped; `None` if the driver reports none.
    fn watch(&self, _devices: &[DeviceInfo], _tell: Tell) -> Option<Watch> {
        None
    }

    /// A warning about a configuration that is probably a mistake.
    fn notice(&self, _devices: &[DeviceInfo]) -> Option<String> {
        None
    }
}

/// The devices of one source, before the environment and the configuration limit them.
#[derive(Debug)]
pub(super) struct FoundDevices {
    pub devices: Vec<DeviceInfo>,
    pub source: Box<dyn DeviceSource>,
    /// Sentences about devices that exist and cannot be used.
    pub excluded: Vec<String>,
}

impl FoundDevices {
    pub fn new(devices: Vec<DeviceInfo>, source: impl DeviceSource + 'static) -> FoundDevices {
        FoundDevices {
            devices,
            source: Box::new(source),
            excluded: Vec::new(),
        }
    }
}
