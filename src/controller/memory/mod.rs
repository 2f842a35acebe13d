//! Models and devices: the numbers of models, readings of devices, and measured memory.

mod allowed_devices;
mod device_reports;
mod measurements;
mod registry;

pub(crate) use allowed_devices::allowed_on;
pub use registry::log_broken;
