//! Runs a replica without a process: its endpoint is known immediately, it is ready when its health route responds, and it is
//! watched until it is removed. Its key is read when the replica starts and never shown.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Endpoint, Remote};
use crate::failures::Failure;
use crate::failures::explain::explain;
use crate::guardians::{LogStream, ReplicaLog};
use crate::health::liveness::until_dead;
use crate::health::probe as health;
use crate::health::probe::is_success;
use crate::launch::{ExitReport, Launch, Report};
use catalog::{KeySource, RemoteRecipe};

/// A remote health route may have to query other servers.
pub(crate) const QUESTION_MAX: Duration = Duration::from_secs(15);
/// Attempts without a connection before the endpoint counts as down.
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

/// The reason the endpoint cannot be used.
pub(crate) struct EndpointProblem {
    pub failure: Failure,
    pub message: String,
}

/// Runs a replica without a process: known immediately, ready when the health route responds with 2xx, gone as soon as `stop`
/// orders it.
pub(crate) async fn run(
    launch: Launch,
    recipe: &RemoteRecipe,
    log: Arc<ReplicaLog>,
    mut stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report),
) {
    let mut last = String::new();
    let mut was_ready = false;
    let ended = {
        let life = live(&launch, recipe, &log, &report, &mut last, &mut was_ready);
        let mut life = pin!(life);
        tokio::select! {
            biased;
            _ = &mut stop => None,
            trouble = &mut life => Some(trouble),
        }
    };
    let requested = ended.is_none();
    let trouble = ended.unwrap_or_else(|| EndpointProblem {
        failure: match (was_ready, last.is_empty()) {
            (true, _) => Failure::Crashed,
            (false, true) => Failure::TimedOut,
            (false, false) => Failure::NeverReady,
        },
        message: std::mem::take(&mut last),
    });
    if !requested {
        log.push(LogStream::Stderr, &trouble.message);
    }
    report(Report::Exited(ExitReport {
        requested,
        status: "remote".to_owned(),
        last_output: trouble.message,
        oom: None,
        failure: trouble.failure,
    }));
}

async fn live(
    launch: &Launch,
    recipe: &RemoteRecipe,
    log: &ReplicaLog,
    report: &impl Fn(Report),
    last: &mut String,
    was_ready: &mut bool,
) -> EndpointProblem {
    let key = match read_key(recipe.key.as_ref()).await {
        Ok(key) => key,
        Err(message) => {
            let failure = Failure::KeyRefused;
            return EndpointProblem { failure, message };
        }
    };
    let remote = Arc::new(Remote::new(recipe, key));
    let endpoint = Endpoint::Remote(Arc::clone(&remote));
    report(Report::Reached {
        endpoint: endpoint.clone(),
    });
    #[expect(
        clippy::disallowed_methods,
        reason = "the start of this endpoint's own load"
    )]
    let started = Instant::now();
    let mut attempts = 0;
    loop {
        let probe = health::get(&endpoint, &recipe.health_path);
        let message = match timeout(QUESTION_MAX, probe).await {
            Ok(Ok(response)) if is_success(response.status) => break,
            Ok(Ok(response)) => {
                attempts = 0;
                let at = format!("{remote}{}", recipe.health_path);
                match verdict(response.status, &at, recipe.key.as_ref()) {
                    Ok(message) => message,
                    Err(trouble) => return trouble,
                }
            }
            Ok(Err(error)) => {
                attempts += 1;
                format!("{remote}: {}", explain(&*error))
            }
            Err(_) => {
                attempts += 1;
                format!("{remote} has not answered for {QUESTION_MAX:?}")
            }
        };
        if attempts >= ATTEMPTS_MAX {
            let failure = Failure::Unreachable;
            return EndpointProblem { failure, message };
        }
        if *last != message {
            log.push(LogStream::Stderr, &message);
            let stage = health::brief(&message);
            report(Report::Progress {
                stage,
                percent: None,
            });
            *last = message;
        }
        sleep(PAUSE).await;
    }
    log.push(LogStream::Stdout, &format!("{remote} answers"));
    *was_ready = true;
    last.clear();
    report(Report::Ready {
        took: started.elapsed(),
    });
    let message = until_dead(&endpoint, &recipe.health_path, &launch.watch).await;
    let failure = Failure::Unresponsive;
    let message = format!("{remote}: {message}");
    EndpointProblem { failure, message }
}

/// Judges a response other than 2xx. Returns the text of a problem that may pass, or an error if waiting does not help.
fn verdict(status: u16, at: &str, key: Option<&KeySource>) -> Result<String, EndpointProblem> {
    let lasting = |failure, message| Err(EndpointProblem { failure, message });
    match status {
        401 | 403 => {
            let what = match key {
                None => "without a key; set engine_config.api_key_file or api_key_env".to_owned(),
                Some(key) => format!(
                    "with the key of {}; check that it is valid for this endpoint, then load the model again",
                    source_of(key)
                ),
            };
            let message = format!("{at} answers {status} {what}");
            lasting(Failure::KeyRefused, message)
        }
        300..=399 => lasting(
            Failure::WrongArguments,
            format!(
                "{at} answers {status}, a redirect, which the pool does not follow: set engine_config.url to the final address"
            ),
        ),
        404 | 405 | 410 => lasting(
            Failure::WrongArguments,
            format!(
                "{at} answers {status}: correct engine_config.url or engine_config.health_path"
            ),
        ),
        status => Ok(format!("{at} answers {status}")),
    }
}

fn source_of(key: &KeySource) -> String {
    match key {
        KeySource::Environment(name) => format!("the variable {name} (engine_config.api_key_env)"),
        KeySource::File(path) => {
            format!("the file {} (engine_config.api_key_file)", path.display())
        }
    }
}

/// The key, or the problem with its source. The text contains no part of the key.
pub(super) async fn read_key(source: Option<&KeySource>) -> Result<Option<String>, String> {
    let Some(source) = source else {
        return Ok(None);
    };
    let at = source_of(source);
    let text = match source {
        KeySource::Environment(name) => std::env::var(name).map_err(|_| {
            format!("{at} is not set in the pool's environment; set it and restart")
        })?,
        KeySource::File(path) => {
            let unreadable = |error: io::Error| format!("{at} cannot be read: {error}");
            let length = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
            if length > KEY_FILE_BYTES_MAX {
                return Err(format!("{at} has {length} bytes, too many for a key"));
            }
            tokio::fs::read_to_string(path).await.map_err(unreadable)?
        }
    };
    let key = text.trim();
    if key.is_empty() {
        return Err(format!("{at} is empty; write the key there"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{at} is not a plain key: it contains spaces, several lines or non-ASCII characters"
        ));
    }
    Ok(Some(key.to_owned()))
}
