//! Where the devices of this process are from.

use crate::{host, nvml};

#[derive(Debug)]
pub(crate) enum Source {
    Nvml(Box<nvml::Gpus>),
    Host(host::Host),
    Fixed,
}
