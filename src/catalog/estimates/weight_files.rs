//! Facts about the files of a model's weights: their place, their damage, the time to read them, and the host memory that they take
//! while an engine sleeps.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use pool::{Bytes, Loader, LoaderId, Span};

use super::estimate::{self, EstimateError};
use super::figures::Figures;
use super::need::RELOAD_BYTES_PER_MILLISECOND;
use crate::entries::Entry;
use crate::recipes::{CommandRecipe, Recipe};
use model_files::FileError;

/// Transfer rate from host memory to a GPU, a conservative figure for PCIe 4.0 x16.
const HOST_BYTES_PER_MILLISECOND: u64 = 10_000_000;
/// Time of every wake-up in addition to copying.
const WAKE_BASE: Span = Span(500);
/// Host memory of an engine's processes whose weights are not kept in host memory.
const SLEEPING_PROCESS: Bytes = Bytes(2 * Bytes::GIB);

impl Entry {
    /// Host memory and wake-up time of the sleeping engine, if it can sleep; `total` is the memory of a replica.
    pub(super) fn parking(&self, total: Bytes) -> Option<pool::Parking> {
        if let Recipe::Command(CommandRecipe { sleep: Some(_), .. }) = &self.recipe {
            // All of its memory is copied, not only weights.
            return Some(pool::Parking {
                host: total,
                resident_per_device: Bytes::ZERO,
                wakes_in: Span(
                    WAKE_BASE
                        .0
                        .saturating_add(total.0 / HOST_BYTES_PER_MILLISECOND),
                ),
            });
        }
        let routes = self.recipe.parking()?;
        let weights = self.weights_per_device(1).unwrap_or(total).min(total);
        let (host, base, source) = match &self.recipe {
            _ if routes.weights_on_host => (weights, WAKE_BASE, HOST_BYTES_PER_MILLISECOND),
            // The process runs on the device, and the pages of its weights belong to the system's cache.
            Recipe::Candle(_) => (Bytes::ZERO, Span(5), HOST_BYTES_PER_MILLISECOND),
            _ => (SLEEPING_PROCESS, WAKE_BASE, RELOAD_BYTES_PER_MILLISECOND),
        };
        let wakes_in = base.0.saturating_add(weights.0 / source);
        Some(pool::Parking {
            host,
            resident_per_device: routes.resident_per_device,
            wakes_in: Span(wakes_in),
        })
    }

    /// The local path of the weights.
    pub fn weights_path(&self) -> Option<PathBuf> {
        Figures::new(self).path()
    }

    /// The disk that holds the weights, and the time to read them.
    pub(super) fn loader(&self, total: Bytes) -> Option<Loader> {
        // The core only compares these ids, so folding the larger device number is enough.
        let place = match &self.fetch {
            Some(fetch) => fetch.root(),
            None => self.weights_path()?,
        };
        let device = std::fs::metadata(place).ok()?.dev();
        Some(Loader {
            loader: LoaderId((device ^ (device >> 32)) as u32),
            takes: Span(total.0 / RELOAD_BYTES_PER_MILLISECOND),
        })
    }

    /// The weights' share on each of `devices` devices, if their files can be read. Reads headers: call it outside the event loop.
    pub fn weights_per_device(&self, devices: u32) -> Option<Bytes> {
        let figures = Figures::new(self);
        let weights = figures.files().ok()?.weights.stored_bytes;
        Some(estimate::share(Bytes(weights), devices))
    }

    /// Returns damage visible in the headers of the local weights, which would make a load fail (L3). Checks only files that the
    /// engine itself reads: a command may read other files, a prefix may mount other files under the same path, and downloads are
    /// verified against their source. Reads the files again: call it outside the event loop.
    pub fn damage(&self) -> Option<String> {
        self.damage_in(&Figures::new(self))
    }

    pub(super) fn damage_in(&self, figures: &Figures<'_>) -> Option<String> {
        let reads = match &self.recipe {
            _ if self.fetch.is_some() => false,
            Recipe::Candle(_) => true,
            Recipe::Server(server) => {
                let has_dummies = server.flags.value("load_format") == Some("dummy");
                server.is_local && server.prefix.is_empty() && !has_dummies
            }
            _ => false,
        };
        if !reads {
            return None;
        }
        match figures.files() {
            Err(EstimateError::File(
                error @ (FileError::Damaged { .. } | FileError::StandIn { .. }),
            )) => Some(format!("its weights are damaged: {error}")),
            _ => None,
        }
    }
}
