//! Ray Serve applications that an earlier controller has deployed: adopts applications that still serve their model, and removes
//! all others with this pool's name. All facts about them are kept in Ray itself. A Ray cluster that does not respond at the start
//! is handled when it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ray_api::{Application, ApplicationState, Listing, RayError, ServeWriter, state_of};
use tokio::time::timeout;

use super::adoption::AdoptionResult;
use super::pending::{found, give_up_awaited};
use super::remote::read_key;
use crate::connection::Endpoint;
use crate::ray_serve::program::now;
use crate::ray_serve::{
    ARGUMENTS, MODEL, PendingApplication, ServeProgram, ServeWriters, Streaming, UnadoptedEngine,
    application,
};
use catalog::{RayPlace, RayServeRecipe};
use pool::ReplicaId;

/// A Ray cluster that does not respond must not keep the pool from serving.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// Any write to Serve's list, and a restart of Serve's controller, shows all applications as deploying for a short time. Limits the
/// repeated queries at the start, with this pause between them.
const LOOKS_MAX: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A ready application that this controller has taken over.
#[derive(Debug)]
pub struct AdoptedApplication {
    pub replica: ReplicaId,
    pub model: String,
    /// The summary of the arguments it was deployed with.
    pub arguments: String,
    pub endpoint: Endpoint,
    pub(crate) program: ServeProgram,
    pub(crate) name: String,
}

impl AdoptedApplication {
    /// Returns true if this process has deployed any part of the replica in Ray.
    pub fn has_begun(&self, writers: &ServeWriters, replica: ReplicaId) -> bool {
        let name = application::name(&self.program.recipe.place, replica);
        writers.shared.is_alive(&name)
    }

    /// Removes the application, which is not needed after all. Returns `None` if the removal waits because an earlier process may
    /// still stream through it.
    pub fn give_up(
        self,
        writers: &ServeWriters,
        reason: &str,
        is_streaming: bool,
    ) -> Option<UnadoptedEngine> {
        let found = found(&self.name, Some(self.model), self.replica, reason);
        let (name, writer) = (self.name, self.program.writer);
        if !is_streaming {
            writer.leave(&name);
            return Some(found);
        }
        writers.spare(Streaming {
            writer,
            name,
            replica: self.replica,
            found,
        });
        None
    }
}

/// A Ray cluster that has responded.
pub(crate) struct RespondingRay {
    place: RayPlace,
    writer: Arc<ServeWriter>,
    listing: Listing,
}

/// Result of a query of a Ray cluster.
pub(crate) enum RayQueryResult {
    Listed(Box<RespondingRay>),
    /// The cluster has responded and has no Serve.
    WithoutServe,
    /// The cluster does not respond, or its applications are still changing.
    Unknown,
}

/// The reason an application is not adopted.
enum NotAdopted {
    /// Its model is in the Ray cluster at this address, which has not responded yet and may be the same cluster.
    Yet(String),
    Unneeded(String),
}

/// Resolves every application of this pool in these places, except in Ray clusters that do not respond. `recipe_of` returns the
/// recipe of a model with these arguments, or the reason its application is no longer needed; without `keep`, no application is
/// needed. `is_streaming` returns true if an earlier process may still stream through a replica's application; an unneeded
/// application stays until that ends.
pub async fn resolve_applications(
    writers: &ServeWriters,
    places: &[RayPlace],
    keep: bool,
    recipe_of: impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    is_streaming: impl Fn(ReplicaId) -> bool,
    resolved: &mut AdoptionResult,
) {
    let looks = places
        .iter()
        .map(|place| async move { (place.clone(), look(writers, place, keep).await) });
    let looks = join_all(looks).await;
    resolve_looks(writers, looks, keep, &recipe_of, &is_streaming, resolved).await;
}

