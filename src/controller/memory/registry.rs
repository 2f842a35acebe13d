//! The current catalogue, and the numbers under which the core knows its models. `catalog_change` reads files off the loop.
//!
//! One file because a registered, a changed and a reloaded model take the same path to the core.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::allowed_devices::allowed;
use crate::control::Control;
use crate::control::cluster_nodes::allowed_shapes;
use crate::control::model_needs::figure;
use crate::gates::Routes;
use crate::messages::{
    CatalogFigures, Change, ChangeError, FigureInputs, Figures, Message, Specs, Terms,
};
use crate::view::device_facts::restriction;
use crate::view::{ModelFacts, remote_device};
use catalog::{Catalog, Changes, Entry, Source, Warning};
use config::Config;
use pool::{Event, FetchEnd, Remedy};
use store::{Store, StoreError};

impl Control {
    /// Replaces the catalogue. Returns the events for the core: models that are new or changed, and models that are gone.
    pub(crate) fn take_catalog(&mut self, catalog: Catalog, specs: Specs) -> Vec<Event> {
        let mut events: Vec<Event> = remote_device::place_for(&catalog).into_iter().collect();
        for name in catalog.entries().keys() {
            self.models.id(name);
        }
        let mut facts = self.models.facts().as_ref().clone();
        for (name, spec) in specs {
            let model = self.models.id(&name);
            match spec {
                Ok(Figures {
                    mut spec,
                    source,
                    estimated,
                    split,
                    weights,
                    listing,
                }) => {
                    // Other machines may have a program that this one lacks.
                    spec.no_program = spec.no_program.filter(|_| self.runs_alone());
                    let known = &catalog.entries()[&name];
                    spec.allowed = remote_device::allowed(known)
                        .or_else(|| allowed(known, &self.devices, &self.nodes));
                    spec.allowed_by = restriction(known);
                    spec.allowed_shapes = allowed_shapes(known, &self.config);
                    if let Some(warning) = source.warning() {
                        tracing::warn!(model = name, "{warning}");
                    }
                    let entry = Arc::new(catalog.entries()[&name].clone());
                    facts.insert(
                        model,
                        ModelFacts {
                            entry,
                            need_source: source.name(),
                            estimated,
                            split,
                            weights,
                            files_mark: spec.files_mark,
                            lacks_program: spec.no_program.is_some(),
                            listing,
                        },
                    );
                    events.push(Event::ModelSet { model, spec });
                }
                Err(error) => tracing::error!(model = name, %error, "the model cannot be served"),
            }
        }
        for (name, &model) in self.models.ids() {
            if !catalog.entries().contains_key(name) && facts.remove(&model).is_some() {
                events.push(Event::ModelRemoved { model });
            }
        }
        self.models.replace(facts);
        let set = events.iter().filter_map(|event| match event {
            Event::ModelSet { model, .. } => Some((*model, self.models.get(*model)?)),
            _ => None,
        });
        let measured: Vec<Event> = set
            .flat_map(|(model, facts)| self.usage.events(model, facts, &self.devices))
            .collect();
        events.extend(measured);
        let routes = self.publishing.routes.load();
        let routes = Routes::of_catalog(catalog, self.models.ids(), &routes);
        self.publishing.routes.store(Arc::new(routes));
        self.describe_absent(&events);
        events
    }

    /// Queries the hub for the size of models whose weights are absent, to make the figures of a load right before anything is
    /// fetched.
    fn describe_absent(&mut self, events: &[Event]) {
        if self.config.sources.offline {
            return;
        }
        let absent = events.iter().filter_map(|event| match event {
            Event::ModelSet { model, spec } if spec.absent && !spec.need_is_fixed => Some(model),
            _ => None,
        });
        let fetches = absent.filter_map(|model| {
            let entry = &self.models.get(*model)?.entry;
            Some((entry.name.clone(), entry.fetch.clone()?))
        });
        let (fetches, sources) = (fetches.collect(), Arc::clone(&self.fetches.sources));
        self.background.describe(fetches, sources);
    }

