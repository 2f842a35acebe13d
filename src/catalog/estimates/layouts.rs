//! The device counts that a model supports, with its memory on each device (M5), including needs that depend on the size of a
//! device. The core chooses among them.

use std::collections::BTreeMap;

use pool::Bytes;

use super::candle_need;
use super::estimate::EstimateError;
use super::figures::Figures;
use super::need_source::MeasuredNeed;
use crate::entries::Entry;
use crate::recipes::Recipe;

/// Device counts to consider if none is configured.
const COUNTS: [u32; 5] = [1, 2, 4, 8, 16];

/// The memory of a device that a model may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSize {
    pub total: Bytes,
    /// The device is the machine's own memory: engines run without a GPU.
    pub is_host: bool,
    /// The device is a GPU that shares the machine's memory.
    pub is_unified: bool,
}

impl DeviceSize {
    /// The size of a GPU.
    pub fn gpu(total: Bytes) -> DeviceSize {
        DeviceSize {
            total,
            is_host: false,
            is_unified: false,
        }
    }
}

/// A possible placement size of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub devices: u32,
    pub bytes_per_device: Bytes,
}

/// A replica's memory demand on each of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A fixed size, independent of the device.
    Bytes(Bytes),
    /// A share of the device, independent of the model: vLLM and similar engines.
    Share(DeviceShare),
}

/// A demand for a share of each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    /// Thousandths of the device's total memory, at most 1000.
    pub per_mille: u32,
    /// Memory used in addition to the share.
    pub beside: Bytes,
    /// The minimum for the engine to start; zero if unknown.
    pub least: Bytes,
    /// A substitute for an unknown device size, if the model's files could be read.
    pub wanted: Option<Bytes>,
}

impl Demand {
    /// Bytes on a device with `total` memory, free or not. At least the engine's minimum, which makes devices that are too small
    /// recognisable.
    pub fn on(self, total: Bytes) -> Bytes {
        match self {
            Demand::Bytes(bytes) => bytes,
            Demand::Share(share) => {
                // Cannot overflow: a u64 times at most 1000 fits into 128 bits.
                let part = u128::from(total.0) * u128::from(share.per_mille.min(1000)) / 1000;
                let part = Bytes(u64::try_from(part).unwrap_or(u64::MAX));
                (part + share.beside).min(total).max(share.least)
            }
        }
    }

    /// Bytes while no device's size is known; `None` without an estimate.
    pub fn anywhere(self) -> Option<Bytes> {
        match self {
            Demand::Bytes(bytes) => Some(bytes),
            Demand::Share(share) => share.wanted,
        }
    }

    /// `on` if the size is known, else `anywhere`.
    pub fn resolve(self, total: Option<Bytes>) -> Option<Bytes> {
        match total {
            Some(total) => Some(self.on(total)),
            None => self.anywhere(),
        }
    }
}

impl Entry {
    /// The model's layouts, smallest first. If a file or the command sets the number of devices, there is one; otherwise 1, 2, 4, 8
    /// and 16 are considered, provided that they divide the attention heads or, for the embedded engine, do not exceed its layers.
    ///
    /// `measured` holds the measured memory of replicas by device count. `device` is the largest device, for engines that fill a
    /// share of it. Reads the headers of the model's files: call it outside the event loop. Fails like `spec`.
    pub fn layouts(
        &self,
        measured: &BTreeMap<u32, MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<Vec<Layout>, EstimateError> {
        let figures = Figures::on(self, device);
        self.device_counts(&figures)
            .into_iter()
            .map(|devices| {
                let measured = measured.get(&devices).copied();
                let (bytes_per_device, _) = figures.bytes(devices, measured, device)?;
                Ok(Layout {
                    devices,
                    bytes_per_device,
                })
            })
            .collect()
    }

    fn device_counts(&self, figures: &Figures<'_>) -> Vec<u32> {
        if let Some(configured) = self.devices_configured {
            return vec![configured];
        }
        let most = match &self.recipe {
            // Computed by another server.
            Recipe::Remote(_) | Recipe::RayServe(_) => 1,
            Recipe::Command(command) if !command.follows_device_count() => 1,
            recipe => recipe.devices_max(),
        };
        if most == 1 {
            return vec![1];
        }
        // The embedded engine divides its layers, not its heads.
        if let Recipe::Candle(_) = &self.recipe {
            let blocks = figures.files().map_or(1, candle_need::blocks);
            let most = most.min(blocks);
            return COUNTS.into_iter().filter(|count| *count <= most).collect();
        }
        let heads = match figures.files() {
            Ok(files) => files.architecture.attention_heads,
            Err(_) => None,
        };
        COUNTS
            .into_iter()
            .filter(|count| *count <= most)
            .filter(|count| {
                *count == 1 || heads.is_some_and(|heads| heads % u64::from(*count) == 0)
            })
            .collect()
    }
}
