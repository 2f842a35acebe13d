//! Applications of Ray Serve that an earlier controller has deployed: those that still serve their model are adopted, and
//! all others of this pool's name are removed. Ray itself keeps what has to be known of them. A Ray that does not answer at
//! the start is dealt with when it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ray_api::{Application, ApplicationState, Listing, RayError, ServeWriter, state_of};
use tokio::time::timeout;

use super::Endpoint;
use super::adoption::Resolved;
use super::found::Found;
use super::ray_serve_application::{self as application, ARGUMENTS, MODEL};
use super::ray_serve_awaiting::{found, give_up_awaited};
use super::ray_serve_program::{Awaiting, ServeProgram, ServeWriters, Streaming, now};
use super::remote_run::read_key;
use catalog::{RayPlace, RayServeRecipe};
use pool::ReplicaId;

/// A Ray that does not answer must not keep the pool from serving.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// Any write to Serve's list, and a restart of Serve's controller, shows all applications as deploying for a moment: how often
/// it is looked again at the start, with this pause.
const LOOKS_MAX: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A ready application that this controller has taken over.
#[derive(Debug)]
pub struct AdoptedApplication {
    pub replica: ReplicaId,
    pub model: String,
    /// The summary of what it was deployed with.
    pub arguments: String,
    pub endpoint: Endpoint,
    pub(super) program: ServeProgram,
    pub(super) name: String,
}

impl AdoptedApplication {
    /// Whether this process has deployed anything of the replica in Ray.
    pub fn has_begun(&self, writers: &ServeWriters, replica: ReplicaId) -> bool {
        let name = application::name(&self.program.recipe.place, replica);
        writers.shared.is_alive(&name)
    }

