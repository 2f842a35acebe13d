//! Applications of Ray Serve that an earlier controller has deployed: those that still serve their model are adopted, and
//! all others of this pool's name are removed. Ray itself keeps what has to be known of them.

use std::sync::Arc;
use std::time::Duration;

use ray_api::{Application, ApplicationState, Listing, RayError, state_of};
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

/// Returns when every application of this pool in these places has been dealt with. `recipe_of` gives the recipe of a model
/// with these arguments, or why its application is no longer needed; with `keep` unset, none is.
pub async fn resolve_applications(
    writers: &ServeWriters,
    places: &[RayPlace],
    keep: bool,
    recipe_of: impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    resolved: &mut Resolved,
) {
    for place in places {
        let writer = writers.of(place);
        let mut listing = match timeout(LOOK_MAX, writer.look()).await {
            Ok(Ok(listing)) => listing,
            // A Ray that brings nodes need not have Serve.
            Ok(Err(RayError::Refused { message, .. })) => {
                tracing::debug!("Ray at {} has no Serve: {message}", place.address);
                continue;
            }
            Ok(Err(error)) => {
                tell_of_unknown(place, &error.to_string());
                continue;
            }
            Err(_) => {
                tell_of_unknown(place, &format!("no answer within {LOOK_MAX:?}"));
                continue;
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
        let mut has_left_over = false;
        for (name, deployed) in &listing.applications {
            let Some(replica) = application::replica_of(place, name) else {
                continue;
            };
            if deployed.is_leaving() {
                continue;
            }
            let model = deployed.variable(MODEL);
            let judged = match keep {
                true => judge(place, name, &listing, deployed, &recipe_of).await,
                false => Err("pool.on_restart is stop".to_owned()),
            };
            match (judged, &deployed.deployed_app_config) {
                (Ok((recipe, endpoint)), Some(config)) => {
                    writer.own(name, config.clone()).await;
                    resolved.applications.push(AdoptedApplication {
                        replica,
                        model: model.unwrap_or_default(),
                        arguments: deployed.variable(ARGUMENTS).unwrap_or_default(),
                        endpoint,
                        program: ServeProgram {
                            recipe: Box::new(recipe),
                            writer: Arc::clone(&writer),
                        },
                        name: name.clone(),
                    });
                }
                (Ok(_), None) => {}
                (Err(reason), _) => {
                    has_left_over = true;
                    resolved.others.push(Found {
                        model,
                        replica: Some(replica),
                        fate: Fate::Stopped,
                        reason: format!("the application {name} of Ray Serve: {reason}"),
                    });
                }
            }
        }
        if has_left_over && let Err(error) = writer.remove_left_over().await {
            tracing::warn!(
                "left-over applications are still in Ray Serve: {error}; the next load there removes them"
            );
        }
    }
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

fn tell_of_unknown(place: &RayPlace, why: &str) {
    tracing::warn!(
        "it is unknown which applications of this pool run in Ray at {}: {why}; those that do are left alone until a model is loaded there, which removes them",
        place.address
    );
}

/// The recipe of its model and where its requests go, or why it is not needed.
async fn judge(
    place: &RayPlace,
    name: &str,
    listing: &Listing,
    deployed: &Application,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
) -> Result<(RayServeRecipe, Endpoint), String> {
    let (Some(model), Some(arguments)) = (deployed.variable(MODEL), deployed.variable(ARGUMENTS))
    else {
        return Err("it does not say which model it serves".to_owned());
    };
    let recipe = recipe_of(&model, &arguments)?;
    if recipe.place.address != place.address {
        return Err("its model file names another Ray now".to_owned());
    }
    match state_of(listing, name) {
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
    let endpoint = application::endpoint(&recipe, name, listing.proxy_port(), key);
    Ok((recipe, endpoint))
}
