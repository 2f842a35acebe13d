//! The source of this process's devices.

use crate::{host, nvml};

#[derive(Debug)]
pub(crate) enum Source {
    Nvml(Box<nvml::Gpus>),
    Host(host::Host),
    Fixed,
}
