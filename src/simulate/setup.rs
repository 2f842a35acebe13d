//! The input of a replay: the workload's requests, the pool's configuration, and the what-if flags over both.

mod batches;
mod devices;
pub(crate) mod evening;
mod hosts;

use std::collections::{BTreeMap, BTreeSet};

use super::models;
use super::workload::{MODELS_OF_CROWD, Reading, Workload, WorkloadError};
use crate::args::{SimulateArgs, UnknownModels};
use crate::environment::Environment;
use catalog::Catalog;
use config::{Config, ENVIRONMENT_PREFIX, KeepHot, Length};
use pool::{KeepHotBounds, Loader, LoaderId, ModelId, ModelSpec, Priority, Span, UNTIL_NEEDED};
use sim::replay::{Arrival, Scenario};
use store::{ModelPast, PoolHistory};

/// The bounds of adaptive keep-hot times.
const ADAPTIVE: KeepHotBounds = KeepHotBounds {
    least: Span::from_secs(60),
    most: Span::from_secs(86_400),
};

pub struct Setup {
    pub scenario: Scenario,
    pub workload: Workload,
    /// The scenario's index of each of the workload's models; `None` if it is left out.
    pub mapping: Vec<Option<ModelId>>,
    /// Assumptions to show to the user.
    pub notices: Vec<String>,
}

impl Setup {
    /// A workload whose models are drawn from the seed, on devices that hold `capacity` thousandths of them.
    pub fn drawn(workload: Workload, seed: u64, devices: u32, capacity: u64) -> Setup {
        let mut random = models::seeded(seed + 500);
        let names = workload.models.iter();
        let specs: Vec<ModelSpec> = names.map(|name| models::drawn(name, &mut random)).collect();
        let places = models::devices_for(&specs, devices, capacity);
        let models = (0..specs.len()).map(|nth| Some(ModelId(nth as u32)));
        Setup {
            mapping: models.collect(),
            scenario: models::scenario(specs, places),
            workload,
            notices: Vec::new(),
        }
    }

    pub fn arrivals(&self) -> Result<impl Iterator<Item = Arrival> + '_, WorkloadError> {
        let arrivals = self.workload.arrivals()?;
        Ok(arrivals.filter_map(|arrival| {
            let model = self.mapping[arrival.model.0 as usize]?;
            Some(Arrival { model, ..arrival })
        }))
    }
}

pub fn prepare(
    spec: &str,
    args: &SimulateArgs,
    environment: &Environment<'_>,
) -> Result<Setup, String> {
    let mut variables: BTreeMap<String, String> = std::env::vars().collect();
    for text in &args.set {
        let (name, value) = variable(text)?;
        variables.insert(name, value);
    }
    let config = match &args.pool {
        Some(file) => Config::load(Some(file), &variables).map_err(|error| error.to_string())?,
        None => Config::default(),
    };
    let mut notices = Vec::new();
    let mut known: Vec<ModelSpec> = Vec::new();
    if args.pool.is_some() {
        let (catalog, _) = Catalog::load(&config).map_err(|error| error.to_string())?;
        for (name, entry) in catalog.entries() {
            match entry.spec(&config, None) {
                Ok((spec, _)) => known.push(spec.with_its_weights()),
                Err(error) => notices.push(format!("model {name} is left out: {error}")),
            }
        }
    }
    let reading = Reading {
        seed: args.seed,
        from: args.from.as_deref().map_or(Ok(Span::ZERO), length)?,
        to: args.to.as_deref().map_or(Ok(Span(u64::MAX)), length)?,
        limit: args.limit.unwrap_or(u64::MAX),
        stretch: positive(args.stretch)?,
        crowd: if known.is_empty() {
            MODELS_OF_CROWD
        } else {
            known.len() as u32
        },
    };
    let workload = Workload::open(spec, reading).map_err(|fault| fault.to_string())?;
    let (mut specs, mapping) = match_models(&workload, known, args, &config, &mut notices)?;
    let (stop_takes, park_times, measured) = match workload.past() {
        Some(past) => {
            let measured = use_history(past, &workload, &mapping, &mut specs, &mut notices);
            (past.stop(), park_times(past, &specs), measured)
        }
        None => (None, BTreeMap::new(), BTreeSet::new()),
    };
    share_disk(&mut specs, &measured);
    for text in &args.priority {
        set_priority(text, &mut specs)?;
    }
    if let Some(text) = &args.keep_hot {
        for spec in &mut specs {
            let written: KeepHot = text
                .parse()
                .map_err(|error| format!("--keep-hot `{text}`: {error}"))?;
            spec.adaptive_keep_hot = None;
            match written {
                KeepHot::For(length) => spec.keep_hot = length.0,
                KeepHot::Adaptive => spec.adaptive_keep_hot = Some(ADAPTIVE),
                KeepHot::UntilNeeded => spec.keep_hot = UNTIL_NEEDED,
            }
        }
    }
    let find = || devices::of_pool(args, &config, workload.past(), environment.devices);
    let devices = devices::devices(&specs, args, find, &mut notices)?;
    let memory = environment.memory;
    let hosts = hosts::of_pool(&specs, args, &config, &devices, memory, &mut notices)?;
    let mut scenario = models::scenario(specs, devices.all);
    scenario.hosts = hosts;
    scenario.limits = config.limits();
    scenario.stop_takes = stop_takes.unwrap_or(scenario.stop_takes);
    scenario.park_times = park_times;
    scenario.batches = batches::parse(&args.batch, &scenario, length)?;
    if !scenario.batches.is_empty() {
        scenario.batch_times = batches::times(&config, &mut notices);
    }
    scenario.deadline_evicts = config.batch.deadline_evicts;
    if args.pool.is_some() {
        let find = environment.evenings;
        evening::add(&mut scenario, &config, &workload, find, &mut notices)?;
    }
    Ok(Setup {
        scenario,
        workload,
        mapping,
        notices,
    })
}

