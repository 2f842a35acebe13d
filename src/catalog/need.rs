//! From an entry to what the core must know of it (`ModelSpec`): the best figure of its memory
//! (M1), and the times that follow from its size (L3). Estimates come from `estimate`; this file
//! only chooses between figures.
//! One file because the figures of a model depend on each other and read its files once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use config::{Config, KeepHot};
use pool::{Bytes, KeepHotBounds, Layout, Loader, LoaderId, ModelSpec, Span};

use super::candle_need;
use super::engine_options::EngineOptions;
use super::entry::Entry;
use super::estimate::{self, EstimateError};
use super::hub_cache;
use super::layouts::{Demand, DeviceShare};
use super::need_source::{Measured, NeedSource};
use super::recipe::{CandleRecipe, Recipe};
use super::weights::Fetch;
use model_files::{FileError, ModelFiles, name_size};

/// From the host's memory to a GPU, over PCIe 4.0 x16 with room to spare.
const HOST_BYTES_PER_MILLISECOND: u64 = 10_000_000;
/// Every waking takes so long beside the copying.
const WAKE_BASE: Span = Span(500);
/// What the processes of an engine keep when its weights do not wait in the host's memory.
const SLEEPING_PROCESS: Bytes = Bytes(2 * Bytes::GIB);

/// A load may take this long, and `LOAD_DEADLINE_PER_GIB` more for each GiB (L3).
const LOAD_DEADLINE_BASE: Span = Span::from_secs(300);
const LOAD_DEADLINE_PER_GIB: Span = Span::from_secs(20);
/// Nothing is loaded: an endpoint that is not ready within this time is in trouble.
const REMOTE_DEADLINE: Span = Span::from_secs(60);
/// Ray may have to bring a machine first, and to fetch the weights there.
const RAY_SERVE_DEADLINE: Span = Span::from_secs(900);
/// The guess of a load that has not been measured: process start, and one gigabyte a second.
const RELOAD_BASE: Span = Span::from_secs(2);
const RELOAD_BYTES_PER_MILLISECOND: u64 = 1_000_000;
/// Between SIGTERM and SIGKILL, unless the model's file says otherwise (L5).
const STOP_GRACE: Span = Span::from_secs(10);
const BY_SIZES: &str = "the sizes of its files are used instead, without a cache";
/// With `adaptive`, what stands in for a model without a request so far.
const KEEP_HOT_AT_FIRST: Span = Span::from_secs(600);

impl Entry {
    /// What the core must know of the model. Fails only for a command of which nothing says how
    /// much memory it needs. Reads the headers of the model's files: call it off the event loop.
    pub fn spec(
        &self,
        config: &Config,
        measured: Option<Measured>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        self.spec_on(config, measured, None)
    }

    /// `spec` where each device has `device_total` memory in all, which engines that fill a share
    /// of a device depend on.
    pub fn spec_on(
        &self,
        config: &Config,
        measured: Option<Measured>,
        device_total: Option<Bytes>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        self.spec_by(&Figures::of(self), config, measured, device_total)
    }

    /// `spec_on`, with what each device would need were nothing measured. The files are looked at once for both.
    pub fn spec_and_estimate(
        &self,
        config: &Config,
        measured: Option<Measured>,
        device_total: Option<Bytes>,
    ) -> Result<(ModelSpec, NeedSource, Option<Bytes>), EstimateError> {
        let figures = Figures::of(self);
        let (spec, source) = self.spec_by(&figures, config, measured, device_total)?;
        let estimated = match measured {
            None => Some(spec.bytes_per_device),
            Some(_) => {
                let figure = self.figure(&figures, config, None, device_total);
                figure.ok().map(|(bytes, _)| bytes)
            }
        };
        Ok((spec, source, estimated))
    }

