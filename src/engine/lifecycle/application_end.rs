//! The end of a Ray Serve application: it is found dead or gone, or the pool removes it and waits until Serve no longer lists it.

use std::time::Duration;

use ray_api::{ApplicationState, Removal, state_of};
use tokio::time::{sleep, timeout};

use super::remote::EndpointProblem;
use crate::connection::Endpoint;
use crate::failures::Failure;
use crate::guardians::{LogStream, ReplicaLog};
use crate::health::Watch;
use crate::health::liveness::until_dead;
use crate::launch::{ExitReport, Report};
use crate::ray_serve::ServeProgram;

/// Interval between queries while it leaves.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval between queries while it is ready. Its health route shows whether it responds.
const WATCH_EVERY: Duration = Duration::from_secs(5);
/// Consecutive queries without the application: Serve's controller may be restarting.
const ABSENT_MAX: u32 = 2;
/// Consecutive queries that show it unhealthy: Serve restarts it on its own, and has a minute for that.
const UNHEALTHY_MAX: u32 = 12;
/// Maximum pause between two attempts of a removal that fails.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time limit of a removal beyond the grace period. An interrupted write may bring the application back for 75 s, and Serve waits
/// 20 s for requests unless its options say otherwise.
pub const GONE_MAX: Duration = Duration::from_secs(120);
const STATUS: &str = "ray serve";

/// The end of a replica.
pub(crate) struct End {
    /// Ended by an order.
    pub requested: bool,
    pub was_ready: bool,
    /// The replica's failure, or its last report before the order.
    pub trouble: EndpointProblem,
    pub grace: Duration,
}

/// Returns once the ready application no longer responds, or Serve reports that it is gone.
pub(super) async fn until_ended(
    program: &ServeProgram,
    name: &str,
    endpoint: &Endpoint,
    watch: &Watch,
) -> EndpointProblem {
    tokio::select! {
        message = until_dead(endpoint, &program.recipe.health_path, watch) => EndpointProblem {
            failure: Failure::Unresponsive,
            message: format!("{endpoint}: {message}"),
        },
        trouble = until_taken_down(program, name) => trouble,
    }
}

async fn until_taken_down(program: &ServeProgram, name: &str) -> EndpointProblem {
    let (mut absent, mut unhealthy) = (0, 0);
    loop {
        sleep(WATCH_EVERY).await;
        let Ok(listing) = program.writer.look().await else {
            // An unknown state is not the end.
            continue;
        };
        match state_of(&listing, name) {
            ApplicationState::Absent | ApplicationState::Leaving => absent += 1,
            ApplicationState::Unhealthy { message } => {
                (absent, unhealthy) = (0, unhealthy + 1);
                if unhealthy >= UNHEALTHY_MAX {
                    return EndpointProblem {
                        failure: Failure::Unresponsive,
                        message: format!("Ray Serve reports it as unhealthy: {message}"),
                    };
                }
            }
            ApplicationState::Failed { message } => {
                return EndpointProblem {
                    failure: Failure::Crashed,
                    message,
                };
            }
            // Any write to Serve's list shows its applications as deploying for a short time.
            ApplicationState::Running | ApplicationState::Starting { .. } => {
                (absent, unhealthy) = (0, 0);
            }
        }
        if absent >= ABSENT_MAX {
            return EndpointProblem {
                failure: Failure::Crashed,
                message: format!(
                    "another program has removed the application {name} from Ray Serve"
                ),
            };
        }
    }
}

/// Removes the application, waits until it is gone, and reports the exit.
pub(crate) async fn finish(
    program: &ServeProgram,
    name: &str,
    log: &ReplicaLog,
    ended: End,
    report: &impl Fn(Report),
) {
    let End {
        requested,
        was_ready,
        trouble,
        grace,
    } = ended;
    let message = log.masked(&trouble.message);
    if !requested {
        log.push(LogStream::Stderr, &message);
        if was_ready {
            // No request should be sent to it while it is being removed.
            let message = trouble.failure.tell(&message, STATUS);
            report(Report::Ended { message });
        }
    }
    take_down(program, name, grace.saturating_add(GONE_MAX), requested).await;
    report(Report::Exited(ExitReport {
        requested,
        status: STATUS.to_owned(),
        last_output: message,
        oom: None,
        failure: trouble.failure,
    }));
}

/// Returns when Serve no longer lists the application and no write can bring it back, or when that is still unknown after `within`;
/// the writer then continues the removal. With `waits`, an order waits for the end. Otherwise the model's requests wait for the
/// report, and the pool holds no memory for the replica: once only time can show that the application is gone, the rest is left to
/// the writer.
async fn take_down(program: &ServeProgram, name: &str, within: Duration, waits: bool) {
    let mut last = String::new();
    let gone = async {
        let mut pause = LOOK_EVERY;
        loop {
            let removed = program.writer.remove(name).await;
            pause = match removed {
                Ok(_) => LOOK_EVERY,
                Err(_) => (pause * 2).min(PAUSE_MAX),
            };
            let is_known = matches!(removed, Ok(Removal::Leaving));
            last = match removed {
                Ok(Removal::Gone) => return true,
                Ok(Removal::Leaving) => "it is being removed".to_owned(),
                Ok(Removal::InDoubt) => {
                    "Ray may still carry out an interrupted write, and start it".to_owned()
                }
                Err(error) => error.to_string(),
            };
            if !waits && !is_known {
                return false;
            }
            sleep(pause).await;
        }
    };
    let is_gone = timeout(within, gone).await.unwrap_or(false);
    if !is_gone {
        program.writer.leave(name);
        tracing::error!(
            "it is unknown whether the application {name} is gone from Ray Serve, where it may hold GPUs: {last}; the pool tries to remove it until it is gone"
        );
    }
}

#[cfg(test)]
mod tests;
