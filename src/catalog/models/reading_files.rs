//! Reads the catalogue: the reference, the model files, and adapters in separate files. A file that cannot be used does not affect
//! others: its model keeps its last good version or is listed as broken.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use config::Config;
use config::positions::Positions;

use super::adapter_file::AdapterFile;
use super::broken_models::{BrokenModel, UnusableItem};
use super::catalog::Catalog;
use super::files;
use super::files::Item;
use crate::documents::{CatalogError, Source, Warning};
use crate::entries::Reference;
use crate::recipes::engine_names;

impl Catalog {
    /// Reads `catalog.model_reference` and every model file of `catalog.models_dir`. Blocking. One error lists all files that
    /// cannot be used.
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

    /// Reads these files, and folders of files, instead of the configured ones. Models that cannot be used are skipped; they are
    /// listed in `broken` and among the errors.
    pub fn load_from(
        paths: &[PathBuf],
        config: &Config,
    ) -> Result<(Catalog, Vec<Warning>, Vec<CatalogError>), CatalogError> {
        read(paths, config, &Catalog::default())
    }

    /// Reads the configured files again. Registered models stay, and so does the last good version of a model whose file became
    /// unusable. Fails only if the reference or the folder cannot be read.
    pub fn reread(&self, config: &Config) -> Result<(Catalog, Vec<Warning>), CatalogError> {
        let folder = std::slice::from_ref(&config.catalog.models_dir);
        let (catalog, warnings, _) = read(folder, config, self)?;
        Ok((catalog, warnings))
    }
}

/// Checks the engine for models without a file.
fn check_unknown_engine(config: &Config) -> Result<(), CatalogError> {
    const FIELD: &str = "catalog.unknown_engine";
    engine_names::check(&config.catalog.unknown_engine).map_err(|problem| {
        let text = config.file.as_deref().map(std::fs::read_to_string);
        let line = text.and_then(|text| Positions::parse(&text.ok()?).line(FIELD));
        let file = config.file.as_ref().map(|file| file.display().to_string());
        CatalogError::Field {
            origin: file.unwrap_or_else(|| "the configuration".to_owned()),
            line,
            field: FIELD.to_owned(),
            problem,
        }
    })
}

/// Reads the models of these files, on top of the known ones.
fn read(
    paths: &[PathBuf],
    config: &Config,
    known: &Catalog,
) -> Result<(Catalog, Vec<Warning>, Vec<CatalogError>), CatalogError> {
    check_unknown_engine(config)?;
    let (reference, mut warnings) = Reference::load(&config.catalog.model_reference)?;
    let mut failed = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        if path.is_file() {
            files.push(path.clone())
        } else {
            files.extend(files::find(path, &mut warnings, &mut failed)?)
        }
    }
    let served: BTreeSet<&Source> = known.entries.values().map(|entry| &entry.source).collect();
    // If two files describe the same model, the one being served wins.
    files.sort_by_cached_key(|file| !served.contains(&Source::File(file.clone())));
    let registered = |source: &Source| *source == Source::Registered;
    let broken = known.broken.iter();
    let mut catalog = Catalog::default();
    catalog.reference = reference;
    catalog.broken = broken
        .filter(|model| registered(&model.source))
        .cloned()
        .collect();
    let mut reading = Reading {
        catalog,
        config,
        known,
        warnings,
        adapters: Vec::new(),
        failed,
    };
    for entry in known
        .entries
        .values()
        .filter(|entry| registered(&entry.source))
    {
        reading.catalog.insert(entry.clone())?;
    }
    reading.keep_last_good(0);
    for file in &files {
        let failed = reading.failed.len();
        reading.add_file(file);
        // This must happen before another file takes the name.
        reading.keep_last_good(failed);
    }
    reading.attach_adapters();
    reading.list_broken();
    let Reading {
        catalog,
        warnings,
        failed,
        ..
    } = reading;
    let errors = failed.into_iter().map(|failed| *failed.error).collect();
    Ok((catalog, warnings, errors))
}