type ModelMatch = (Vec<ModelSpec>, Vec<Option<ModelId>>);

fn match_models(
    workload: &Workload,
    known: Vec<ModelSpec>,
    args: &SimulateArgs,
    config: &Config,
    notices: &mut Vec<String>,
) -> Result<ModelMatch, String> {
    let mut specs = known;
    if workload.is_crowd && !specs.is_empty() {
        notices.push(format!(
            "the trace names no models; its requests are spread over the {} of the pool by popularity (seed {})",
            specs.len(),
            args.seed
        ));
        let mapping = (0..specs.len())
            .map(|nth| Some(ModelId(nth as u32)))
            .collect();
        return Ok((specs, mapping));
    }
    let by_name: BTreeMap<String, ModelId> = specs
        .iter()
        .zip(0..)
        .map(|(spec, nth)| (spec.name.clone(), ModelId(nth)))
        .collect();
    let missing: Vec<&String> = workload
        .models
        .iter()
        .filter(|name| !by_name.contains_key(*name))
        .collect();
    let unknown = match args.unknown {
        Some(unknown) => unknown,
        // A pool without models takes the workload's.
        None if specs.is_empty() => UnknownModels::Add,
        None if missing.is_empty() => UnknownModels::Add,
        None => {
            let first: Vec<&str> = missing.iter().take(5).map(|name| name.as_str()).collect();
            return Err(WorkloadError::Unknown {
                path: workload.path.clone(),
                count: missing.len(),
                names: first.join(", "),
            }
            .to_string());
        }
    };
    let count = missing.len();
    if count > 0 {
        notices.push(match unknown {
            UnknownModels::Add => format!(
                "{count} models of the workload have sizes of 1.6 to 64 GB and load times drawn from seed {}",
                args.seed
            ),
            UnknownModels::Skip => format!("the requests of {count} models that the pool does not have are left out"),
        });
    }
    let mut random = models::seeded(args.seed.wrapping_add(500));
    let mut mapping = Vec::with_capacity(workload.models.len());
    for name in &workload.models {
        let id = match (by_name.get(name), unknown) {
            (Some(id), _) => Some(*id),
            (None, UnknownModels::Skip) => None,
            (None, UnknownModels::Add) => {
                specs.push(with_keys(models::drawn(name, &mut random), config));
                Some(ModelId(specs.len() as u32 - 1))
            }
        };
        mapping.push(id);
    }
    if mapping.iter().all(Option::is_none) {
        return Err("no request is left: the pool has none of the workload's models".to_owned());
    }
    Ok((specs, mapping))
}

/// A drawn model with all configuration keys that control how models share the devices.
pub(crate) fn with_keys(drawn: ModelSpec, config: &Config) -> ModelSpec {
    let pool = &config.pool;
    let bounds = KeepHotBounds {
        least: pool.keep_hot_least.0,
        most: pool.keep_hot_most.0,
    };
    ModelSpec {
        keep_hot: match pool.keep_hot {
            KeepHot::For(length) => length.0,
            KeepHot::Adaptive => drawn.keep_hot,
            KeepHot::UntilNeeded => UNTIL_NEEDED,
        },
        adaptive_keep_hot: (pool.keep_hot == KeepHot::Adaptive).then_some(bounds),
        keep_hot_scope: pool.keep_hot_scope.into(),
        min_resident: pool.min_resident.span(),
        max_turn: pool.max_turn.span(),
        queue_limit: pool.queue_limit,
        queue_timeout: pool.queue_timeout.0,
        ..drawn
    }
}

