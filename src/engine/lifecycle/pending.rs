//! Applications that are kept because their model's Ray cluster has not responded and may be the one they run in. Decides how long
//! they are kept.

use std::time::Duration;

use tokio::time::Instant;

use crate::ray_serve::program::now;
use crate::ray_serve::{Fate, PendingApplication, ServeWriters, Streaming, UnadoptedEngine};
use catalog::RayServeRecipe;
use pool::ReplicaId;

/// Such an application holds GPUs, and its model cannot be loaded while that cluster is silent.
const AWAITED_MAX: Duration = Duration::from_secs(3600);

/// Gives up the applications that wait for another cluster's response and are not needed, whatever it responds.
pub(super) fn end_awaiting(
    writers: &ServeWriters,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
) {
    let now = now();
    let reason_of = |application: &PendingApplication| awaited_in_vain(application, recipe_of, now);
    for application in writers.awaited(|application| reason_of(application).is_some()) {
        let reason = reason_of(&application).unwrap_or_default();
        give_up_awaited(writers, application, &reason);
    }
}

/// Returns the reason an application need not wait for another cluster's response any longer.
fn awaited_in_vain(
    application: &PendingApplication,
    recipe_of: &impl Fn(&str, &str) -> Result<RayServeRecipe, String>,
    now: Instant,
) -> Option<String> {
    match recipe_of(&application.model, &application.arguments) {
        Err(reason) => Some(reason),
        Ok(recipe) if recipe.place.address != application.address => {
            Some("its model file names another Ray now than at the start".to_owned())
        }
        Ok(_) if now.saturating_duration_since(application.since) >= AWAITED_MAX => Some(format!(
            "its model is in Ray at {}, which has not answered for {} minutes",
            application.address,
            AWAITED_MAX.as_secs() / 60
        )),
        Ok(_) => None,
    }
}

/// Removes the application once no earlier process streams through it, and records that.
pub(super) fn give_up_awaited(
    writers: &ServeWriters,
    application: PendingApplication,
    reason: &str,
) {
    writers.spare(Streaming {
        found: found(
            &application.name,
            Some(application.model),
            application.replica,
            reason,
        ),
        writer: application.writer,
        name: application.name,
        replica: application.replica,
    });
}

/// The record of an application that is not adopted.
pub(crate) fn found(
    name: &str,
    model: Option<String>,
    replica: ReplicaId,
    reason: &str,
) -> UnadoptedEngine {
    UnadoptedEngine {
        model,
        replica: Some(replica),
        fate: Fate::Stopped,
        reason: format!("the application {name} of Ray Serve: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ray_serve::testing::{place, recipe};

    #[test]
    fn an_application_does_not_wait_forever_for_a_silent_ray() {
        let writers = ServeWriters::default();
        let (here, silent) = (place("http://here:8265"), place("http://silent:8265"));
        let awaiting = PendingApplication {
            address: silent.address.clone(),
            since: now(),
            model: "far".to_owned(),
            arguments: String::new(),
            writer: writers.writer_for(&here),
            name: "model-pool.lab.r1".to_owned(),
            replica: ReplicaId(1),
        };
        let recipe_of = |_: &str, _: &str| Ok(recipe(&silent));
        let nearly = awaiting.since + AWAITED_MAX - Duration::from_secs(1);
        assert_eq!(awaited_in_vain(&awaiting, &recipe_of, nearly), None);
        let late = awaiting.since + AWAITED_MAX;
        let reason = awaited_in_vain(&awaiting, &recipe_of, late).expect("it goes");
        assert!(reason.contains("for 60 minutes"), "{reason}");
        let moved = |_: &str, _: &str| Ok(recipe(&here));
        let reason = awaited_in_vain(&awaiting, &moved, nearly).expect("it goes");
        assert!(reason.contains("another Ray"), "{reason}");
    }
}
