//! How far one application is, by its own status and those of its deployments and replicas. The status of an application is
//! not enough: `RUNNING` may have no replica, and an impossible request for GPUs stays `DEPLOYING` for ever.

use super::applications::{Application, Deployment, Listing};
use super::text::{last_line, plain};

/// Of a traceback, so many characters are a reason; the last ones count.
const REASON_CHARACTERS: usize = 1200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationState {
    /// Serve does not list it.
    Absent,
    Leaving,
    Starting {
        /// For people.
        stage: String,
        percent: Option<u8>,
    },
    Running,
    /// It was running; Serve tries again by itself, without end.
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

/// One scaled to zero counts as not running: Serve would let its requests wait without an end.
fn all_run(application: &Application) -> bool {
    let runs = |it: &Deployment| it.replicas.iter().any(|replica| replica.state == "RUNNING");
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
        .filter_map(|it| it.message.as_deref())
        .find(|it| !it.trim().is_empty());
    let stage = match (target, placed) {
        (0, _) => "starting: Ray builds the application".to_owned(),
        (_, 0) => match message {
            Some(message) => format!("starting: Ray has not placed it: {}", last_line(message)),
            None => "starting: Ray has not placed it yet".to_owned(),
        },
        _ => format!("loading, {running} of {target} replicas of its deployments run"),
    };
    // A replica that has a place is half of the way.
    let halves = (placed + running).min(2 * target);
    let percent = (target > 0).then(|| (halves * 100 / (2 * target)).min(99) as u8);
    ApplicationState::Starting { stage, percent }
}

/// The reason: that of a deployment that failed says more than the application's own.
fn message_of(application: &Application) -> String {
    let failed = application
        .deployments
        .iter()
        .filter(|(_, it)| it.status != "HEALTHY");
    let messages: Vec<String> = failed
        .filter_map(|(name, it)| {
            let message = shortened(it.message.as_deref()?)?;
            Some(format!("{name}: {message}"))
        })
        .collect();
    if !messages.is_empty() {
        return messages.join("; ");
    }
    let own = application.message.as_deref().and_then(shortened);
    own.unwrap_or_else(|| "Ray gives no reason".to_owned())
}

/// Short messages as they are, without colours; of long ones the end, where Python writes the cause.
fn shortened(message: &str) -> Option<String> {
    let text = plain(message);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.chars().all(|it| "^~ ".contains(it)))
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
