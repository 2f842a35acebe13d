//! Converts an entry to a `ModelSpec` for the core: the best figure for its memory (M1), and the
//! durations that follow from its size (L3). This file only chooses between figures; `estimate`
//! computes them.
//! One file because the figures of a model depend on each other and read its files once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use config::{Config, KeepHot};
use pool::{
    Bytes, KeepHotBounds, KeepHotScope, Layout, Loader, LoaderId, ModelSpec, Span, UNTIL_NEEDED,
};

use super::estimate::EstimateError;
use super::layouts::{Demand, DeviceShare, DeviceSize};
use super::memory_split::MemorySplit;
use super::need_source::{MeasuredNeed, NeedSource};
use super::{candle_need, estimate};
use crate::engines::{EngineKind, LLAMA_CPU_OVERHEAD};
use crate::entries::Entry;
use crate::recipes::{CandleRecipe, EngineOptions, Recipe};
use crate::weights::{Fetch, hub_cache};
use model_files::{FileError, ModelFiles, name_size};

/// Transfer rate from host memory to a GPU, a conservative figure for PCIe 4.0 x16.
const HOST_BYTES_PER_MILLISECOND: u64 = 10_000_000;
/// Time of every wake-up in addition to copying.
const WAKE_BASE: Span = Span(500);
/// Host memory of an engine's processes whose weights are not kept in host memory.
const SLEEPING_PROCESS: Bytes = Bytes(2 * Bytes::GIB);

/// Time limit of a load, plus `LOAD_DEADLINE_PER_GIB` for each GiB (L3).
const LOAD_DEADLINE_BASE: Span = Span::from_secs(300);
const LOAD_DEADLINE_PER_GIB: Span = Span::from_secs(20);
/// No weights are loaded; an endpoint that takes longer than this to become ready has a problem.
const REMOTE_DEADLINE: Span = Span::from_secs(60);
/// Ray may have to start a machine first and download the weights there.
const RAY_SERVE_DEADLINE: Span = Span::from_secs(900);
/// The estimated load time without a measurement: process start, and one gigabyte per second.
const RELOAD_BASE: Span = Span::from_secs(2);
const RELOAD_BYTES_PER_MILLISECOND: u64 = 1_000_000;
/// Time between SIGTERM and SIGKILL, unless the model's file sets it (L5).
const STOP_GRACE: Span = Span::from_secs(10);
const BY_SIZES: &str = "the sizes of its files are used instead, without a cache";
/// The keep-hot time under `adaptive` before a model's first request.
const KEEP_HOT_AT_FIRST: Span = Span::from_secs(600);

/// The figures of a model for the core and for display.
#[derive(Debug)]
pub struct EntryFigures {
    pub spec: ModelSpec,
    pub source: NeedSource,
    /// Memory per device without any measurement.
    pub estimated: Option<Bytes>,
    /// The same by place, for engines that divide a model between GPUs and host memory.
    pub split: Option<MemorySplit>,
}

impl Entry {
    /// The model's description for the core. Fails only for a command whose memory is unknown. Reads the headers of the model's
    /// files: call it outside the event loop.
    pub fn spec(
        &self,
        config: &Config,
        measured: Option<MeasuredNeed>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        self.spec_on(config, measured, None)
    }

    /// Like `spec`, for models whose largest device is `device`, which matters for engines that fill a share of a device, or run in
    /// host memory.
    pub fn spec_on(
        &self,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        self.spec_by(&Figures::on(self, device), config, measured, device)
    }

