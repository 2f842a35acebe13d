//! Runs a replica that is an application of Ray Serve: deploys it, reports it ready when Serve says that it runs and it responds
//! through Serve's proxy, watches it, and removes it. A dashboard that does not respond changes nothing: only a list from Serve
//! without the application proves that it is gone.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ray_api::{ApplicationState, RayError, state_of};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::application_adoption::AdoptedApplication;
use super::application_end::{End, finish, until_ended};
use super::remote::{EndpointProblem, QUESTION_MAX, read_key};
use crate::connection::Endpoint;
use crate::failures::Failure;
use crate::failures::explain::explain;
use crate::guardians::{LaunchFacts, LogStream, ReplicaLog};
use crate::health::probe::is_success;
use crate::health::{Watch, probe as health};
use crate::launch::{Launch, Report};
use crate::ray_serve::{ServeProgram, application};

/// Interval between queries while it starts. Serve usually responds within milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Probes without a connection, for an application that runs: Serve's proxies start after it.
const ATTEMPTS_MAX: u32 = 60;
/// The stage of a load that waits for earlier applications to be judged.
const JUDGED_FIRST: &str =
    "starting: Ray responds again; applications of an earlier process are checked first";

/// The last progress report of the replica.
#[derive(Default)]
struct Progress {
    last: String,
    percent: Option<u8>,
    was_ready: bool,
}

impl Progress {
    fn tell(
        &mut self,
        stage: String,
        percent: Option<u8>,
        log: &ReplicaLog,
        report: &impl Fn(Report),
    ) {
        let stage = log.masked(&stage);
        if self.last == stage && self.percent == percent {
            return;
        }
        log.push(LogStream::Stdout, &stage);
        report(Report::Progress {
            stage: health::brief(&stage),
            percent,
        });
        (self.last, self.percent) = (stage, percent);
    }

    /// The end of the replica, by its own failure or by an order with this grace period.
    fn at_end(self, ended: Result<EndpointProblem, Duration>) -> End {
        let failure = match (self.was_ready, self.last.is_empty()) {
            (true, _) => Failure::Crashed,
            (false, true) => Failure::TimedOut,
            (false, false) => Failure::NeverReady,
        };
        let requested = ended.is_err();
        let (trouble, grace) = match ended {
            Ok(trouble) => (trouble, Duration::ZERO),
            Err(grace) => {
                let message = self.last;
                (EndpointProblem { failure, message }, grace)
            }
        };
        End {
            requested,
            was_ready: self.was_ready,
            trouble,
            grace,
        }
    }
}

/// Runs the replica until its application is gone, and returns after the last report.
pub(crate) async fn run(
    launch: Launch,
    program: &ServeProgram,
    kept: &LaunchFacts,
    log: Arc<ReplicaLog>,
    mut stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report),
) {
    let name = application::name(&program.recipe.place, launch.replica);
    let mut progress = Progress::default();
    let ended = {
        let load = Load {
            launch: &launch,
            program,
            name: &name,
            arguments: &kept.arguments,
            log: &log,
        };
        let mut life = pin!(load.live(&mut progress, &report));
        tokio::select! {
            biased;
            grace = &mut stop => Err(grace.unwrap_or_default()),
            trouble = &mut life => Ok(trouble),
        }
    };
    let ended = progress.at_end(ended);
    finish(program, &name, &log, ended, &report).await;
}

/// Runs an application of an earlier controller, which is already ready, until it is gone.
pub async fn run_application(
    adopted: AdoptedApplication,
    watch: Watch,
    log: Arc<ReplicaLog>,
    mut stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report) + Send + Sync + 'static,
) {
    let AdoptedApplication {
        program,
        name,
        endpoint,
        ..
    } = adopted;
    let progress = Progress {
        was_ready: true,
        ..Progress::default()
    };
    let ended = {
        let mut life = pin!(until_ended(&program, &name, &endpoint, &watch));
        tokio::select! {
            biased;
            grace = &mut stop => Err(grace.unwrap_or_default()),
            trouble = &mut life => Ok(trouble),
        }
    };
    let ended = progress.at_end(ended);
    finish(&program, &name, &log, ended, &report).await;
}

/// A load in progress.
struct Load<'a> {
    launch: &'a Launch,
    program: &'a ServeProgram,
    name: &'a str,
    arguments: &'a str,
    log: &'a ReplicaLog,
}

