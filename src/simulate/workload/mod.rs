//! Workloads for replays: traces in files, in their published formats, or generated. A comparison can restart a
//! workload any number of times; only the names of its models are kept in memory.

mod crowd;
mod error;
mod fields;
mod generated;
mod history;
mod in_order;
mod lines;
mod records;
mod renewal;
mod servegen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use error::WorkloadError;

use crowd::Crowd;
use generated::Generated;
use history::History;
use pool::{KeyId, ModelId, Span, Time};
use records::RecordFile;
use servegen::ServeGen;
use sim::replay::Arrival;

/// The number of models to which a trace without names is distributed if the pool has none.
pub const MODELS_OF_CROWD: u32 = 40;
/// A trace of clients is thinned to about this many requests.
const SERVEGEN_REQUESTS: f64 = 100_000.0;
/// Times above this are dates: it is a day of 1973.
const DATES_FROM_MS: u64 = 100_000_000_000;
/// The popularity skew of models in a trace without names.
const CROWD_SKEW: f64 = 1.0;

/// The options for reading a workload.
#[derive(Clone, Debug)]
pub struct Reading {
    pub seed: u64,
    /// The first and last time of the requests to include; milliseconds from the first request.
    pub from: Span,
    pub to: Span,
    pub limit: u64,
    /// All times are multiplied by this.
    pub stretch: f64,
    /// The number of the pool's models to which a trace without names is distributed.
    pub crowd: u32,
}

#[derive(Debug)]
enum Source {
    Records {
        file: RecordFile,
        first_ms: u64,
        named: bool,
    },
    Clients {
        of: ServeGen,
        scale: f64,
    },
    Generated(Generated),
    History(History),
}

#[derive(Debug)]
pub struct Workload {
    /// As given on the command line.
    pub spec: String,
    pub path: PathBuf,
    /// In the order of their numbers.
    pub models: Vec<String>,
    /// The trace names no models: the pool's models are used by popularity.
    pub is_crowd: bool,
    numbers: BTreeMap<String, u32>,
    source: Source,
    reading: Reading,
}

impl Workload {
    fn of_store(spec: &str, path: &Path, reading: Reading) -> Result<Workload, WorkloadError> {
        let history = History::read(path)?;
        let models = history.models();
        let source = Source::History(history);
        Ok(Workload::parse(spec, models, source, reading))
    }

    /// Opens the workload and reads it once, to report all its errors before a replay begins.
    ///
    /// # Errors
    /// [`WorkloadError`] with the file, the line and the valid form.
    pub fn open(spec: &str, reading: Reading) -> Result<Workload, WorkloadError> {
        if let Some(generated) = Generated::read(spec) {
            let generated = generated?;
            let models = (0..generated.models)
                .map(|nth| format!("model-{nth}"))
                .collect();
            return Ok(Workload::parse(
                spec,
                models,
                Source::Generated(generated),
                reading,
            ));
        }
        if History::is_database(spec)? {
            return Workload::of_store(spec, Path::new(spec), reading);
        }
        // `file#part`: only the files below `part` in an archive.
        let (file, within) = match spec.rsplit_once('#') {
            Some((file, within)) if !Path::new(spec).exists() => (file, Some(within)),
            _ => (spec, None),
        };
        let path = Path::new(file);
        if path.is_dir() || file.ends_with(".tar.xz") {
            let of = ServeGen::open(path, within)?;
            let scale = (SERVEGEN_REQUESTS / of.expected().max(1.0)).min(1.0);
            let models = of.clients.iter().map(|(name, _)| name.clone()).collect();
            return Ok(Workload::parse(
                spec,
                models,
                Source::Clients { of, scale },
                reading,
            ));
        }
        if History::is_store(path) {
            return Workload::of_store(spec, path, reading);
        }
        Workload::from_records(spec, path, reading)
    }