/// Resolves the applications in Ray clusters that have been queried. Clusters queried together are judged together, in a single
/// pass: an application may be listed in two clusters.
pub(super) async fn resolve_looks(
    writers: &ServeWriters,
    looks: Vec<(RayPlace, RayQueryResult)>,
    keep: bool,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    is_streaming: &impl Fn(ReplicaId) -> bool,
    resolved: &mut AdoptionResult,
) {
    let (mut responded, mut looked) = (Vec::new(), Vec::new());
    for (place, look) in looks {
        match look {
            RayQueryResult::Unknown => continue,
            RayQueryResult::WithoutServe => {}
            RayQueryResult::Listed(looked_at) => looked.push(looked_at),
        }
        responded.push(place);
    }
    let mut adopted = BTreeSet::new();
    let mut others = BTreeMap::new();
    for looked_at in &looked {
        for (name, replica, deployed) in own(looked_at) {
            // Deployed while the cluster was unknown, or adopted or given up at another of its addresses.
            if writers.shared.is_own(name) || writers.shared.is_streaming(name) {
                continue;
            }
            let model = deployed.variable(MODEL);
            let judged = if keep {
                judge(writers, looked_at, name, deployed, recipe_of).await
            } else {
                Err(NotAdopted::Unneeded("pool.on_restart is stop".to_owned()))
            };
            match (judged, &deployed.deployed_app_config) {
                (Ok((recipe, endpoint)), Some(config)) => {
                    looked_at.writer.own(name, config.clone()).await;
                    adopted.insert(name.clone());
                    resolved.applications.push(AdoptedApplication {
                        replica,
                        model: model.unwrap_or_default(),
                        arguments: deployed.variable(ARGUMENTS).unwrap_or_default(),
                        endpoint,
                        program: ServeProgram {
                            recipe: Box::new(recipe),
                            writer: Arc::clone(&looked_at.writer),
                        },
                        name: name.clone(),
                    });
                }
                (Ok(_), None) => {}
                (Err(NotAdopted::Yet(address)), _) => {
                    writers.spare_until_response(PendingApplication {
                        address,
                        since: now(),
                        model: model.unwrap_or_default(),
                        arguments: deployed.variable(ARGUMENTS).unwrap_or_default(),
                        writer: Arc::clone(&looked_at.writer),
                        name: name.clone(),
                        replica,
                    })
                }
                (Err(NotAdopted::Unneeded(reason)), _) => {
                    others.entry(name.clone()).or_insert_with(|| Streaming {
                        writer: Arc::clone(&looked_at.writer),
                        name: name.clone(),
                        replica,
                        found: found(name, model, replica, &reason),
                    });
                }
            }
        }
    }
    // A Ray cluster may have two addresses, and lists an application at both: the application is left over only if it is adopted at
    // neither. All must be queried before any is removed.
    others.retain(|name, _| !adopted.contains(name));
    let has_response = |application: &PendingApplication| {
        responded
            .iter()
            .any(|place| place.address == application.address)
    };
    for application in writers.awaited(has_response) {
        // It was seen in the cluster that has responded, which is the same one.
        if !writers.shared.is_own(&application.name) && !others.contains_key(&application.name) {
            give_up_awaited(writers, application, "its model is in another Ray");
        }
    }
    for (_, application) in
        others.extract_if(.., |_, application| is_streaming(application.replica))
    {
        writers.spare(application);
    }
    for place in &responded {
        resolved.holds.extend(writers.take_response(place));
    }
    for looked_at in &looked {
        if own(looked_at)
            .iter()
            .any(|(name, ..)| others.contains_key(*name))
        {
            remove_left_over(&looked_at.writer).await;
        }
    }
    resolved
        .others
        .extend(others.into_values().map(|streaming| streaming.found));
}

async fn remove_left_over(writer: &ServeWriter) {
    let removed = timeout(LOOK_MAX, writer.remove_left_over()).await;
    let why = match removed {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no response within {LOOK_MAX:?}"),
    };
    tracing::warn!(
        "left-over applications are still in Ray Serve: {why}; the pool tries to remove them until they are gone"
    );
    writer.expect_late_writes(false);
}