    /// Like `spec_on`, plus the estimates ignoring the measurement. Reads the files once for all.
    pub fn spec_and_estimate(
        &self,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<EntryFigures, EstimateError> {
        let figures = Figures::on(self, device);
        let (spec, source) = self.spec_by(&figures, config, measured, device)?;
        let estimated = match measured {
            None => Some(spec.bytes_per_device),
            Some(_) => {
                let figure = self.figure(&figures, config, None, device);
                figure.ok().map(|(bytes, _)| bytes)
            }
        };
        Ok(EntryFigures {
            spec,
            source,
            estimated,
            split: figures.split(),
        })
    }

    /// Memory of one replica on each device.
    fn figure(
        &self,
        figures: &Figures<'_>,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(Bytes, NeedSource), EstimateError> {
        match figures.bytes(self.devices_per_replica, measured, device) {
            Err(_) if self.waits() => Ok((Bytes(Bytes::GIB), NeedSource::Unfetched)),
            // Offline it stays unknown until the weights are on this machine.
            Ok((bytes, NeedSource::Rough { .. })) if self.waits() && !config.sources.offline => {
                Ok((bytes, NeedSource::Estimate))
            }
            figure => figure,
        }
    }

    fn spec_by(
        &self,
        figures: &Figures<'_>,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        let absent = self.waits();
        let (bytes_per_device, source) = self.figure(figures, config, measured, device)?;
        let damage = self.damage_in(figures);
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
            KeepHot::UntilNeeded => (UNTIL_NEEDED, None),
            // Until enough use has been observed. An administrator's override replaces both.
            KeepHot::Adaptive => (
                KEEP_HOT_AT_FIRST.clamp(bounds.least, bounds.most),
                Some(bounds),
            ),
        };
        let spec = ModelSpec {
            name: self.name.clone(),
            priority: self.priority,
            devices_per_replica: self.devices_per_replica,
            nodes: self.nodes,
            devices_max: self.recipe.devices_max(),
            bytes_per_device,
            keep_hot,
            adaptive_keep_hot,
            // A time in the model's own file means exactly that.
            keep_hot_scope: if self.keep_hot.is_some() {
                KeepHotScope::Model
            } else {
                pool.keep_hot_scope.into()
            },
            min_resident: self.min_resident.unwrap_or(pool.min_resident).span(),
            max_turn: self.max_turn.unwrap_or(pool.max_turn).span(),
            queue_limit: self.queue_limit.unwrap_or(pool.queue_limit),
            queue_timeout: self.queue_timeout.unwrap_or(pool.queue_timeout.0),
            seats_per_replica: self.seats_per_replica,
            load_deadline: self.load_deadline.unwrap_or(match &self.recipe {
                Recipe::Remote(_) => REMOTE_DEADLINE,
                Recipe::RayServe(_) => RAY_SERVE_DEADLINE,
                _ => deadline_for(total),
            }),
            replicas_max: self.recipe.ray_serve().map(|serve| serve.replicas_max),
            reload,
            reload_is_guess: measured.is_none(),
            engine: self.recipe.engine(),
            stop_grace: self.stop_grace.unwrap_or(STOP_GRACE),
            need_is_fixed: matches!(source, NeedSource::File | NeedSource::Unseen),
            wider: self.wider(device),
            loader: self.loader(total),
            parking: self.parking(total),
            scaling: self.scaling.clone().map(Box::new),
            started_with: self.started_with(),
            files_mark: self.files_mark(),
            absent: absent || damage.is_some(),
            damage,
            ..ModelSpec::default()
        };
        Ok((spec, source))
    }