    fn from_records(spec: &str, path: &Path, reading: Reading) -> Result<Workload, WorkloadError> {
        let file = RecordFile::open(path)?;
        let (mut names, mut first_ms, mut unnamed) = (BTreeMap::new(), None, 0_u64);
        let mut count = 0_u64;
        for record in file.records()? {
            let record = record?;
            first_ms.get_or_insert(record.at_ms);
            count += 1;
            match record.model {
                Some(name) => {
                    let next = names.len() as u32;
                    names.entry(name).or_insert(next);
                }
                None => unnamed += 1,
            }
        }
        let Some(first_ms) = first_ms else {
            return Err(WorkloadError::File {
                path: path.to_owned(),
                problem: "has a header and no request".to_owned(),
            });
        };
        if unnamed > 0 && !names.is_empty() {
            return Err(WorkloadError::File {
                path: path.to_owned(),
                problem: format!("{unnamed} of {count} requests name no model"),
            });
        }
        let named = unnamed == 0;
        let mut models = vec![String::new(); names.len()];
        for (name, nth) in &names {
            models[*nth as usize].clone_from(name);
        }
        if !named {
            models = (0..reading.crowd)
                .map(|nth| format!("model-{nth}"))
                .collect();
        }
        let source = Source::Records {
            file,
            first_ms,
            named,
        };
        let mut workload = Workload::parse(spec, models, source, reading);
        workload.path = path.to_owned();
        workload.is_crowd = !named;
        Ok(workload)
    }

    fn parse(spec: &str, models: Vec<String>, source: Source, reading: Reading) -> Workload {
        let numbers = models.iter().cloned().zip(0..).collect();
        Workload {
            spec: spec.to_owned(),
            path: PathBuf::from(spec),
            models,
            is_crowd: false,
            numbers,
            source,
            reading,
        }
    }

    /// The time of day of the replay's start, in milliseconds since 1970; `None` if the workload has no dates.
    pub fn start_ms(&self) -> Option<u64> {
        let first = match &self.source {
            Source::History(history) => Some(history.first_ms()),
            // Smaller numbers count from the start of a trace.
            Source::Records { first_ms, .. } => Some(*first_ms).filter(|ms| *ms > DATES_FROM_MS),
            Source::Generated(_) | Source::Clients { .. } => None,
        };
        first.map(|first| first.saturating_add(self.reading.from.0))
    }

    /// The store's knowledge of its models; `None` if the workload is not a store.
    pub fn past(&self) -> Option<&store::PoolHistory> {
        match &self.source {
            Source::History(history) => Some(history.past()),
            _ => None,
        }
    }

    /// The requests from the start, in the order of time. The first reading found no errors; a file that has changed since ends
    /// early, with a warning.
    pub fn arrivals(&self) -> Result<Box<dyn Iterator<Item = Arrival> + '_>, WorkloadError> {
        let Reading {
            seed,
            from,
            to,
            limit,
            stretch,
            ..
        } = self.reading;
        let raw: Box<dyn Iterator<Item = (u64, u32, u64, u64)> + '_> = match &self.source {
            Source::Generated(generated) => Box::new(
                generated
                    .requests(seed)
                    .map(|(at, model, length)| (at, model, length, 0)),
            ),
            Source::Clients { of, scale } => Box::new(
                of.requests(*scale, seed)
                    .map(|(at, client, length)| (at, client as u32, length, 0)),
            ),
            Source::History(history) => Box::new(
                history
                    .requests(seed)
                    .map(|(at, model, length)| (at, model, length, 0)),
            ),
            Source::Records {
                file,
                first_ms,
                named,
            } => {
                let mut crowd = Crowd::new(self.models.len() as u32, CROWD_SKEW, seed);
                let (first_ms, named) = (*first_ms, *named);
                let mut keys: BTreeMap<String, u64> = BTreeMap::new();
                let records = file.records()?.map_while(|record| match record {
                    Ok(record) => Some(record),
                    Err(fault) => {
                        tracing::warn!(%fault, "the workload changed while it was replayed; the rest is left out");
                        None
                    }
                });
                Box::new(records.filter_map(move |record| {
                    let key = match record.key {
                        None => 0,
                        Some(name) => {
                            let next = keys.len() as u64 + 1;
                            *keys.entry(name).or_insert(next)
                        }
                    };
                    let model = if named {
                        *self.numbers.get(record.model.as_deref()?)?
                    } else {
                        // A marked session stays with one model.
                        crowd.model(record.session.or((key > 0).then_some(key)))
                    };
                    let length = record.service_ms.unwrap_or_else(|| crowd.service_ms());
                    Some((record.at_ms - first_ms, model, length, key))
                }))
            }
        };
        let within = move |(at, ..): &(u64, u32, u64, u64)| *at >= from.0;
        let arrivals = raw
            .filter(within)
            .take_while(move |(at, ..)| *at <= to.0)
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(move |(at, model, length, key)| Arrival {
                at: Time(((at - from.0) as f64 * stretch) as u64),
                model: ModelId(model),
                key: KeyId(key),
                service: Span(length.max(1)),
            });
        Ok(Box::new(arrivals))
    }
}
