//! All models by name: adding, removing, lookup with suggestions, and comparison with a newer catalogue.

use std::collections::BTreeMap;

use config::Config;
use serde_json::Value;

use super::adapter_file::AdapterFile;
use super::broken_models::BrokenModel;
use crate::documents::{CatalogError, Source};
use crate::entries::{Entry, Reference};

/// Maximum number of names returned by `closest`.
const CLOSEST_MAX: usize = 3;

/// All models, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Maps aliases to names.
    aliases: BTreeMap<String, String>,
    pub(crate) reference: Reference,
    /// Broken models, sorted by name.
    pub(super) broken: Vec<BrokenModel>,
    /// Files of adapters that are attached to their base models.
    pub(super) adapter_files: Vec<AdapterFile>,
}

/// The differences between two catalogues, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
}

impl Catalog {
    /// A catalogue of only the registered models, from their documents. Unreadable ones are listed in `broken`.
    pub fn of_registrations(
        documents: impl IntoIterator<Item = (String, Value)>,
        config: &Config,
    ) -> Result<Catalog, CatalogError> {
        let (reference, _) = Reference::load(&config.catalog.model_reference)?;
        let mut catalog = Catalog {
            reference,
            ..Catalog::default()
        };
        for (name, document) in documents {
            let entry =
                Entry::from_document(&document, Source::Registered, config, &catalog.reference);
            let inserted = entry.and_then(|(entry, _)| catalog.insert(entry));
            if let Err(error) = inserted {
                catalog.broken.push(BrokenModel {
                    name,
                    source: Source::Registered,
                    error: error.to_string(),
                    serves_last_good: false,
                });
            }
        }
        Ok(catalog)
    }

    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Model files and registrations that cannot be used, sorted by the model's name.
    pub fn broken(&self) -> &[BrokenModel] {
        &self.broken
    }

    /// The broken model that a request for this name probably means, if the name is not served.
    pub fn broken_model(&self, name: &str) -> Option<&BrokenModel> {
        let mut broken = self.broken.iter().filter(|model| !model.serves_last_good);
        broken
            .find(|model| model.is_called(name))
            .filter(|_| self.get(name).is_none())
    }

    /// The model with this name or alias.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries
            .get(self.aliases.get(name).map_or(name, String::as_str))
    }

    /// Adds a model. A registered model replaces a registered model of the same name. Any other conflict of names or aliases is an
    /// error and changes nothing.
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
        // Once that file is fixed, two models would have the same name.
        let broken = self.broken.iter().find(|model| model.name == entry.name);
        if let Some(broken) = broken.filter(|broken| broken.source != entry.source)
            && entry.source == Source::Registered
            && !replaces
        {
            return Err(CatalogError::Collision {
                name: entry.name.clone(),
                first: broken.source.to_string(),
                second: describe(&entry),
            });
        }
        self.forget_broken_registration(&entry.name);
        self.remove(&entry.name);
        for alias in entry.aliases.iter().chain(&entry.adapters) {
            self.aliases.insert(alias.clone(), entry.name.clone());
        }
        self.entries.insert(entry.name.clone(), entry);
        Ok(())
    }

    /// Removes and returns the model with this name. Aliases are not considered.
    pub fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.aliases.retain(|_, model| model != name);
        Some(entry)
    }

    /// Drops an unreadable registration. Returns false if none has this name.
    pub fn forget_broken_registration(&mut self, name: &str) -> bool {
        let before = self.broken.len();
        self.broken
            .retain(|model| model.name != name || model.source != Source::Registered);
        self.broken.len() < before
    }

    /// Similar names and aliases, best first; at most three.
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

    /// The changes from this catalogue to `newer`.
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

/// The similarity of two names, 0 to 1, ignoring a missing organisation.
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