/// Queries a Ray cluster for the applications of this pool, after they have settled.
pub(crate) async fn look(writers: &ServeWriters, place: &RayPlace, keep: bool) -> RayQueryResult {
    let writer = writers.writer_for(place);
    let mut listing = match timeout(LOOK_MAX, writer.look()).await {
        Ok(Ok(listing)) => listing,
        // A Ray cluster that provides nodes does not need Serve. A cluster that was used before had Serve, and may be starting.
        Ok(Err(RayError::Refused { message, .. })) if !writer.is_used() => {
            tracing::debug!("Ray at {} has no Serve: {message}", place.address);
            writer.expect_late_writes(true);
            return RayQueryResult::WithoutServe;
        }
        Ok(Err(error)) => return unknown(writers, place, &error.to_string()),
        Err(_) => {
            let why = format!("no response within {LOOK_MAX:?}");
            return unknown(writers, place, &why);
        }
    };
    if writers.shared.has_no_response(&place.address) {
        // No start waits for this cluster, so it is queried again later.
        if keep && !is_settled(writers, place, &listing) && writers.settles(place) {
            return RayQueryResult::Unknown;
        }
    } else {
        for _ in 0..LOOKS_MAX {
            if !keep || is_settled(writers, place, &listing) {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
            if let Ok(Ok(again)) = timeout(LOOK_MAX, writer.look()).await {
                listing = again;
            }
        }
    }
    writer.expect_late_writes(true);
    RayQueryResult::Listed(Box::new(RespondingRay {
        place: place.clone(),
        writer,
        listing,
    }))
}

fn unknown(writers: &ServeWriters, place: &RayPlace, why: &str) -> RayQueryResult {
    if writers.expect_response(place) {
        tracing::warn!(
            "it is unknown which applications of this pool run in Ray at {}: {why}; they stay until it responds, and are adopted or removed then",
            place.address
        );
    }
    RayQueryResult::Unknown
}

/// The pool's applications that are not being removed, with their replicas.
fn own(looked: &RespondingRay) -> Vec<(&String, ReplicaId, &Application)> {
    let all = looked.listing.applications.iter();
    let there = all.filter(|(_, deployed)| !deployed.is_leaving());
    let own = there.filter_map(|(name, deployed)| {
        let replica = application::replica_of(&looked.place, name)?;
        Some((name, replica, deployed))
    });
    own.collect()
}

/// Returns true if each application that an earlier process has deployed runs or has failed.
fn is_settled(writers: &ServeWriters, place: &RayPlace, listing: &Listing) -> bool {
    let mut earlier = listing.applications.iter().filter(|(name, deployed)| {
        let is_of_pool = application::replica_of(place, name).is_some() && !deployed.is_leaving();
        is_of_pool && !writers.shared.is_own(name)
    });
    earlier.all(|(name, _)| {
        let state = state_of(listing, name);
        matches!(
            state,
            ApplicationState::Running | ApplicationState::Failed { .. }
        )
    })
}

/// The recipe of the application's model and its endpoint, or the reason it is not adopted.
async fn judge(
    writers: &ServeWriters,
    looked: &RespondingRay,
    name: &str,
    deployed: &Application,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
) -> Result<(RayServeRecipe, Endpoint), NotAdopted> {
    let unneeded = |reason: &str| Err(NotAdopted::Unneeded(reason.to_owned()));
    let (Some(model), Some(arguments)) = (deployed.variable(MODEL), deployed.variable(ARGUMENTS))
    else {
        return unneeded("it does not say which model it serves");
    };
    let recipe = recipe_of(&model, &arguments).map_err(NotAdopted::Unneeded)?;
    let address = &recipe.place.address;
    if *address != looked.place.address {
        return if writers.shared.has_no_response(address) {
            Err(NotAdopted::Yet(address.clone()))
        } else {
            unneeded("its model file names another Ray now")
        };
    }
    match state_of(&looked.listing, name) {
        ApplicationState::Running => {}
        ApplicationState::Failed { message } | ApplicationState::Unhealthy { message } => {
            return unneeded(&message);
        }
        ApplicationState::Starting { stage, .. } => {
            return unneeded(&format!("was not ready ({stage})"));
        }
        ApplicationState::Absent | ApplicationState::Leaving => {
            return unneeded("is being removed");
        }
    }
    let key = read_key(recipe.key.as_ref()).await;
    let key = key.map_err(NotAdopted::Unneeded)?;
    let endpoint = application::endpoint(&recipe, name, looked.listing.proxy_port(), key);
    Ok((recipe, endpoint))
}

#[cfg(test)]
mod tests;
