//! A replica's part of a device.

use crate::types::ids::{Bytes, DeviceId};

/// A replica's part of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    pub device: DeviceId,
    pub bytes: Bytes,
}
