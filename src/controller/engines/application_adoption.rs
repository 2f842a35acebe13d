//! Adopts Ray Serve applications that an earlier controller deployed, as replicas of this one (D2), and finds those no longer
//! needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::adoption::{RunningReplica, arguments_problem, entry_of};
use crate::control::{Control, watch};
use crate::gates::SeatCounts;
use crate::view::REMOTE_DEVICE;
use catalog::{Catalog, RayPlace, RayServeRecipe};
use config::Config;
use engine::{AdoptedApplication, AdoptionResult, ReplicaLog};
use pool::{Bytes, Event, ModelId, ReplicaId, Share};

/// Every Ray cluster that may run applications of this pool. `remembered` lists the clusters that earlier runs have used.
pub fn ray_places(catalog: &Catalog, config: &Config, remembered: Vec<RayPlace>) -> Vec<RayPlace> {
    let entries = catalog.entries().values();
    let of_models = entries.filter_map(|entry| Some(entry.recipe.ray_serve()?.place.clone()));
    let mut places: Vec<RayPlace> = Vec::new();
    // Clusters named only by the configuration or by an earlier run may still run applications of models whose file is gone. The
    // configured entry comes first, since it carries the current token.
    let others = RayPlace::of_config(config).into_iter().chain(remembered);
    for place in of_models.chain(others) {
        if !places.iter().any(|known| known.address == place.address) {
            places.push(place);
        }
    }
    places
}

/// The recipe of the model that an application serves, or the reason the application is no longer needed.
///
/// # Errors
/// The reason, in one line.
pub fn recipe_of_application(
    model: &str,
    arguments: &str,
    catalog: &Catalog,
) -> Result<RayServeRecipe, String> {
    let entry = entry_of(model, arguments, catalog)?;
    let recipe = entry.recipe.ray_serve().cloned();
    recipe.ok_or_else(|| "its model file names another engine now".to_owned())
}

/// The other replicas of models whose applications were found after the start.
#[derive(Default)]
struct OtherReplicas {
    /// Models with a replica that is ready, or that has started to deploy.
    served: BTreeSet<ModelId>,
    /// Loads that waited for the search to end and have deployed nothing yet.
    held: BTreeMap<ReplicaId, ModelId>,
}

impl Control {
    /// Takes applications found after the start: adopts them as at the start, unless their models no longer need them. A load of
    /// the same model that waited for the search ends if the pool does not need it any more.
    pub(crate) fn take_late(&mut self, found: AdoptionResult) {
        let AdoptionResult {
            applications,
            others,
            holds,
            ..
        } = found;
        for other in others {
            self.note(other);
        }
        let earlier = self.earlier_seats.clone();
        // Computed before any application is taken: a model may have several.
        let others = self.other_replicas(&applications);
        let mut events = Vec::new();
        let mut adopted = BTreeSet::new();
        for application in applications {
            match self.late_refusal(&application, &others.served) {
                None => {
                    let take = |seats: &[SeatCounts]| self.take_application(application, seats);
                    if let Some(event) = earlier.with_reported(take) {
                        if let Event::ReplicaAdopted { model, .. } = &event {
                            adopted.insert(*model);
                        }
                        events.push(event);
                    }
                }
                Some(reason) => {
                    let now = self.clock.now();
                    let is_streaming = earlier.may_stream(application.replica, now);
                    let writers = Arc::clone(self.launcher.serve_writers());
                    if let Some(other) = application.give_up(&writers, &reason, is_streaming) {
                        self.note(other);
                    }
                }
            }
        }
        // Lets the pool decide whether the loads that waited are still needed.
        let held = others.held.into_iter();
        let held = held.filter(|(_, model)| adopted.contains(model));
        events.extend(held.map(|(replica, _)| Event::LoadNotBegun { replica }));
        if !events.is_empty() {
            self.turn_all(events);
            self.publish();
        }
        // The remaining loads deploy from here on.
        drop(holds);
    }

    /// The replicas that the models of these applications have already.
    fn other_replicas(&self, found: &[AdoptedApplication]) -> OtherReplicas {
        let mut others = OtherReplicas::default();
        for application in found {
            let Some(model) = self.models.find(&application.model) else {
                continue;
            };
            for (replica, facts) in self.engines.iter() {
                if facts.model != model {
                    continue;
                }
                if facts.ready || application.has_begun(self.launcher.serve_writers(), replica) {
                    others.served.insert(model);
                } else {
                    others.held.insert(replica, model);
                }
            }
        }
        others
    }

    /// Returns the reason an application found after the start is not adopted. `served` holds the models that have another replica
    /// already.
    fn late_refusal(
        &self,
        found: &AdoptedApplication,
        served: &BTreeSet<ModelId>,
    ) -> Option<String> {
        let model = self.models.find(&found.model);
        let known = model.and_then(|id| Some((id, self.models.get(id)?)));
        let Some((model, facts)) = known else {
            return Some("the model is no longer in the catalogue".to_owned());
        };
        // The catalogue may have changed since the application was checked against it.
        if let Some(problem) = arguments_problem(&found.arguments, &facts.entry) {
            return Some(problem);
        }
        if served.contains(&model) {
            return Some("its model has another replica now".to_owned());
        }
        if self.orders.have_unloaded(model) {
            return Some("its model has been unloaded".to_owned());
        }
        // A new database starts numbering replicas from the beginning, so the number may be taken.
        let replica = found.replica;
        let is_taken = self.pool.has_given(replica) || self.engines.contains(replica);
        is_taken.then(|| format!("{replica} has been another replica since the start"))
    }

    pub(super) fn take_application(
        &mut self,
        adopted: AdoptedApplication,
        seats: &[SeatCounts],
    ) -> Option<Event> {
        // The catalogue is the one this application was checked against.
        let model = self.models.find(&adopted.model)?;
        let replica = adopted.replica;
        let found = RunningReplica {
            replica,
            model,
            placement: vec![Share {
                device: REMOTE_DEVICE,
                bytes: Bytes::ZERO,
            }],
            endpoint: adopted.endpoint.clone(),
            // Ray does not report it.
            ready_at: None,
            last_end: None,
        };
        let log = Arc::new(ReplicaLog::in_memory());
        let watch = watch(&self.models.get(model)?.entry, &self.config.pool);
        let event = self.take_running(found, (&log, &watch), seats, |facts| {
            facts.arguments = adopted.arguments.clone();
        });
        tracing::info!(
            "adopted {} ({replica}), an application of Ray Serve, which kept running without us (D2)",
            adopted.model
        );
        let (stopped, report) = self.connect(replica);
        self.background.spawn(engine::run_application(
            adopted, watch, log, stopped, report,
        ));
        Some(event)
    }
}
