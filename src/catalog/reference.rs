//! `model_reference.json`: what is known of models by name alone, GPU counts above all. Both of its forms are read.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use config::KeepHot;
use config::positions::Positions;
use pool::{Bytes, Priority};
use reading::UniqueEntries;

use super::{CatalogError, Warning, engine_names, limits};

/// The file, read. Empty when there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    models: BTreeMap<String, ReferenceEntry>,
}

/// What the reference knows of one model; all of it gives way to the model's own file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferenceEntry {
    pub gpus_per_replica: Option<u32>,
    pub priority: Option<Priority>,
    pub memory: Option<Bytes>,
    pub keep_hot: Option<KeepHot>,
    /// The engine type of files that name none.
    pub engine: Option<String>,
}

impl Reference {
    /// Reads the file. A missing one is an empty reference and a warning.
    pub fn load(path: &Path) -> Result<(Reference, Vec<Warning>), CatalogError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok((Reference::parse(path, &text)?, Vec::new())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let warning = Warning::of_file(
                    path.display(),
                    "there is no such file; models whose own file says nothing take 1 GPU and priority 0",
                );
                Ok((Reference::default(), vec![warning]))
            }
            Err(source) => Err(CatalogError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Reference, CatalogError> {
        let parse = |flaw: reading::ParseError| CatalogError::Parse {
            origin: path.display().to_string(),
            flaw: match reading::json(text) {
                Ok(value) => flaw.with_path_in::<UniqueEntries<ReferenceEntry>>(value),
                Err(_) => flaw,
            },
        };
        let entries: UniqueEntries<ReferenceEntry> = reading::json(text).map_err(parse)?;
        let mut models = BTreeMap::new();
        for (name, entry) in entries.0 {
            if let Some(problem) = limits::model_id_problem(&name) {
                return Err(CatalogError::Field {
                    origin: path.display().to_string(),
                    line: Positions::of(text).line(&name),
                    field: format!("\"{}\"", limits::shown(&name)),
                    problem,
                });
            }
            models.insert(name, entry);
        }
        Ok(Reference { models })
    }

    pub fn get(&self, model: &str) -> Option<&ReferenceEntry> {
        self.models.get(model)
    }

    pub fn len(&self) -> usize {
        self.models.len()
    }

    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }
}

impl<'de> Deserialize<'de> for ReferenceEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReferenceEntry, D::Error> {
        struct EitherForm;

        impl<'de> Visitor<'de> for EitherForm {
            type Value = ReferenceEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of GPUs, or an object such as {\"gpus_per_replica\": 2, \"priority\": 0}")
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<ReferenceEntry, E> {
                let gpus = limits::device_count(count).map_err(|problem| {
                    E::custom(format!("the number of GPUs is {count}; {problem}"))
                })?;
                Ok(ReferenceEntry {
                    gpus_per_replica: Some(gpus),
                    ..ReferenceEntry::default()
                })
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<ReferenceEntry, E> {
                self.visit_i64(i64::try_from(count).unwrap_or(i64::MAX))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ReferenceEntry, A::Error> {
                Written::deserialize(MapAccessDeserializer::new(map))?
                    .checked()
                    .map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(EitherForm)
    }
}

/// The new form as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    gpus_per_replica: Option<i64>,
    priority: Option<i64>,
    memory_gib: Option<f64>,
    keep_hot: Option<KeepHot>,
    engine: Option<String>,
}

impl Written {
    fn checked(self) -> Result<ReferenceEntry, String> {
        let gpus_per_replica = self
            .gpus_per_replica
            .map(|count| {
                limits::device_count(count)
                    .map_err(|problem| format!("gpus_per_replica is {count}; {problem}"))
            })
            .transpose()?;
        let priority = self
            .priority
            .map(|value| {
                limits::priority(value).map_err(|problem| format!("priority is {value}; {problem}"))
            })
            .transpose()?;
        let memory = self
            .memory_gib
            .map(|value| {
                limits::memory_gib(value)
                    .map_err(|problem| format!("memory_gib is {value}; {problem}"))
            })
            .transpose()?;
        if let Some(engine) = &self.engine {
            engine_names::check(engine).map_err(|problem| format!("engine: {problem}"))?;
        }
        Ok(ReferenceEntry {
            gpus_per_replica,
            priority,
            memory,
            keep_hot: self.keep_hot,
            engine: self.engine,
        })
    }
}