    /// What one replica needs of each device.
    fn figure(
        &self,
        figures: &Figures<'_>,
        config: &Config,
        measured: Option<Measured>,
        device_total: Option<Bytes>,
    ) -> Result<(Bytes, NeedSource), EstimateError> {
        match figures.bytes(self.devices_per_replica, measured, device_total) {
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
        measured: Option<Measured>,
        device_total: Option<Bytes>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        let absent = self.waits();
        let (bytes_per_device, source) = self.figure(figures, config, measured, device_total)?;
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
            devices_max: self.recipe.devices_max(),
            bytes_per_device,
            keep_hot,
            adaptive_keep_hot,
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
            replicas_max: self.recipe.ray_serve().map(|it| it.replicas_max),
            reload,
            stop_grace: self.stop_grace.unwrap_or(STOP_GRACE),
            need_is_fixed: matches!(source, NeedSource::File | NeedSource::Unseen),
            wider: self.wider(device_total),
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

    /// What its engine takes of the host while it sleeps, where it can; `total` is what a replica needs.
    fn parking(&self, total: Bytes) -> Option<pool::Parking> {
        if let Recipe::Command(super::CommandRecipe { sleep: Some(_), .. }) = &self.recipe {
            // All that it holds is copied, weights or not.
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
            // Its process is on the device itself, and the pages of its weights are the system's.
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

    /// The numbers of devices it may grow to where none is configured (M5).
    fn wider(&self, device_total: Option<Bytes>) -> Vec<Layout> {
        let layouts = self.layouts(&BTreeMap::new(), device_total);
        let layouts = layouts.unwrap_or_default().into_iter().skip(1);
        layouts
            .map(|layout| Layout {
                devices: layout.devices,
                bytes_per_device: layout.bytes_per_device,
            })
            .collect()
    }

    /// Where its weights lie, if that is on this machine.
    pub fn weights_path(&self) -> Option<PathBuf> {
        Figures::of(self).path()
    }

    /// The disk that its weights lie on, and how long they are read from it.
    fn loader(&self, total: Bytes) -> Option<Loader> {
        // The device number of a file system is larger than the core's, which only tells them apart.
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

    /// The weights' part of each of so many devices, where their files can be read. Reads headers:
    /// call it off the event loop.
    pub fn weights_per_device(&self, devices: u32) -> Option<Bytes> {
        let figures = Figures::of(self);
        let weights = figures.files().ok()?.weights.stored_bytes;
        Some(estimate::share(Bytes(weights), devices))
    }

    /// What the headers of its weights on this machine show to be damaged: a load would fail with it (L3). Only of files that
    /// the engine itself is given and reads: a command may read others, a prefix may show others to the engine under the same
    /// path, and what is fetched is compared with its source. Looks at the files again: call it off the event loop.
    pub fn damage(&self) -> Option<String> {
        self.damage_in(&Figures::of(self))
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

    /// What one replica on `devices` devices asks of each, and where the figure comes from. Reads
    /// the headers of the model's files. Fails like `spec`, except for engines that fill a share
    /// of a device: their demand is known without the model.
    pub fn demand(
        &self,
        devices: u32,
        measured: Option<Measured>,
    ) -> Result<(Demand, NeedSource), EstimateError> {
        Figures::of(self).demand(devices, measured)
    }
}

/// The figures of one model. Its files are read once, and only when they are needed.
pub(super) struct Figures<'a> {
    entry: &'a Entry,
    files: OnceCell<Result<ModelFiles, EstimateError>>,
}

impl<'a> Figures<'a> {
    pub(super) fn of(entry: &'a Entry) -> Figures<'a> {
        Figures {
            entry,
            files: OnceCell::new(),
        }
    }

    pub(super) fn files(&self) -> Result<&ModelFiles, &EstimateError> {
        self.files
            .get_or_init(|| {
                let described = self.entry.fetch.as_ref().and_then(Fetch::described);
                if let Some((folder, bytes)) = described {
                    let mut files = ModelFiles::read(&folder)?;
                    files.weights.stored_bytes = bytes;
                    // They were listed, not counted from the configuration.
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

    /// Where the model lies on this machine.
    fn path(&self) -> Option<PathBuf> {
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

    pub(super) fn bytes(
        &self,
        devices: u32,
        measured: Option<Measured>,
        device_total: Option<Bytes>,
    ) -> Result<(Bytes, NeedSource), EstimateError> {
        let (demand, source) = self.demand(devices, measured)?;
        match demand.resolve(device_total) {
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
        measured: Option<Measured>,
    ) -> Result<(Demand, NeedSource), EstimateError> {
        if let Some(total) = self.entry.memory {
            let bytes = estimate::share(total, devices);
            return Ok((Demand::Bytes(bytes), NeedSource::File));
        }
        let measured = measured.map(|measured| measured.bytes_per_device);
        match (&self.entry.recipe, measured) {
            // It takes its cache at the start and keeps it: what was seen is all there is.
            (Recipe::Command(_), Some(bytes)) => Ok((Demand::Bytes(bytes), NeedSource::Measured)),
            (Recipe::Command(command), None) => {
                self.of_options(&command.engine_options(devices), command.context, devices)
            }
            (Recipe::Server(server), Some(bytes)) if !server.engine.fills => {
                Ok((Demand::Bytes(bytes), NeedSource::Measured))
            }
            // It fills what it is given: a measurement would repeat the last reservation. It stands in
            // where nothing else is known.
            (Recipe::Server(server), measured) => {
                let options = server.engine_options(devices);
                match (self.of_options(&options, server.context, devices), measured) {
                    (Err(_), Some(bytes)) => Ok((Demand::Bytes(bytes), NeedSource::Measured)),
                    (demand, _) => demand,
                }
            }
            (Recipe::Remote(_), _) => Ok((Demand::Bytes(Bytes::ZERO), NeedSource::File)),
            (Recipe::RayServe(_), _) => Ok((Demand::Bytes(Bytes::ZERO), NeedSource::Unseen)),
            // Pages of its weights and cache come as they are touched: a measurement may have seen only a part.
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
        // The load will fail with the engine's own reason, or prove the estimate wrong.
        let (bytes, has_sizes) = candle_need::by_sizes(recipe, devices);
        let instead = match has_sizes {
            true => BY_SIZES,
            false => "only the engine's own overhead is reserved",
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
                match estimate::command(options, files, context, seats, devices) {
                    Ok(need) => {
                        let demand = shared(need.least, Some(need.wanted));
                        let demand = demand.unwrap_or(Demand::Bytes(need.wanted));
                        return Ok((demand, self.estimate(files)));
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        let overhead = estimate::command_overhead(options.kind, devices);
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

    /// The whole of a model whose weights its engine will fetch, by its name: weights, a fifth of them for the
    /// cache, and the engine's own.
    fn by_name(&self, overhead: Bytes) -> Option<(Bytes, String)> {
        let Recipe::Server(server) = &self.entry.recipe else {
            return None;
        };
        let fetched = self.entry.fetch.as_ref().map(|fetch| &fetch.id);
        let named = fetched.or(Some(&server.model).filter(|_| !server.is_local))?;
        let size = name_size::of_name(named)?;
        let weights = Bytes(size.bytes());
        let reason = format!(
            "its name tells of {} thousand million parameters of {} bits, {weights}",
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

    /// The source of a figure from the model's files, with what had to be guessed.
    fn estimate(&self, files: &ModelFiles) -> NeedSource {
        let guesses = files.guesses();
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