    /// Starts the next change of the catalogue, if none is in progress.
    pub(crate) fn next_change(&mut self) {
        let Some(change) = self.models.begin_change() else {
            return;
        };
        let catalog = self.publishing.routes.load().catalog.clone();
        let (config, store) = (Arc::clone(&self.config), self.journal.store());
        let (known, inbox) = (self.known(), self.background.inbox());
        let local = match change {
            Message::FigureForDevices => self.models.local(),
            _ => Vec::new(),
        };
        self.background.spawn(async move {
            let figured = prepare(change, local, catalog, config, &store, known).await;
            let _ = inbox.send(Message::Figured(Box::new(figured)));
        });
    }

    /// Puts the configuration that was read again in force for all readers. Returns the event for the core.
    fn put_in_force(&mut self, config: Arc<Config>) -> Event {
        let limits = config.limits();
        self.config = Arc::clone(&config);
        self.live.set(config);
        Event::LimitsSet { limits }
    }

    pub(crate) fn figured(&mut self, figured: CatalogFigures) {
        let CatalogFigures {
            change,
            catalog,
            specs,
        } = figured;
        self.models.end_change();
        if let Change::Failed = change {
            return self.next_change();
        }
        let unsized_ = specs.iter().find_map(|(_, spec)| spec.as_ref().err());
        let end = match unsized_ {
            Some(error) => FetchEnd::Failed {
                message: error.to_string(),
                remedy: Remedy::Change,
            },
            None => FetchEnd::Complete,
        };
        let mut events = Vec::new();
        if let Change::Reload { config, .. } = &change {
            events.push(self.put_in_force(Arc::clone(config)));
        }
        events.extend(self.take_catalog(catalog, specs));
        events.extend(self.weights_on_nodes());
        if let Change::Fetched { model } = change {
            events.push(Event::FetchEnded { model, end });
        }
        self.turn_all(events);
        self.publish();
        match change {
            Change::Register { warnings, reply } => drop(reply.send(Ok(warnings))),
            Change::Remove { reply } => drop(reply.send(Ok(()))),
            Change::Reload {
                changes,
                mut warnings,
                reply,
                ..
            } => {
                let snapshot = self.publishing.snapshot.load();
                warnings.extend(self.models.damaged(&snapshot.pool.models));
                drop(reply.send(Ok((changes, warnings))));
            }
            Change::Looked { reply } => drop(reply.send(())),
            Change::Figure | Change::Fetched { .. } | Change::Failed => {}
        }
        self.next_change();
    }
}

/// Computes and stores one change of the catalogue. Its caller gets the error.
async fn prepare(
    message: Message,
    local: Vec<String>,
    catalog: Catalog,
    config: Arc<Config>,
    store: &Store,
    known: FigureInputs,
) -> CatalogFigures {
    let failed = |catalog| CatalogFigures {
        change: Change::Failed,
        catalog,
        specs: Vec::new(),
    };
    match message {
        Message::Register {
            document,
            terms,
            reply,
        } => match register(document, terms, catalog.clone(), config, store, known).await {
            Ok((catalog, specs, warnings)) => CatalogFigures {
                change: Change::Register { warnings, reply },
                catalog,
                specs,
            },
            Err(error) => {
                let _ = reply.send(Err(error));
                failed(catalog)
            }
        },
        Message::Remove { name, reply } => {
            let mut newer = catalog.clone();
            let is_broken = newer.forget_broken_registration(&name);
            let removed = match newer.get(&name) {
                None if is_broken => {
                    let kept = store.remove_registration(&name).await;
                    kept.map(|_| ()).map_err(not_saved)
                }
                None => Err(ChangeError::Unknown { name }),
                Some(entry) if entry.source != Source::Registered => Err(ChangeError::FromFile {
                    name,
                    origin: entry.source.to_string(),
                }),
                Some(entry) => {
                    let name = entry.name.clone();
                    newer.remove(&name);
                    let kept = store.remove_registration(&name).await;
                    kept.map(|_| ()).map_err(not_saved)
                }
            };
            match removed {
                Ok(()) => CatalogFigures {
                    change: Change::Remove { reply },
                    catalog: newer,
                    specs: Vec::new(),
                },
                Err(error) => {
                    let _ = reply.send(Err(error));
                    failed(catalog)
                }
            }
        }
        Message::Reload {
            config: newer_config,
            reply,
        } => {
            let (old, with) = (catalog.clone(), Arc::clone(&newer_config));
            let read =
                tokio::task::spawn_blocking(move || reload(&old, (&config, &with), &known)).await;
            match read {
                Ok(Ok((newer, specs, changes, warnings))) => CatalogFigures {
                    change: Change::Reload {
                        config: newer_config,
                        changes,
                        warnings,
                        reply,
                    },
                    catalog: newer,
                    specs,
                },
                Ok(Err(error)) => {
                    let _ = reply.send(Err(error));
                    failed(catalog)
                }
                Err(_) => failed(catalog),
            }
        }
        Message::Figure { name, then } => {
            figured_anew(vec![name], then, catalog, config, known).await
        }
        Message::FigureForDevices => {
            figured_anew(local, Change::Figure, catalog, config, known).await
        }
        _ => failed(catalog),
    }
}

