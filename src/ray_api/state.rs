//! The progress of an application, derived from its own status and the statuses of its deployments and replicas. The application's
//! status is not enough: `RUNNING` may have no replica, and an impossible request for GPUs stays `DEPLOYING` forever.

use super::applications::{Application, Deployment, Listing};
use super::text::{last_line, plain};

/// Maximum number of characters of a traceback in a reason, counted from its end.
const REASON_CHARACTERS: usize = 1200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationState {
    /// Serve does not list the application.
    Absent,
    Leaving,
    Starting {
        /// The stage, for users.
        stage: String,
        percent: Option<u8>,
    },
    Running,
    /// The application was running. Serve retries indefinitely.
    Unhealthy {
        message: String,
    },
    /// Serve has given up.
    Failed {
        message: String,
    },
}

pub fn state_of(listing: &Listing, name: &str) -> ApplicationState {
    let Some(application) = listing.applications.get(name) else {
        return ApplicationState::Absent;
    };
    match application.status.as_str() {
        "DELETING" => ApplicationState::Leaving,
        "DEPLOY_FAILED" => ApplicationState::Failed {
            message: message_of(application),
        },
        "UNHEALTHY" => ApplicationState::Unhealthy {
            message: message_of(application),
        },
        "RUNNING" if all_run(application) => ApplicationState::Running,
        _ => starting(application),
    }
}

/// A deployment scaled to zero counts as not running: Serve would let its requests wait indefinitely.
fn all_run(application: &Application) -> bool {
    let runs = |deployment: &Deployment| {
        deployment
            .replicas
            .iter()
            .any(|replica| replica.state == "RUNNING")
    };
    application.deployments.values().all(runs)
}

fn starting(application: &Application) -> ApplicationState {
    let (mut target, mut placed, mut running) = (0, 0, 0);
    for deployment in application.deployments.values() {
        target += u64::from(deployment.target_num_replicas.unwrap_or(1)).max(1);
        for replica in &deployment.replicas {
            placed += u64::from(replica.node_id.is_some());
            running += u64::from(replica.state == "RUNNING");
        }
    }
    let messages = application.deployments.values();
    let message = messages
        .filter_map(|deployment| deployment.message.as_deref())
        .find(|message| !message.trim().is_empty());
    let stage = match (target, placed) {
        (0, _) => "starting: Ray builds the application".to_owned(),
        (_, 0) => match message {
            Some(message) => format!("starting: Ray has not placed it: {}", last_line(message)),
            None => "starting: Ray has not placed it yet".to_owned(),
        },
        _ => format!("loading, {running} of {target} replicas of its deployments run"),
    };
    // A placed replica counts as half done.
    let halves = (placed + running).min(2 * target);
    let percent = (target > 0).then(|| (halves * 100 / (2 * target)).min(99) as u8);
    ApplicationState::Starting { stage, percent }
}

/// The message of a failed deployment, which says more than the application's own.
fn message_of(application: &Application) -> String {
    let failed = application
        .deployments
        .iter()
        .filter(|(_, deployment)| deployment.status != "HEALTHY");
    let messages: Vec<String> = failed
        .filter_map(|(name, deployment)| {
            let message = shortened(deployment.message.as_deref()?)?;
            Some(format!("{name}: {message}"))
        })
        .collect();
    if !messages.is_empty() {
        return messages.join("; ");
    }
    let own = application.message.as_deref().and_then(shortened);
    own.unwrap_or_else(|| "Ray gives no reason".to_owned())
}

/// A short message without colours, or the end of a long one, where Python writes the cause.
fn shortened(message: &str) -> Option<String> {
    let text = plain(message);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.chars().all(|letter| "^~ ".contains(letter)))
        .collect();
    let letters: Vec<char> = lines.join("; ").chars().collect();
    let skipped = letters.len().saturating_sub(REASON_CHARACTERS);
    let end: String = letters[skipped..].iter().collect();
    match (end.is_empty(), skipped) {
        (true, _) => None,
        (false, 0) => Some(end),
        (false, _) => Some(format!("… {end}")),
    }
}

#[cfg(test)]
mod tests;
