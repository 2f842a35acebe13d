//! Applications of Ray Serve that an earlier controller has deployed: those that still serve their model are adopted, and
//! all others of this pool's name are removed. Ray itself keeps what has to be known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ray_api::{Application, ApplicationState, Listing, RayError, ServeWriter, state_of};
use tokio::time::timeout;

use super::Endpoint;
use super::adoption::{Fate, Found, Resolved};
use super::ray_serve_application::{self as application, ARGUMENTS, MODEL};
use super::ray_serve_program::{ServeProgram, ServeWriters};
use super::remote_run::read_key;
use catalog::{RayPlace, RayServeRecipe};
use pool::ReplicaId;

/// A Ray that does not answer must not keep the pool from serving.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// Any write to Serve's list, and a restart of Serve's controller, shows all applications as deploying for a moment: how often
/// it is looked again, with this pause.
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

/// A Ray that has answered.
struct Looked<'a> {
    place: &'a RayPlace,
    writer: Arc<ServeWriter>,
    listing: Listing,
}

/// Returns when every application of this pool in these places has been dealt with. `recipe_of` gives the recipe of a model
/// with these arguments, or why its application is no longer needed; with `keep` unset, none is.
pub async fn resolve_applications(
    writers: &ServeWriters,
    places: &[RayPlace],
    keep: bool,
    recipe_of: impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    resolved: &mut Resolved,
) {
    let looks = places.iter().map(|place| look(writers, place, keep));
    let looked: Vec<Looked<'_>> = join_all(looks).await.into_iter().flatten().collect();
    let mut adopted = BTreeSet::new();
    let mut others = BTreeMap::new();
    for it in &looked {
        for (name, replica, deployed) in own(it) {
            let model = deployed.variable(MODEL);
            let judged = match keep {
                true => judge(it, name, deployed, &recipe_of).await,
                false => Err("pool.on_restart is stop".to_owned()),
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
                (Err(reason), _) => {
                    let reason = format!("the application {name} of Ray Serve: {reason}");
                    others.entry(name.clone()).or_insert(Found {
                        model,
                        replica: Some(replica),
                        fate: Fate::Stopped,
                        reason,
                    });
                }
            }
        }
    }
    // One Ray may have two addresses, and lists an application at both: it is left over only if it is adopted at neither. So
    // nothing is removed before all have been looked at.
    others.retain(|name, _| !adopted.contains(name));
    for it in &looked {
        let is_left_over = |name: &String| others.contains_key(name);
        if !own(it).any(|(name, ..)| is_left_over(name)) {
            continue;
        }
        let removed = timeout(LOOK_MAX, it.writer.remove_left_over()).await;
        let why = match removed {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {LOOK_MAX:?}"),
        };
        tracing::warn!(
            "left-over applications are still in Ray Serve: {why}; the pool tries to remove them until they are gone"
        );
        it.writer.expect_late_writes(false);
    }
    resolved.others.extend(others.into_values());
}

/// The applications of this pool in a Ray once they have settled, or `None` if that is unknown.
async fn look<'a>(writers: &ServeWriters, place: &'a RayPlace, keep: bool) -> Option<Looked<'a>> {
    let writer = writers.of(place);
    let mut listing = match timeout(LOOK_MAX, writer.look()).await {
        Ok(Ok(listing)) => listing,
        // A Ray that brings nodes need not have Serve.
        Ok(Err(RayError::Refused { message, .. })) => {
            tracing::debug!("Ray at {} has no Serve: {message}", place.address);
            writer.expect_late_writes(true);
            return None;
        }
        Ok(Err(error)) => return unknown(&writer, place, &error.to_string()),
        Err(_) => {
            let why = format!("no answer within {LOOK_MAX:?}");
            return unknown(&writer, place, &why);
        }
    };
    for _ in 0..LOOKS_MAX {
        if !keep || is_settled(place, &listing) {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        if let Ok(Ok(again)) = timeout(LOOK_MAX, writer.look()).await {
            listing = again;
        }
    }
    writer.expect_late_writes(true);
    Some(Looked {
        place,
        writer,
        listing,
    })
}

fn unknown<'a>(writer: &ServeWriter, place: &RayPlace, why: &str) -> Option<Looked<'a>> {
    writer.expect_late_writes(false);
    tracing::warn!(
        "it is unknown which applications of this pool run in Ray at {}: {why}; those that do are removed when it answers, and their models are loaded anew",
        place.address
    );
    None
}

/// The pool's applications that are not being removed, with their replicas.
fn own<'a>(
    looked: &'a Looked<'_>,
) -> impl Iterator<Item = (&'a String, ReplicaId, &'a Application)> {
    let all = looked.listing.applications.iter();
    let there = all.filter(|(_, deployed)| !deployed.is_leaving());
    there.filter_map(|(name, deployed)| {
        let replica = application::replica_of(looked.place, name)?;
        Some((name, replica, deployed))
    })
}

/// Whether each application of the pool runs, or has failed.
fn is_settled(place: &RayPlace, listing: &Listing) -> bool {
    let mut own = listing
        .applications
        .iter()
        .filter(|(name, it)| application::replica_of(place, name).is_some() && !it.is_leaving());
    own.all(|(name, _)| {
        let state = state_of(listing, name);
        matches!(
            state,
            ApplicationState::Running | ApplicationState::Failed { .. }
        )
    })
}

/// The recipe of its model and where its requests go, or why it is not needed.
async fn judge(
    looked: &Looked<'_>,
    name: &str,
    deployed: &Application,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
) -> Result<(RayServeRecipe, Endpoint), String> {
    let (Some(model), Some(arguments)) = (deployed.variable(MODEL), deployed.variable(ARGUMENTS))
    else {
        return Err("it does not say which model it serves".to_owned());
    };
    let recipe = recipe_of(&model, &arguments)?;
    if recipe.place.address != looked.place.address {
        return Err("its model file names another Ray now".to_owned());
    }
    match state_of(&looked.listing, name) {
        ApplicationState::Running => {}
        ApplicationState::Failed { message } | ApplicationState::Unhealthy { message } => {
            return Err(message);
        }
        ApplicationState::Starting { stage, .. } => return Err(format!("was not ready ({stage})")),
        ApplicationState::Absent | ApplicationState::Leaving => {
            return Err("is being removed".to_owned());
        }
    }
    let key = read_key(recipe.key.as_ref()).await?;
    let endpoint = application::endpoint(&recipe, name, looked.listing.proxy_port(), key);
    Ok((recipe, endpoint))
}
