//! From an entry to what the core must know of it (`ModelSpec`): the best figure of its memory
//! (M1), and the times that follow from its size (L3). Estimates come from `estimate`; this file
//! only chooses between figures.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::{Config, KeepHot};
use crate::pool::{Bytes, KeepHotBounds, Layout, Loader, LoaderId, ModelSpec, Span};

use super::entry::Entry;
use super::estimate::{self, EstimateError, ModelShape};
use super::recipe::Recipe;

/// A load may take this long, and `LOAD_DEADLINE_PER_GIB` more for each GiB (L3).
const LOAD_DEADLINE_BASE: Span = Span::from_secs(300);
const LOAD_DEADLINE_PER_GIB: Span = Span::from_secs(20);
/// The guess of a load that nobody has measured: process start, and one gigabyte a second.
const RELOAD_BASE: Span = Span::from_secs(2);
const RELOAD_BYTES_PER_MILLISECOND: u64 = 1_000_000;
/// Between SIGTERM and SIGKILL, unless the model's file says otherwise (L5).
const STOP_GRACE: Span = Span::from_secs(10);

/// With `adaptive`, what stands in for a model that nobody has used yet.
const KEEP_HOT_AT_FIRST: Span = Span::from_secs(600);

/// What earlier replicas of the model took, from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The peak on the device that held most.
    pub bytes_per_device: Bytes,
    /// From launch to ready.
    pub reload_ms: u64,
}

/// Where the figure of a model's memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeedSource {
    /// An administrator's: the model's file, or the reference.
    File,
    Measured,
    Estimate,
    /// A rough estimate, with the reason why there is no better one.
    Rough {
        reason: String,
    },
}