/// State while reading a catalogue.
struct Reading<'a> {
    catalog: Catalog,
    config: &'a Config,
    /// The previous catalogue.
    known: &'a Catalog,
    warnings: Vec<Warning>,
    adapters: Vec<AdapterFile>,
    failed: Vec<UnusableItem>,
}

impl Reading<'_> {
    /// Adds the models of one file; unusable parts are added to `failed`.
    fn add_file(&mut self, path: &Path) {
        let read = match files::read(path, self.config, &self.catalog.reference) {
            Ok(read) => read,
            Err(failed) => return self.failed.push(failed),
        };
        let is_part = read.len() > 1;
        for (item, warnings) in read {
            self.warnings.extend(warnings);
            let added = item.and_then(|item| match item {
                Some(Item::Model(entry)) => {
                    let name = Some(entry.name.clone());
                    let inserted = self.catalog.insert(*entry);
                    inserted.map_err(|error| UnusableItem {
                        is_part,
                        ..UnusableItem::of_file(path, name, error)
                    })
                }
                Some(Item::Adapter(adapter)) => {
                    self.adapters.push(adapter);
                    Ok(())
                }
                None => Ok(()),
            });
            self.failed.extend(added.err());
        }
    }

    /// Attaches adapters to their base models: newly read ones, and the last good version of adapters whose files became unusable.
    fn attach_adapters(&mut self) {
        let mut adapters = std::mem::take(&mut self.adapters);
        for before in &self.known.adapter_files {
            let is_read = adapters
                .iter()
                .any(|file| file.adapter.name == before.adapter.name);
            if !is_read && self.failed.iter().any(|failed| failed.path == before.path) {
                adapters.push(before.clone());
            }
        }
        for adapter in adapters {
            // The last good version of its base model already includes the adapter.
            let is_kept = |failed: &UnusableItem| failed.kept.contains(&adapter.base);
            let base = self.catalog.get(&adapter.base);
            if base.is_some_and(|base| base.adapters.contains(&adapter.adapter.name))
                && self.failed.iter().any(is_kept)
            {
                self.catalog.adapter_files.push(adapter);
                continue;
            }
            match self.catalog.attach(&adapter, self.config) {
                Ok(None) => self.catalog.adapter_files.push(adapter),
                Ok(Some(warning)) => self.warnings.push(warning),
                Err(error) => {
                    let name = Some(adapter.adapter.name.clone());
                    self.failed
                        .push(UnusableItem::of_file(&adapter.path, name, error));
                }
            }
        }
    }

    /// Keeps the previous models of the failed files from index `from` on.
    fn keep_last_good(&mut self, from: usize) {
        for failed in &mut self.failed[from..] {
            for entry in self.known.entries.values() {
                let is_gone = !self.catalog.entries.contains_key(&entry.name);
                if is_gone
                    && failed.described(&entry.name, &entry.source)
                    && self.catalog.insert(entry.clone()).is_ok()
                {
                    failed.kept.push(entry.name.clone());
                }
            }
        }
    }

    /// Lists everything that cannot be used, by the name of the model.
    fn list_broken(&mut self) {
        for failed in &self.failed {
            let adapters = self.catalog.adapter_files.iter();
            let adapters = adapters.filter(|file| file.path == failed.path);
            let mut kept = failed.kept.clone();
            kept.extend(adapters.map(|file| file.adapter.name.clone()));
            let listed = |name: String, serves_last_good| BrokenModel {
                name,
                source: Source::File(failed.path.clone()),
                error: failed.error.to_string(),
                serves_last_good,
            };
            if kept.is_empty() {
                let is_taken = |name: &str| {
                    let mut broken = self.catalog.broken.iter();
                    self.catalog.get(name).is_some() || broken.any(|model| model.name == name)
                };
                let name = failed.name.clone().filter(|name| !is_taken(name));
                let name = name.unwrap_or_else(|| failed.file_name(is_taken));
                self.catalog.broken.push(listed(name, false));
            }
            let kept = kept.into_iter().map(|name| listed(name, true));
            self.catalog.broken.extend(kept);
        }
        self.catalog
            .broken
            .sort_by(|one, other| one.name.cmp(&other.name));
    }
}