    /// It is not needed after all, and is removed. `None`: later, because an earlier process may still stream through it.
    pub fn give_up(
        self,
        writers: &ServeWriters,
        reason: &str,
        is_streaming: bool,
    ) -> Option<Found> {
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

/// A Ray that has answered.
pub(super) struct Looked {
    place: RayPlace,
    writer: Arc<ServeWriter>,
    listing: Listing,
}

/// The outcome of a look at a Ray.
pub(super) enum Look {
    Listed(Box<Looked>),
    /// It has answered, and has no Serve.
    WithoutServe,
    /// It does not answer, or what runs there still changes.
    Unknown,
}

/// Why an application is not adopted.
enum NotAdopted {
    /// Its model is in the Ray of this address, which has not answered yet and may be the same one.
    Yet(String),
    Unneeded(String),
}

/// Returns when every application of this pool in these places has been dealt with, but where a Ray does not answer. `recipe_of`
/// gives the recipe of a model with these arguments, or why its application is no longer needed; with `keep` unset, none is.
/// `is_streaming`: whether an earlier process may still stream through the application of a replica. One that is not needed
/// stays as long.
pub async fn resolve_applications(
    writers: &ServeWriters,
    places: &[RayPlace],
    keep: bool,
    recipe_of: impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    is_streaming: impl Fn(ReplicaId) -> bool,
    resolved: &mut Resolved,
) {
    let looks = places
        .iter()
        .map(|place| async move { (place.clone(), look(writers, place, keep).await) });
    let looks = join_all(looks).await;
    resolve_looks(writers, looks, keep, &recipe_of, &is_streaming, resolved).await;
}

/// The same for Rays that have been looked at. What is looked at together is judged together, and one judgement follows another:
/// an application may be listed in two Rays.
pub(super) async fn resolve_looks(
    writers: &ServeWriters,
    looks: Vec<(RayPlace, Look)>,
    keep: bool,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    is_streaming: &impl Fn(ReplicaId) -> bool,
    resolved: &mut Resolved,
) {
    let (mut answered, mut looked) = (Vec::new(), Vec::new());
    for (place, look) in looks {
        match look {
            Look::Unknown => continue,
            Look::WithoutServe => {}
            Look::Listed(it) => looked.push(it),
        }
        answered.push(place);
    }
    let mut adopted = BTreeSet::new();
    let mut others = BTreeMap::new();
    for it in &looked {
        for (name, replica, deployed) in own(it) {
            // Deployed while the Ray was unknown, or adopted or given up at another address of it.
            if writers.shared.is_own(name) || writers.shared.is_streaming(name) {
                continue;
            }
            let model = deployed.variable(MODEL);
            let judged = if keep {
                judge(writers, it, name, deployed, recipe_of).await
            } else {
                Err(NotAdopted::Unneeded("pool.on_restart is stop".to_owned()))
            };
            match (judged, &deployed.deployed_app_config) {
                (Ok((recipe, endpoint)), Some(config)) => {
                    it.writer.own(name, config.clone()).await;
                    adopted.insert(name.clone());
                    resolved.applications.push(AdoptedApplication {
                        replica,
                        model: model.unwrap_or_default(),
                        arguments: deployed.variable(ARGUMENTS).unwrap_or_default(),
                        endpoint,
                        program: ServeProgram {
                            recipe: Box::new(recipe),
                            writer: Arc::clone(&it.writer),
                        },
                        name: name.clone(),
                    });
                }
                (Ok(_), None) => {}
                (Err(NotAdopted::Yet(address)), _) => writers.spare_until_answer(Awaiting {
                    address,
                    since: now(),
                    model: model.unwrap_or_default(),
                    arguments: deployed.variable(ARGUMENTS).unwrap_or_default(),
                    writer: Arc::clone(&it.writer),
                    name: name.clone(),
                    replica,
                }),
                (Err(NotAdopted::Unneeded(reason)), _) => {
                    others.entry(name.clone()).or_insert_with(|| Streaming {
                        writer: Arc::clone(&it.writer),
                        name: name.clone(),
                        replica,
                        found: found(name, model, replica, &reason),
                    });
                }
            }
        }
    }
    // One Ray may have two addresses, and lists an application at both: it is left over only if it is adopted at neither. So
    // nothing is removed before all have been looked at.
    others.retain(|name, _| !adopted.contains(name));
    let is_answered = |it: &Awaiting| answered.iter().any(|place| place.address == it.address);
    for it in writers.awaited(is_answered) {
        // It was seen in the Ray that has answered, which is the same one.
        if !writers.shared.is_own(&it.name) && !others.contains_key(&it.name) {
            give_up_awaited(writers, it, "its model is in another Ray");
        }
    }
    for (_, it) in others.extract_if(.., |_, it| is_streaming(it.replica)) {
        writers.spare(it);
    }
    for place in &answered {
        resolved.holds.extend(writers.answered(place));
    }
    for it in &looked {
        if own(it).iter().any(|(name, ..)| others.contains_key(*name)) {
            remove_left_over(&it.writer).await;
        }
    }
    resolved
        .others
        .extend(others.into_values().map(|it| it.found));
}

async fn remove_left_over(writer: &ServeWriter) {
    let removed = timeout(LOOK_MAX, writer.remove_left_over()).await;
    let why = match removed {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {LOOK_MAX:?}"),
    };
    tracing::warn!(
        "left-over applications are still in Ray Serve: {why}; the pool tries to remove them until they are gone"
    );
    writer.expect_late_writes(false);
}

/// The applications of this pool in a Ray once they have settled.
pub(super) async fn look(writers: &ServeWriters, place: &RayPlace, keep: bool) -> Look {
    let writer = writers.of(place);
    let mut listing = match timeout(LOOK_MAX, writer.look()).await {
        Ok(Ok(listing)) => listing,
        // A Ray that brings nodes need not have Serve. One that was used had it, and may be starting.
        Ok(Err(RayError::Refused { message, .. })) if !writer.is_used() => {
            tracing::debug!("Ray at {} has no Serve: {message}", place.address);
            writer.expect_late_writes(true);
            return Look::WithoutServe;
        }
        Ok(Err(error)) => return unknown(writers, place, &error.to_string()),
        Err(_) => {
            let why = format!("no answer within {LOOK_MAX:?}");
            return unknown(writers, place, &why);
        }
    };
    if writers.shared.is_unanswered(&place.address) {
        // No start waits for it: it is looked at again.
        if keep && !is_settled(writers, place, &listing) && writers.settles(place) {
            return Look::Unknown;
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
    Look::Listed(Box::new(Looked {
        place: place.clone(),
        writer,
        listing,
    }))
}

fn unknown(writers: &ServeWriters, place: &RayPlace, why: &str) -> Look {
    if writers.expect_answer(place) {
        tracing::warn!(
            "it is unknown which applications of this pool run in Ray at {}: {why}; they stay until it answers, and are adopted or removed then",
            place.address
        );
    }
    Look::Unknown
}

/// The pool's applications that are not being removed, with their replicas.
fn own(looked: &Looked) -> Vec<(&String, ReplicaId, &Application)> {
    let all = looked.listing.applications.iter();
    let there = all.filter(|(_, deployed)| !deployed.is_leaving());
    let own = there.filter_map(|(name, deployed)| {
        let replica = application::replica_of(&looked.place, name)?;
        Some((name, replica, deployed))
    });
    own.collect()
}

/// Whether each application that an earlier process has deployed runs, or has failed.
fn is_settled(writers: &ServeWriters, place: &RayPlace, listing: &Listing) -> bool {
    let mut earlier = listing.applications.iter().filter(|(name, it)| {
        let is_of_pool = application::replica_of(place, name).is_some() && !it.is_leaving();
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

/// The recipe of its model and where its requests go, or why it is not adopted.
async fn judge(
    writers: &ServeWriters,
    looked: &Looked,
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
        return if writers.shared.is_unanswered(address) {
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