/// Computes figures again without changing the catalogue. A model whose files cannot be read gets an error in place of figures,
/// which requests that wait for its fetch receive.
async fn figured_anew(
    names: Vec<String>,
    change: Change,
    catalog: Catalog,
    config: Arc<Config>,
    known: FigureInputs,
) -> CatalogFigures {
    let of = catalog.clone();
    let figured = move || figure(&of, &names, &config, &known);
    let specs = tokio::task::spawn_blocking(figured).await;
    CatalogFigures {
        change,
        catalog,
        specs: specs.unwrap_or_default(),
    }
}

async fn register(
    document: serde_json::Value,
    terms: Terms,
    mut catalog: Catalog,
    config: Arc<Config>,
    store: &Store,
    known: FigureInputs,
) -> Result<(Catalog, Specs, Vec<Warning>), ChangeError> {
    let read = tokio::task::spawn_blocking(move || {
        let (entry, warnings) =
            Entry::from_document(&document, Source::Registered, &config, catalog.reference())?;
        terms.allow(&catalog, &entry.name)?;
        let (name, kept) = (entry.name.clone(), entry.to_document());
        catalog.insert(entry)?;
        let specs = figure(&catalog, std::slice::from_ref(&name), &config, &known);
        Ok::<_, ChangeError>((name, kept, catalog, specs, warnings))
    });
    let (name, kept, catalog, mut specs, warnings) =
        read.await.map_err(|_| ChangeError::Gone)??;
    if let Some(nth) = specs.iter().position(|(_, spec)| spec.is_err()) {
        let (name, spec) = specs.swap_remove(nth);
        let source = spec.expect_err("just seen");
        return Err(ChangeError::Estimate { name, source });
    }
    let saved = store.save_registration(&name, &kept).await;
    saved.map_err(not_saved)?;
    Ok((catalog, specs, warnings))
}

fn not_saved(error: StoreError) -> ChangeError {
    ChangeError::NotSaved {
        message: error.to_string(),
    }
}

/// Logs every model file that cannot be used.
pub fn log_broken(catalog: &Catalog) {
    for broken in catalog.broken() {
        let instead = if broken.serves_last_good {
            "its last good version is served"
        } else {
            "it is not served, and everything else is"
        };
        let (model, error) = (&broken.name, &broken.error);
        tracing::error!(model, "the model's file is broken; {instead}: {error}");
    }
}

/// Reads the files again; registered models stay. Computes only changed models, or all if the general settings of models changed.
/// `configs` holds the current configuration and the next one.
fn reload(
    old: &Catalog,
    configs: (&Config, &Config),
    known: &FigureInputs,
) -> Result<(Catalog, Specs, Changes, Vec<Warning>), ChangeError> {
    let (before, config) = configs;
    let (newer, warnings) = old.reread(config)?;
    log_broken(&newer);
    let changes = old.changes(&newer);
    let mut names: BTreeSet<String> = changes.added.iter().cloned().collect();
    names.extend(changes.changed.iter().cloned());
    // Fetched weights may have been added or removed by hand.
    let fetched = newer
        .entries()
        .values()
        .filter(|entry| entry.fetch.is_some());
    names.extend(fetched.map(|entry| entry.name.clone()));
    // A model that failed because of its files, or could not be served at all, is tried again.
    let kept = newer
        .entries()
        .values()
        .filter(|entry| known.files.get(&entry.name) != Some(&entry.files_mark()));
    names.extend(kept.map(|entry| entry.name.clone()));
    if before.pool != config.pool {
        names.extend(newer.entries().keys().cloned());
    }
    let names: Vec<String> = names.into_iter().collect();
    let specs = figure(&newer, &names, config, known);
    Ok((newer, specs, changes, warnings))
}