impl Load<'_> {
    /// Runs from the deployment to the end of a ready application. Returns the reason it cannot be used.
    async fn live(&self, progress: &mut Progress, report: &impl Fn(Report)) -> EndpointProblem {
        #[expect(
            clippy::disallowed_methods,
            reason = "the start of this application's own load"
        )]
        let started = Instant::now();
        let endpoint = match self.load(progress, report).await {
            Ok(endpoint) => endpoint,
            Err(trouble) => return trouble,
        };
        self.log
            .push(LogStream::Stdout, &format!("{endpoint} answers"));
        progress.was_ready = true;
        progress.last.clear();
        report(Report::Ready {
            took: started.elapsed(),
        });
        until_ended(self.program, self.name, &endpoint, &self.launch.watch).await
    }

    async fn load(
        &self,
        progress: &mut Progress,
        report: &impl Fn(Report),
    ) -> Result<Endpoint, EndpointProblem> {
        let recipe = &self.program.recipe;
        let key = read_key(recipe.key.as_ref())
            .await
            .map_err(|message| EndpointProblem {
                failure: Failure::KeyRefused,
                message,
            })?;
        let waits = self.program.writer.wait(self.name);
        self.until_judged(progress, report).await;
        self.deploy(progress, report).await?;
        drop(waits);
        let mut reached: Option<Endpoint> = None;
        let mut attempts = 0;
        loop {
            let (stage, percent) = match self.program.writer.look().await {
                Err(error) => (unknown(&error), None),
                Ok(listing) => match state_of(&listing, self.name) {
                    ApplicationState::Running => {
                        let endpoint = reached.get_or_insert_with(|| {
                            let port = listing.proxy_port();
                            let endpoint =
                                application::endpoint(recipe, self.name, port, key.clone());
                            report(Report::Reached {
                                endpoint: endpoint.clone(),
                            });
                            endpoint
                        });
                        match self.probe(endpoint, &mut attempts).await? {
                            None => return Ok(endpoint.clone()),
                            Some(message) => (format!("starting: {message}"), Some(99)),
                        }
                    }
                    ApplicationState::Starting { stage, percent } => (stage, percent),
                    ApplicationState::Failed { message } => {
                        return Err(EndpointProblem {
                            failure: kind_of(&message),
                            message: self.log.masked(&message),
                        });
                    }
                    ApplicationState::Unhealthy { message } => (message, None),
                    // Another program has written a list without the application.
                    ApplicationState::Absent | ApplicationState::Leaving => {
                        self.deploy(progress, report).await?;
                        continue;
                    }
                },
            };
            progress.tell(stage, percent, self.log, report);
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until applications of an earlier process in a Ray cluster that was silent at the start have been judged: they may
    /// serve this model. If Ray refuses the query, the deployment follows and reports the reason; but a cluster that was used
    /// before has had Serve, and may still be starting.
    async fn until_judged(&self, progress: &mut Progress, report: &impl Fn(Report)) {
        let writer = &self.program.writer;
        while writer.is_held() {
            let message = match writer.look().await {
                Ok(_) => {
                    writer.hear();
                    JUDGED_FIRST.to_owned()
                }
                Err(error) if error.is_unknown() => unknown(&error),
                Err(error @ RayError::Refused { .. }) if writer.is_used() => unknown(&error),
                Err(_) => return,
            };
            progress.tell(message, None, self.log, report);
            sleep(LOOK_EVERY).await;
        }
    }

    /// Adds the application to Serve's list. Retries for as long as the load may take.
    async fn deploy(
        &self,
        progress: &mut Progress,
        report: &impl Fn(Report),
    ) -> Result<(), EndpointProblem> {
        let model = &self.launch.model_name;
        let config = application::config(&self.program.recipe, self.name, model, self.arguments);
        let config = config.map_err(|error| EndpointProblem {
            failure: Failure::WrongArguments,
            message: error.to_string(),
        })?;
        loop {
            let message = match self.program.writer.add(self.name, config.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_unknown() => unknown(&error),
                Err(error) => {
                    let failure = match error {
                        RayError::Denied { .. } => Failure::KeyRefused,
                        // The database may come back.
                        RayError::Record { .. } | RayError::Deposed { .. } => Failure::Crashed,
                        _ => Failure::WrongArguments,
                    };
                    return Err(EndpointProblem {
                        failure,
                        message: self.log.masked(&error.to_string()),
                    });
                }
            };
            progress.tell(message, None, self.log, report);
            sleep(LOOK_EVERY).await;
        }
    }

    /// Probes the health route through Serve's proxy. Returns `None` after a 2xx response, or the text of a problem that may pass.
    async fn probe(
        &self,
        endpoint: &Endpoint,
        attempts: &mut u32,
    ) -> Result<Option<String>, EndpointProblem> {
        let path = &self.program.recipe.health_path;
        let message = match timeout(QUESTION_MAX, health::get(endpoint, path)).await {
            Ok(Ok(response)) if is_success(response.status) => return Ok(None),
            Ok(Ok(response)) if [401, 403].contains(&response.status) => {
                return Err(EndpointProblem {
                    failure: Failure::KeyRefused,
                    message: format!(
                        "{endpoint}{path} answers {}; correct the key that engine_config.api_key_file, api_key_env or headers name, then load the model again",
                        response.status
                    ),
                });
            }
            // The proxy learns of the route shortly after the application runs.
            Ok(Ok(response)) => {
                *attempts = 0;
                return Ok(Some(format!(
                    "{endpoint}{path} answers {}; engine_config.health_path has to be a route of the application",
                    response.status
                )));
            }
            Ok(Err(error)) => format!("{endpoint}: {}", explain(&*error)),
            Err(_) => format!("{endpoint} has not answered for {QUESTION_MAX:?}"),
        };
        *attempts += 1;
        if *attempts < ATTEMPTS_MAX {
            Ok(Some(message))
        } else {
            Err(EndpointProblem {
                failure: Failure::Unreachable,
                message: format!(
                    "{message}; the application runs, and Serve's HTTP proxy cannot be reached: name it in engine_config.proxy, or start Serve so that it listens for this machine (http_options.host)"
                ),
            })
        }
    }
}

fn unknown(error: &RayError) -> String {
    format!("starting: {error}; its progress is unknown")
}

/// The kind of failure shown by Serve's message.
fn kind_of(message: &str) -> Failure {
    let message_lower = message.to_lowercase();
    let has = |part: &str| message_lower.contains(part);
    if has("out of memory") {
        Failure::OutOfMemory
    } else if has("no module named") {
        Failure::MissingLibrary
    } else {
        crate::failures::failure::classify(message)
    }
}
