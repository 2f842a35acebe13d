//! The device counts that a model can take, with its need on each device (M5), and needs that depend on how large a
//! device is. The core chooses among them.

use std::collections::BTreeMap;

use pool::Bytes;

use super::candle_need;
use super::entry::Entry;
use super::estimate::EstimateError;
use super::need::Figures;
use super::need_source::Measured;
use super::recipe::Recipe;

/// Device counts that are tried where none is configured.
const COUNTS: [u32; 5] = [1, 2, 4, 8, 16];

/// One way to place a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub devices: u32,
    pub bytes_per_device: Bytes,
}

/// What a replica asks of each of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// So much, on any device.
    Bytes(Bytes),
    /// A part of the device, whatever the model: vLLM and its like.
    Share(DeviceShare),
}

/// A demand for a part of each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    /// Thousandths of the device's whole memory, at most 1000.
    pub per_mille: u32,
    /// Taken above that part.
    pub beside: Bytes,
    /// With less on a device the engine does not start; zero where that is not known.
    pub least: Bytes,
    /// What stands in while no device's size is known, if the model's files could be read.
    pub wanted: Option<Bytes>,
}

impl Demand {
    /// The bytes on a device with so much memory in all, free or not. Never less than the
    /// engine needs to start, so that a device that is too small shows as one.
    pub fn on(self, total: Bytes) -> Bytes {
        match self {
            Demand::Bytes(bytes) => bytes,
            Demand::Share(share) => {
                // Cannot overflow: at most 1000 times a u64, in 128 bits, divided again.
                let part = u128::from(total.0) * u128::from(share.per_mille.min(1000)) / 1000;
                let part = Bytes(u64::try_from(part).unwrap_or(u64::MAX));
                (part + share.beside).min(total).max(share.least)
            }
        }
    }

    /// The bytes while no device's size is known. `None`: there is no estimate.
    pub fn anywhere(self) -> Option<Bytes> {
        match self {
            Demand::Bytes(bytes) => Some(bytes),
            Demand::Share(share) => share.wanted,
        }
    }

    /// `on` where the size is known, else `anywhere`.
    pub fn resolve(self, total: Option<Bytes>) -> Option<Bytes> {
        match total {
            Some(total) => Some(self.on(total)),
            None => self.anywhere(),
        }
    }
}

impl Entry {
    /// The layouts of the model, the smallest first: one where a file or the command says the
    /// number of devices; otherwise 1, 2, 4, 8 and 16 as far as they divide its attention heads, or
    /// the embedded engine has as many layers.
    ///
    /// `measured` holds what replicas on so many devices took. `device_total` is the memory of one
    /// device, for engines that fill a share of it. Reads the headers of the model's files: call
    /// it off the event loop. Fails like `spec`.
    pub fn layouts(
        &self,
        measured: &BTreeMap<u32, Measured>,
        device_total: Option<Bytes>,
    ) -> Result<Vec<Layout>, EstimateError> {
        let figures = Figures::of(self);
        self.device_counts(&figures)
            .into_iter()
            .map(|devices| {
                let measured = measured.get(&devices).copied();
                let (bytes_per_device, _) = figures.bytes(devices, measured, device_total)?;
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
            // A remote server computes it.
            Recipe::Remote(_) | Recipe::RayServe(_) => 1,
            Recipe::Command(command) if !command.follows_device_count() => 1,
            recipe => recipe.devices_max(),
        };
        if most == 1 {
            return vec![1];
        }
        // It divides its layers, not its heads.
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