/// Gives models without known weights one disk, which they read one after another. A measured load time already includes reading
/// the weights.
fn share_disk(specs: &mut [ModelSpec], measured: &BTreeSet<ModelId>) {
    for (spec, id) in specs.iter_mut().zip(0..) {
        if spec.loader.is_none() && !measured.contains(&ModelId(id)) {
            spec.loader = Some(Loader {
                loader: LoaderId(0),
                takes: spec.reload,
            });
        }
    }
}

/// Uses the pool's past measurements, and reports the models that it never loaded. Returns the models with a measured load time.
fn use_history(
    past: &PoolHistory,
    workload: &Workload,
    mapping: &[Option<ModelId>],
    specs: &mut [ModelSpec],
    notices: &mut Vec<String>,
) -> BTreeSet<ModelId> {
    let (mut measured, mut guessed) = (BTreeSet::new(), Vec::new());
    for (name, id) in workload.models.iter().zip(mapping) {
        let Some(id) = *id else { continue };
        let Some(spec) = specs.get_mut(id.0 as usize) else {
            continue;
        };
        let known = past.models.get(name);
        if let Some((devices, bytes)) = known.and_then(|model| model.placed) {
            spec.devices_per_replica = devices;
            spec.bytes_per_device = bytes;
        }
        if let (Some(parking), Some(wake)) = (&mut spec.parking, known.and_then(ModelPast::wake)) {
            parking.wakes_in = wake;
        }
        let Some(load) = known.and_then(ModelPast::load) else {
            guessed.push(format!("{name} ({})", spec.reload));
            continue;
        };
        measured.insert(id);
        spec.reload = load;
        spec.reload_is_guess = false;
        if let Some(loader) = &mut spec.loader {
            loader.takes = loader.takes.min(load);
        }
    }
    notices.push(format!(
        "the load times and sizes of {} models were measured by the pool; {}",
        measured.len(),
        match past.stop() {
            Some(stop) => format!("a stop takes {stop}, as measured"),
            None => "it never stopped one, so the time of a stop is guessed".to_owned(),
        }
    ));
    if !guessed.is_empty() {
        notices.push(format!(
            "never loaded in this history, so the load time is guessed: {}",
            guessed.join(", ")
        ));
    }
    measured
}

/// The measured times of falling asleep.
fn park_times(past: &PoolHistory, specs: &[ModelSpec]) -> BTreeMap<ModelId, Span> {
    let of_model = |(spec, nth): (&ModelSpec, u32)| {
        let model = past.models.get(&spec.name)?;
        Some((ModelId(nth), model.park()?))
    };
    specs.iter().zip(0..).filter_map(of_model).collect()
}

/// Converts `pool.keep_hot=30m` to the environment variable that sets the same key.
fn variable(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').and_then(|(key, value)| {
        let (section, key) = key.split_once('.')?;
        Some((section, key, value))
    });
    let Some((section, key, value)) = parts else {
        return Err(format!(
            "--set `{text}` is not of the form pool.keep_hot=30m"
        ));
    };
    let name = format!("{ENVIRONMENT_PREFIX}{section}__{key}").to_uppercase();
    Ok((name, value.to_owned()))
}

fn set_priority(text: &str, specs: &mut [ModelSpec]) -> Result<(), String> {
    let wrong = || format!("--priority `{text}` is not of the form model=2");
    let (name, number) = text.rsplit_once('=').ok_or_else(wrong)?;
    let priority: u32 = number.parse().map_err(|_| wrong())?;
    if Priority(priority) > Priority::MAX {
        return Err(format!("--priority `{text}`: at most {}", Priority::MAX));
    }
    let spec = specs
        .iter_mut()
        .find(|spec| spec.name == name)
        .ok_or_else(|| format!("--priority: there is no model `{name}`"))?;
    spec.priority = Priority(priority);
    Ok(())
}

fn length(text: &str) -> Result<Span, String> {
    serde_json::from_value::<Length>(serde_json::Value::from(text))
        .map(|length| length.0)
        .map_err(|error| format!("`{text}`: {error}"))
}

fn positive(number: f64) -> Result<f64, String> {
    if number.is_finite() && number > 0.0 {
        Ok(number)
    } else {
        Err(format!("--stretch {number} must be above 0"))
    }
}

#[cfg(test)]
mod tests;
