//! All models by name: read, added, removed, found by what was probably meant, and compared with newer ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::Config;

use crate::adapter_file::AdapterFile;
use crate::entry::Entry;
use crate::entry_source::Source;
use crate::error::{CatalogError, Warning};
use crate::files::{self, Item};
use crate::reference::Reference;

/// Names that `closest` answers at most.
const CLOSEST_MAX: usize = 3;

/// All models, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    entries: BTreeMap<String, Entry>,
    /// From alias to name.
    aliases: BTreeMap<String, String>,
    reference: Reference,
}

/// What differs between two catalogues, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
}

impl Catalog {
    /// Reads `catalog.model_reference` and every model file of `catalog.models_dir`. Blocking.
    /// All files that cannot be used are named in one error.
    pub fn load(config: &Config) -> Result<(Catalog, Vec<Warning>), CatalogError> {
        let folder = std::slice::from_ref(&config.catalog.models_dir);
        let (catalog, warnings, mut errors) = Catalog::load_from(folder, config)?;
        match errors.pop() {
            None => Ok((catalog, warnings)),
            Some(only) if errors.is_empty() => Err(only),
            Some(last) => {
                errors.push(last);
                Err(CatalogError::Several { errors })
            }
        }
    }

    /// The same from these files, and from folders of them, instead of those of the configuration. What
    /// cannot be used is left out and told.
    pub fn load_from(
        paths: &[PathBuf],
        config: &Config,
    ) -> Result<(Catalog, Vec<Warning>, Vec<CatalogError>), CatalogError> {
        let (reference, mut warnings) = Reference::load(&config.catalog.model_reference)?;
        let mut catalog = Catalog {
            reference,
            ..Catalog::default()
        };
        let mut errors = Vec::new();
        let mut adapters = Vec::new();
        for path in paths {
            let files = match path.is_file() {
                true => vec![path.clone()],
                false => files::find(path, &mut warnings)?,
            };
            for file in files {
                errors.extend(catalog.add_file(&file, config, &mut warnings, &mut adapters));
            }
        }
        for adapter in &adapters {
            match catalog.attach(adapter, config) {
                Ok(warning) => warnings.extend(warning),
                Err(error) => errors.push(error),
            }
        }
        Ok((catalog, warnings, errors))
    }

    /// Adds the models of one file; what cannot be used of it is left out and told.
    fn add_file(
        &mut self,
        path: &Path,
        config: &Config,
        warnings: &mut Vec<Warning>,
        adapters: &mut Vec<AdapterFile>,
    ) -> Vec<CatalogError> {
        let read = match files::read(path, config, &self.reference) {
            Ok(read) => read,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        for (entry, more) in read {
            warnings.extend(more);
            let added = entry.and_then(|item| match item {
                Some(Item::Model(entry)) => self.insert(*entry),
                Some(Item::Adapter(adapter)) => {
                    adapters.push(adapter);
                    Ok(())
                }
                None => Ok(()),
            });
            errors.extend(added.err());
        }
        errors
    }

    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The model with this name or alias.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries
            .get(self.aliases.get(name).map_or(name, String::as_str))
    }

    /// Adds a model. A registered one takes the place of a registered one of the same name; any
    /// other name or alias that is taken is refused, and nothing changes.
    pub fn insert(&mut self, entry: Entry) -> Result<(), CatalogError> {
        let replaces = self.entries.get(&entry.name).is_some_and(|old| {
            old.source == Source::Registered && entry.source == Source::Registered
        });
        let names = std::iter::once(&entry.name);
        for name in names.chain(&entry.aliases).chain(&entry.adapters) {
            if let Some(holder) = self.get(name)
                && !(replaces && holder.name == entry.name)
            {
                return Err(CatalogError::Collision {
                    name: name.clone(),
                    first: describe(holder),
                    second: describe(&entry),
                });
            }
        }
        self.remove(&entry.name);
        for alias in entry.aliases.iter().chain(&entry.adapters) {
            self.aliases.insert(alias.clone(), entry.name.clone());
        }
        self.entries.insert(entry.name.clone(), entry);
        Ok(())
    }

    /// Removes the model with this name, not alias, and answers it.
    pub fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.aliases.retain(|_, model| model != name);
        Some(entry)
    }

    /// Names and aliases that were probably meant, best first; at most three.
    pub fn closest(&self, name: &str) -> Vec<String> {
        let wanted = name.to_lowercase();
        let mut scored: Vec<(f64, &String)> = self
            .entries
            .keys()
            .chain(self.aliases.keys())
            .map(|known| (likeness(&wanted, &known.to_lowercase()), known))
            .filter(|(score, _)| *score >= 0.6)
            .collect();
        scored.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(right.1)));
        scored
            .into_iter()
            .take(CLOSEST_MAX)
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// What changes when `newer` takes this catalogue's place.
    pub fn changes(&self, newer: &Catalog) -> Changes {
        let names = |from: &Catalog, keep: &dyn Fn(&Entry) -> bool| {
            from.entries
                .values()
                .filter(|entry| keep(entry))
                .map(|entry| entry.name.clone())
                .collect()
        };
        Changes {
            added: names(newer, &|entry| !self.entries.contains_key(&entry.name)),
            changed: names(newer, &|entry| {
                self.entries
                    .get(&entry.name)
                    .is_some_and(|old| old != entry)
            }),
            removed: names(self, &|entry| !newer.entries.contains_key(&entry.name)),
        }
    }
}

/// How alike two names are, 0 to 1. A name without its organisation is the same name.
fn likeness(wanted: &str, known: &str) -> f64 {
    let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let (wanted_base, known_base) = (base(wanted), base(known));
    if wanted_base == known_base {
        return 1.0;
    }
    let prefix = if known_base.starts_with(&wanted_base) && wanted_base.len() >= 3 {
        0.8
    } else {
        0.0
    };
    let alike = |one: &str, other: &str| reading::likeness(one, other).unwrap_or(0.0);
    alike(wanted, known)
        .max(alike(&wanted_base, &known_base))
        .max(prefix)
}

fn describe(entry: &Entry) -> String {
    match &entry.source {
        Source::File(path) => path.display().to_string(),
        Source::Registered => format!("the registered model {}", entry.name),
    }
}
