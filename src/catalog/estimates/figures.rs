//! The memory of one model by the best available figure: configured, measured, computed from its files, or from their sizes or its
//! name.

use std::cell::OnceCell;
use std::path::PathBuf;

use pool::Bytes;

use super::estimate::{CommandNeed, EstimateError};
use super::layouts::{Demand, DeviceShare, DeviceSize};
use super::need_source::{MeasuredNeed, NeedSource};
use super::{candle_need, estimate};
use crate::engines::{EngineKind, LLAMA_CPU_OVERHEAD};
use crate::entries::Entry;
use crate::recipes::{CandleRecipe, EngineOptions, Recipe};
use crate::weights::{Fetch, hub_cache};
use model_files::{ModelFiles, name_size};

const BY_SIZES: &str = "the sizes of its files are used instead, without a cache";

/// The figures of one model. Reads its files at most once, when needed.
pub(crate) struct Figures<'a> {
    pub(super) entry: &'a Entry,
    pub(super) in_host_memory: bool,
    /// The GPU has no other memory than the host's, so a part of the model on the host counts on the GPU.
    pub(super) in_unified_memory: bool,
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
            in_unified_memory: device.is_some_and(|device| device.is_unified),
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

    pub(super) fn demand(
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
                match self.command(options, files, context, seats, devices) {
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

    fn command(
        &self,
        options: &EngineOptions,
        files: &ModelFiles,
        context: Option<u32>,
        seats: u32,
        devices: u32,
    ) -> Result<CommandNeed, EstimateError> {
        if options.kind == EngineKind::LlamaCpp && !files.tensors.is_empty() {
            return self.llama(options, files, context, devices);
        }
        estimate::command(options, files, context, seats, devices)
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