impl NeedSource {
    /// The word in answers: `file`, `measured` or `estimate`.
    pub fn name(&self) -> &'static str {
        match self {
            NeedSource::File => "file",
            NeedSource::Measured => "measured",
            NeedSource::Estimate | NeedSource::Rough { .. } => "estimate",
        }
    }

    /// What an administrator should hear about the figure, if anything.
    pub fn warning(&self) -> Option<&str> {
        match self {
            NeedSource::Rough { reason } => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Display for NeedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Entry {
    /// What the core must know of the model. Fails only for a command of which nothing says how
    /// much memory it needs. Reads the headers of the model's files: call it off the event loop.
    pub fn spec(
        &self,
        config: &Config,
        measured: Option<Measured>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        let (bytes_per_device, source) = self.need(measured)?;
        let total = Bytes(
            bytes_per_device
                .0
                .saturating_mul(u64::from(self.devices_per_replica)),
        );
        let reload = match measured {
            Some(measured) => Span(measured.reload_ms),
            None => Span(
                RELOAD_BASE
                    .0
                    .saturating_add(total.0 / RELOAD_BYTES_PER_MILLISECOND),
            ),
        };
        let pool = &config.pool;
        let bounds = KeepHotBounds {
            least: pool.keep_hot_least.0,
            most: pool.keep_hot_most.0,
        };
        let (keep_hot, adaptive_keep_hot) = match self.keep_hot.unwrap_or(pool.keep_hot) {
            KeepHot::For(length) => (length.0, None),
            // Until the model's own use is known; an administrator's override replaces either.
            KeepHot::Adaptive => (
                KEEP_HOT_AT_FIRST.clamp(bounds.least, bounds.most),
                Some(bounds),
            ),
        };
        let spec = ModelSpec {
            name: self.name.clone(),
            priority: self.priority,
            devices_per_replica: self.devices_per_replica,
            bytes_per_device,
            keep_hot,
            adaptive_keep_hot,
            min_resident: self.min_resident.unwrap_or(pool.min_resident).span(),
            max_turn: self.max_turn.unwrap_or(pool.max_turn).span(),
            queue_limit: self.queue_limit.unwrap_or(pool.queue_limit),
            queue_timeout: self.queue_timeout.unwrap_or(pool.queue_timeout.0),
            seats_per_replica: self.seats_per_replica,
            load_deadline: self.load_deadline.unwrap_or(deadline_for(total)),
            reload,
            stop_grace: self.stop_grace.unwrap_or(STOP_GRACE),
            need_is_fixed: source == NeedSource::File,
            wider: self.wider(),
            loader: self.loader(total),
            ..ModelSpec::default()
        };
        Ok((spec, source))
    }

    /// The numbers of devices it may grow to where nobody said how many, with what it needs on each:
    /// powers of two that divide its attention heads (M5).
    fn wider(&self) -> Vec<Layout> {
        let Recipe::Command(recipe) = &self.recipe else {
            return Vec::new();
        };
        let Some(path) = recipe.model_path.as_deref().map(Path::new) else {
            return Vec::new();
        };
        if self.devices_are_given {
            return Vec::new();
        }
        let Ok(shape) = ModelShape::read(path) else {
            return Vec::new();
        };
        let over = |devices: u32| {
            let total = match self.memory {
                Some(total) => total,
                None => estimate::command(recipe, self.seats_per_replica, devices).ok()?,
            };
            Some(Layout {
                devices,
                bytes_per_device: Bytes(total.0.div_ceil(u64::from(devices))),
            })
        };
        [2, 4, 8, 16]
            .into_iter()
            .filter(|devices| shape.attention_heads.is_multiple_of(u64::from(*devices)))
            .filter_map(over)
            .collect()
    }

    /// Where its weights lie, if that is on this machine.
    pub fn weights_path(&self) -> Option<PathBuf> {
        match &self.recipe {
            Recipe::Candle(recipe) => Some(recipe.model_path.clone()),
            Recipe::Command(recipe) => recipe.model_path.as_deref().map(PathBuf::from),
        }
    }

    /// The disk that its weights lie on, and how long they are read from it.
    fn loader(&self, total: Bytes) -> Option<Loader> {
        // The device number of a file system is larger than the core's, which only tells them apart.
        let device = std::fs::metadata(self.weights_path()?).ok()?.dev();
        Some(Loader {
            loader: LoaderId((device ^ (device >> 32)) as u32),
            takes: Span(total.0 / RELOAD_BYTES_PER_MILLISECOND),
        })
    }

    fn need(&self, measured: Option<Measured>) -> Result<(Bytes, NeedSource), EstimateError> {
        if let Some(total) = self.memory {
            return Ok((self.share(total), NeedSource::File));
        }
        let measured = measured.map(|measured| measured.bytes_per_device);
        match (&self.recipe, measured) {
            // It takes its cache at the start and keeps it: what was seen is all there is.
            (Recipe::Command(_), Some(bytes)) => Ok((bytes, NeedSource::Measured)),
            (Recipe::Command(_), None) => self.estimated(),
            // Its cache grows while it is used: a measurement may have seen only a part of it.
            (Recipe::Candle(_), measured) => {
                let (estimate, source) = self.estimated()?;
                match measured.filter(|bytes| *bytes >= estimate) {
                    Some(bytes) => Ok((bytes, NeedSource::Measured)),
                    None => Ok((estimate, source)),
                }
            }
        }
    }

    fn estimated(&self) -> Result<(Bytes, NeedSource), EstimateError> {
        let devices = self.devices_per_replica;
        match &self.recipe {
            Recipe::Candle(recipe) => {
                let error = match estimate::candle(recipe, devices) {
                    Ok(total) => return Ok((self.share(total), NeedSource::Estimate)),
                    Err(error) => error,
                };
                // The load will fail with the engine's own reason, or prove the estimate wrong.
                let overhead = estimate::candle_overhead(recipe, devices);
                let sizes = estimate::by_file_sizes(&recipe.model_path, overhead);
                Ok((
                    self.share(sizes.unwrap_or(overhead)),
                    self.rough(&error, sizes.is_some()),
                ))
            }
            Recipe::Command(recipe) => {
                let error = match estimate::command(recipe, self.seats_per_replica, devices) {
                    Ok(total) => return Ok((self.share(total), NeedSource::Estimate)),
                    Err(error) => error,
                };
                let path = recipe.model_path.as_deref().map(Path::new);
                let overhead = estimate::command_overhead(devices);
                match path.and_then(|path| estimate::by_file_sizes(path, overhead)) {
                    Some(total) => Ok((self.share(total), self.rough(&error, true))),
                    None => Err(self.no_figure(path, &error)),
                }
            }
        }
    }

    fn rough(&self, error: &EstimateError, has_files: bool) -> NeedSource {
        let instead = if has_files {
            "the sizes of its files are used instead, without a cache"
        } else {
            "only the engine's own overhead is reserved"
        };
        NeedSource::Rough {
            reason: format!(
                "the memory of {} cannot be estimated ({error}); {instead}; pool_config.memory_gib sets the figure",
                self.name
            ),
        }
    }

    fn no_figure(&self, path: Option<&Path>, error: &EstimateError) -> EstimateError {
        let why = match path {
            None => "engine_config.model_path names no local model".to_owned(),
            Some(_) => error.to_string(),
        };
        EstimateError::NoFigure {
            model: self.name.clone(),
            why,
        }
    }

    fn share(&self, total: Bytes) -> Bytes {
        Bytes(total.0.div_ceil(u64::from(self.devices_per_replica)))
    }
}

fn deadline_for(total: Bytes) -> Span {
    let more = u128::from(LOAD_DEADLINE_PER_GIB.0) * u128::from(total.0) / u128::from(Bytes::GIB);
    Span(
        LOAD_DEADLINE_BASE
            .0
            .saturating_add(u64::try_from(more).unwrap_or(u64::MAX)),
    )
}
