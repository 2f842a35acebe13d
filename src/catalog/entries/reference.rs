//! `model_reference.json`: settings for models by name, mainly GPU counts. Both of its formats are supported.

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
use reading::{Format, Salvaged, UniqueEntries};

use crate::documents::{CatalogError, Warning, limits};
use crate::recipes::engine_names;

/// The parsed file; empty if it does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    models: BTreeMap<String, ReferenceEntry>,
}

/// The reference's settings for one model; the model's own file overrides them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferenceEntry {
    pub gpus_per_replica: Option<u32>,
    pub priority: Option<Priority>,
    pub memory: Option<Bytes>,
    pub keep_hot: Option<KeepHot>,
    /// The engine type for files that name none.
    pub engine: Option<String>,
}

impl Reference {
    /// Reads the file. A missing file gives an empty reference and a warning.
    pub fn load(path: &Path) -> Result<(Reference, Vec<Warning>), CatalogError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok((Reference::parse(path, &text)?, Vec::new())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let warning = Warning::of_file(
                    path.display(),
                    "the file does not exist; models default to 1 GPU and priority 0",
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
        let origin = path.display().to_string();
        let read: Salvaged<UniqueEntries<ReferenceEntry>> = reading::salvage(text, Format::Json);
        let wrong = read.wrong.into_iter().map(|wrong| CatalogError::Parse {
            origin: origin.clone(),
            path: wrong.path,
            flaw: wrong.error,
        });
        let mut errors: Vec<CatalogError> = wrong.collect();
        let mut models = BTreeMap::new();
        for (name, entry) in read.value.into_iter().flat_map(|entries| entries.0) {
            if let Some(problem) = limits::model_id_problem(&name) {
                errors.push(CatalogError::Field {
                    origin: origin.clone(),
                    line: Positions::parse(text).line(&name),
                    field: format!("\"{}\"", limits::shown(&name)),
                    problem,
                });
                continue;
            }
            models.insert(name, entry);
        }
        match errors.pop() {
            None => Ok(Reference { models }),
            Some(only) if errors.is_empty() => Err(only),
            Some(last) => {
                errors.push(last);
                Err(CatalogError::Several { errors })
            }
        }
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
                let written = ReferenceFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ReferenceEntry {
                    gpus_per_replica: written.gpus_per_replica,
                    priority: written.priority,
                    memory: written.memory_gib,
                    keep_hot: written.keep_hot,
                    engine: written.engine,
                })
            }
        }

        deserializer.deserialize_any(EitherForm)
    }
}

/// The new format. Each value is checked when it is read, which attaches the key to errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferenceFields {
    #[serde(default, deserialize_with = "gpus_per_replica")]
    gpus_per_replica: Option<u32>,
    #[serde(default, deserialize_with = "priority")]
    priority: Option<Priority>,
    #[serde(default, deserialize_with = "memory_gib")]
    memory_gib: Option<Bytes>,
    keep_hot: Option<KeepHot>,
    #[serde(default, deserialize_with = "engine")]
    engine: Option<String>,
}

fn gpus_per_replica<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u32>, D::Error> {
    checked(value, |count: &i64| limits::device_count(*count))
}

fn priority<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Priority>, D::Error> {
    checked(value, |priority: &i64| limits::priority(*priority))
}

fn memory_gib<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Bytes>, D::Error> {
    checked(value, |memory: &f64| limits::memory_gib(*memory))
}

fn engine<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let name: Option<String> = Option::deserialize(value)?;
    name.map(|name| {
        engine_names::check(&name).map_err(D::Error::custom)?;
        Ok(name)
    })
    .transpose()
}

/// Returns the checked value; otherwise an error with the value and the allowed range.
fn checked<'de, D, T, U>(
    value: D,
    check: impl FnOnce(&T) -> Result<U, String>,
) -> Result<Option<U>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + fmt::Display,
{
    let value: Option<T> = Option::deserialize(value)?;
    let checked = value.map(|value| {
        check(&value)
            .map_err(|allowed| D::Error::custom(format!("{value} is not allowed; {allowed}")))
    });
    checked.transpose()
}