    /// Host memory and wake-up time of the sleeping engine, if it can sleep; `total` is the memory of a replica.
    fn parking(&self, total: Bytes) -> Option<pool::Parking> {
        if let Recipe::Command(crate::recipes::CommandRecipe { sleep: Some(_), .. }) = &self.recipe
        {
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

    /// The device counts it may grow to if none is configured (M5).
    fn wider(&self, device: Option<DeviceSize>) -> Vec<Layout> {
        let layouts = self.layouts(&BTreeMap::new(), device);
        let layouts = layouts.unwrap_or_default().into_iter().skip(1);
        layouts
            .map(|layout| Layout {
                devices: layout.devices,
                bytes_per_device: layout.bytes_per_device,
            })
            .collect()
    }

    /// The local path of the weights.
    pub fn weights_path(&self) -> Option<PathBuf> {
        Figures::new(self).path()
    }

    /// The disk that holds the weights, and the time to read them.
    fn loader(&self, total: Bytes) -> Option<Loader> {
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

    fn damage_in(&self, figures: &Figures<'_>) -> Option<String> {
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

    /// The demand of one replica on each of `devices` devices, and the source of the figure. Reads the headers of the model's
    /// files. Fails like `spec`, except for engines that fill a share of a device: their demand does not depend on the model.
    pub fn demand(
        &self,
        devices: u32,
        measured: Option<MeasuredNeed>,
    ) -> Result<(Demand, NeedSource), EstimateError> {
        Figures::new(self).demand(devices, measured)
    }
}

/// The figures of one model. Reads its files at most once, when needed.
pub(crate) struct Figures<'a> {
    pub(super) entry: &'a Entry,
    pub(super) in_host_memory: bool,
    files: OnceCell<Result<ModelFiles, EstimateError>>,
}

impl<'a> Figures<'a> {
    pub(crate) fn new(entry: &'a Entry) -> Figures<'a> {
        Figures::on(entry, None)
    }

    /// Figures for a model whose largest device is `device`.
    pub(crate) fn on(entry: &'a Entry, device: Option<DeviceSize>) -> Figures<'a> {
        Figures {
            entry,
            in_host_memory: device.is_some_and(|device| device.is_host),
            files: OnceCell::new(),
        }
    }

    pub(crate) fn files(&self) -> Result<&ModelFiles, &EstimateError> {
        self.files
            .get_or_init(|| {
                let described = self.entry.fetch.as_ref().and_then(Fetch::described);
                if let Some((folder, bytes)) = described {
                    let mut files = ModelFiles::read(&folder)?;
                    files.weights.stored_bytes = bytes;
                    // The sizes were listed, not computed from the configuration.
                    files.by_config = false;
                    return Ok(files);
                }
                match self.path() {
                    Some(path) => Ok(ModelFiles::read(&path)?),
                    None => Err(EstimateError::NotLocal),
                }
            })
            .as_ref()
    }

    /// The local path of the model.
    pub(super) fn path(&self) -> Option<PathBuf> {
        if let Some(fetch) = &self.entry.fetch {
            return fetch.found();
        }
        let (named, working_dir, env) = match &self.entry.recipe {
            Recipe::Candle(candle) => return Some(candle.model_path.clone()),
            Recipe::Command(command) => {
                let named = match &command.model_path {
                    Some(named) => named.clone(),
                    None => command.engine_options(1).model?,
                };
                (named, &command.working_dir, &command.env)
            }
            Recipe::Server(server) => (server.model.clone(), &server.working_dir, &server.env),
            Recipe::Remote(_) | Recipe::RayServe(_) => return None,
        };
        let path = PathBuf::from(&named);
        if path.is_absolute() {
            return Some(path);
        }
        let in_working_dir = working_dir.as_ref().map(|folder| folder.join(&path));
        let local = in_working_dir.unwrap_or(path);
        if local.exists() {
            return Some(local);
        }
        hub_cache::snapshot(&named, env)
    }

    pub(crate) fn bytes(
        &self,
        devices: u32,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(Bytes, NeedSource), EstimateError> {
        let (demand, source) = self.demand(devices, measured)?;
        match demand.resolve(device.map(|device| device.total)) {
            Some(bytes) => Ok((bytes, source)),
            None => Err(match self.files() {
                Err(error) => self.no_figure(&error.to_string()),
                Ok(_) => self.no_figure("no device's size is known"),
            }),
        }
    }

    fn demand(
        &self,
        devices: u32,
        measured: Option<MeasuredNeed>,
    ) -> Result<(Demand, NeedSource), EstimateError> {
        if let Some(total) = self.entry.memory {
            let bytes = estimate::share(total, devices);
            return Ok((Demand::Bytes(bytes), NeedSource::File));
        }
        let measured = measured.map(|measured| measured.bytes_per_device);
        match (&self.entry.recipe, measured) {
            // A command allocates its cache at start and keeps it, so the measurement is complete.
            (Recipe::Command(_), Some(bytes)) => Ok((Demand::Bytes(bytes), NeedSource::Measured)),
            (Recipe::Command(command), None) => {
                self.of_options(&command.engine_options(devices), command.context, devices)
            }
            (Recipe::Server(server), Some(bytes)) if !server.engine.fills => {
                Ok((Demand::Bytes(bytes), NeedSource::Measured))
            }
            // The engine fills its reservation, so a measurement only repeats the last reservation. It is used if nothing else is
            // known.
            (Recipe::Server(server), measured) => {
                let options = server.engine_options(devices);
                match (self.of_options(&options, server.context, devices), measured) {
                    (Err(_), Some(bytes)) => Ok((Demand::Bytes(bytes), NeedSource::Measured)),
                    (demand, _) => demand,
                }
            }
            (Recipe::Remote(_), _) => Ok((Demand::Bytes(Bytes::ZERO), NeedSource::File)),
            (Recipe::RayServe(_), _) => Ok((Demand::Bytes(Bytes::ZERO), NeedSource::Unseen)),
            // Pages of weights and cache are mapped on first use; a measurement may have missed some.
            (Recipe::Candle(candle), measured) => {
                let (estimate, source) = self.of_candle(candle, devices);
                let (bytes, source) = match measured.filter(|bytes| *bytes >= estimate) {
                    Some(bytes) => (bytes, NeedSource::Measured),
                    None => (estimate, source),
                };
                Ok((Demand::Bytes(bytes), source))
            }
        }
    }

    fn of_candle(&self, recipe: &CandleRecipe, devices: u32) -> (Bytes, NeedSource) {
        let error = match self.files() {
            Ok(files) => match candle_need::need(recipe, files, devices) {
                Ok(bytes) => return (bytes, self.estimate(files)),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        // The load will fail with the engine's own error, or show that the estimate was wrong.
        let (bytes, has_sizes) = candle_need::by_sizes(recipe, devices);
        let instead = if has_sizes {
            BY_SIZES
        } else {
            "only the engine's own overhead is reserved"
        };
        (bytes, self.rough(&error, instead))
    }

    fn of_options(
        &self,
        options: &EngineOptions,
        context: Option<u32>,
        devices: u32,
    ) -> Result<(Demand, NeedSource), EstimateError> {
        let shared = |least, wanted| {
            options.share_per_mille.map(|per_mille| {
                Demand::Share(DeviceShare {
                    per_mille,
                    beside: options.beside_share,
                    least,
                    wanted,
                })
            })
        };
        let error = match self.files() {
            Ok(files) => {
                let seats = self.entry.seats_per_replica;
                match estimate::command(
                    options,
                    files,
                    context,
                    seats,
                    devices,
                    self.in_host_memory,
                ) {
                    Ok(need) => {
                        let demand = shared(need.least, Some(need.wanted));
                        let demand = demand.unwrap_or(Demand::Bytes(need.wanted));
                        return Ok((demand, self.estimate_with(files, need.guesses)));
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        let overhead = self.overhead(options.kind, devices);
        let sizes = self
            .path()
            .and_then(|path| estimate::by_file_sizes(&path, overhead))
            .map(|total| estimate::share(total, devices));
        if let (None, Some((total, reason))) = (sizes, self.by_name(overhead)) {
            let bytes = estimate::share(total, devices);
            let demand = shared(bytes, Some(bytes)).unwrap_or(Demand::Bytes(bytes));
            return Ok((demand, self.rough(&error, &reason)));
        }
        match (shared(sizes.unwrap_or(Bytes::ZERO), sizes), sizes) {
            (Some(demand), Some(_)) => Ok((demand, self.rough(&error, BY_SIZES))),
            (Some(demand), None) => Ok((
                demand,
                self.rough(
                    &error,
                    "the share of a device that its engine fills is reserved",
                ),
            )),
            (None, Some(bytes)) => Ok((Demand::Bytes(bytes), self.rough(&error, BY_SIZES))),
            (None, None) => Err(self.no_figure(&error)),
        }
    }

    /// The engine's own memory on all devices of a replica.
    fn overhead(&self, kind: EngineKind, devices: u32) -> Bytes {
        if self.in_host_memory && kind == EngineKind::LlamaCpp {
            LLAMA_CPU_OVERHEAD
        } else {
            estimate::command_overhead(kind, devices)
        }
    }

    /// Estimate from the name of a model whose weights its engine will download: weights, a fifth of them for the cache, and the
    /// engine's overhead.
    fn by_name(&self, overhead: Bytes) -> Option<(Bytes, String)> {
        let Recipe::Server(server) = &self.entry.recipe else {
            return None;
        };
        let fetched = self.entry.fetch.as_ref().map(|fetch| &fetch.id);
        let named = fetched.or(Some(&server.model).filter(|_| !server.is_local))?;
        let size = name_size::of_name(named)?;
        let weights = Bytes(size.bytes());
        let reason = format!(
            "its name suggests {} billion parameters of {} bits, {weights}",
            (size.parameters * 100.0).round() / 100.0,
            size.bits
        );
        let total = Bytes(
            weights
                .0
                .saturating_add(weights.0 / 5)
                .saturating_add(overhead.0),
        );
        Some((total, reason))
    }

    /// The source of a figure from the model's files, listing any guesses.
    fn estimate(&self, files: &ModelFiles) -> NeedSource {
        self.estimate_with(files, Vec::new())
    }

    fn estimate_with(&self, files: &ModelFiles, further: Vec<String>) -> NeedSource {
        let mut guesses = files.guesses();
        guesses.extend(further);
        if guesses.is_empty() {
            return NeedSource::Estimate;
        }
        NeedSource::Rough {
            reason: format!(
                "the memory of {} is estimated roughly: {}; pool_config.memory_gib sets the figure",
                self.entry.name,
                guesses.join("; ")
            ),
        }
    }

    fn rough(&self, error: &str, instead: &str) -> NeedSource {
        NeedSource::Rough {
            reason: format!(
                "the memory of {} cannot be estimated ({error}); {instead}; pool_config.memory_gib sets the figure",
                self.entry.name
            ),
        }
    }

    fn no_figure(&self, why: &str) -> EstimateError {
        EstimateError::NoFigure {
            model: self.entry.name.clone(),
            why: why.to_owned(),
        }
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

#[cfg(test)]
mod tests;
