//! Judges whether a ready engine is still alive, by a heartbeat to its health route, the age of its latest token while requests
//! wait, and one tiny request after long idleness. The caller acts on the verdict.
//!
//! One file because the three signs of life give one verdict.
//!
//! A busy engine that does not respond to health probes is alive for as long as tokens arrive. An engine with a healthy route is
//! dead if requests wait and no token arrives.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use ticks::Ticks;
use tokio::time::timeout;

use super::activity::{ActivityMeter, ActivitySample};
use super::probe as health;
use super::probe::is_success;
use crate::connection::Endpoint;
use catalog::Metrics;

/// Inputs and limits for watching one engine.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Counters of the requests to the engine.
    pub activity: Arc<ActivityMeter>,
    pub limits: LivenessLimits,
    /// The model's name in the engine, for the tiny request.
    pub model_name: String,
    /// The engine's own metrics.
    pub metrics: Option<Metrics>,
}

/// Time limits of silence before an engine counts as dead.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LivenessLimits {
    /// Interval between health probes.
    pub heartbeat: Duration,
    /// Later responses count as missing.
    pub heartbeat_timeout: Duration,
    /// Consecutive probes without a response after which an idle engine is dead.
    pub heartbeat_misses: u32,
    /// Maximum time without a token while a request that has received tokens waits.
    pub stall_after: Duration,
    /// Maximum time without a token while all waiting requests have received none yet: processing a prompt takes time.
    pub first_token_after: Duration,
    /// Idle time after which the engine is sent a request for one token; `None` disables it.
    pub idle_probe: Option<Duration>,
}

impl Default for LivenessLimits {
    fn default() -> LivenessLimits {
        LivenessLimits {
            heartbeat: Duration::from_secs(5),
            heartbeat_timeout: Duration::from_secs(2),
            heartbeat_misses: 3,
            stall_after: Duration::from_secs(60),
            first_token_after: Duration::from_secs(300),
            idle_probe: Some(Duration::from_secs(60)),
        }
    }
}

impl LivenessLimits {
    /// Interval at which the counters are read, which costs three atomic loads.
    fn look_every(&self) -> Duration {
        let shortest = self.heartbeat.min(self.stall_after).min(
            self.idle_probe
                .unwrap_or(self.first_token_after)
                .min(self.first_token_after),
        );
        (shortest / 5).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Interval between the starts of two probes. Shorter after a miss: the last of three misses ends within three heartbeats.
    fn pause(&self, misses: u32, hurried: bool) -> Duration {
        match (misses, hurried) {
            (_, true) => (self.heartbeat / 10).min(Duration::from_millis(500)),
            (0, false) => self.heartbeat,
            (_, false) => self.heartbeat.saturating_sub(self.heartbeat_timeout / 2),
        }
    }
}

/// The reason a health probe failed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Miss {
    Silent,
    /// The engine no longer listens. A busy engine would.
    Refused,
    Responded(u16),
}

/// The result of a request for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeResult {
    Works,
    /// The engine is alive but does not generate, or not from such a request.
    NotSo,
    /// A 5xx status, or a connection closed without a status.
    Broken(Option<u16>),
    Silent,
    /// The request could not be sent; the health route tells more.
    Unreachable,
}

/// Decides from the facts so far. Uses no clock and no connection.
#[derive(Debug, Default)]
struct Judge {
    limits: LivenessLimits,
    sample: ActivitySample,
    /// Total time that requests have waited since the last token.
    stall: Duration,
    idle: Duration,
    /// Time since the last good response of the health route.
    health_silence: Duration,
    misses: u32,
    refused: u32,
    last_miss: Option<u16>,
    /// A tiny request has succeeded, so the engine accepts its form.
    probe_worked: bool,
    /// Consecutive failed tiny requests.
    strikes: u32,
    /// Several consecutive requests failed.
    suspected: bool,
}

impl Judge {
    fn passed(&mut self, time: Duration, sample: ActivitySample) -> Option<String> {
        self.sample = sample;
        self.health_silence += time;
        if self.is_busy() {
            self.idle = Duration::ZERO;
            self.stall += time;
        } else {
            self.idle += time;
        }
        if sample.spoke {
            self.stall = Duration::ZERO;
            self.misses = 0;
            self.refused = 0;
        }
        self.verdict()
    }

    fn is_busy(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> u32 {
        self.sample.asking + self.sample.responding
    }

    fn good_health(&mut self) {
        self.health_silence = Duration::ZERO;
        self.misses = 0;
        self.refused = 0;
        self.last_miss = None;
    }

    fn bad_health(&mut self, miss: Miss) -> Option<String> {
        self.misses += 1;
        self.refused = match miss {
            Miss::Refused => self.refused + 1,
            _ => 0,
        };
        self.last_miss = match miss {
            Miss::Responded(status) => Some(status),
            _ => None,
        };
        self.verdict()
    }

    fn probed(&mut self, probed: ProbeResult, has_worked: bool, took: Duration) -> Option<String> {
        let suspected = std::mem::take(&mut self.suspected);
        match probed {
            ProbeResult::Works => {
                self.probe_worked = true;
                self.strikes = 0;
                self.stall = Duration::ZERO;
                None
            }
            ProbeResult::NotSo | ProbeResult::Unreachable => {
                self.strikes = 0;
                None
            }
            // Requests have arrived since: their tokens tell more.
            ProbeResult::Silent if self.is_busy() || self.idle < took / 2 => None,
            ProbeResult::Silent => Some(format!(
                "no token for {} after a probe for one token while idle, though its health route answers",
                text(took)
            )),
            ProbeResult::Broken(status) => {
                // The tiny request itself may be the cause, unless one has succeeded before, or no request ever has.
                let tells = self.probe_worked || suspected && !has_worked;
                self.strikes = if tells { self.strikes + 1 } else { 0 };
                self.suspected = suspected && self.strikes == 1;
                let what = match status {
                    Some(status) => format!("answers every request with {status}"),
                    None => "closes the connection on every request".to_owned(),
                };
                (self.strikes > 1).then(|| {
                    format!("it {what}, including the pool's probe for one token, though its health route answers")
                })
            }
        }
    }

    fn verdict(&self) -> Option<String> {
        let limits = &self.limits;
        let waiting = match self.waiting() {
            1 => "1 request waits".to_owned(),
            count => format!("{count} requests wait"),
        };
        if self.refused >= limits.heartbeat_misses {
            return Some(format!(
                "it no longer listens on its port: {} health probes in {} were refused",
                self.refused,
                text(self.health_silence)
            ));
        }
        if !self.is_busy() {
            return (self.misses >= limits.heartbeat_misses).then(|| match self.last_miss {
                Some(status) => {
                    format!(
                        "its health route has answered {status} for {}",
                        text(self.health_silence)
                    )
                }
                None => format!("answered no health probe for {}", text(self.health_silence)),
            });
        }
        let allowed = match self.sample.responding {
            0 => limits.first_token_after,
            _ => limits.stall_after,
        };
        if self.stall >= allowed {
            return Some(format!("no token for {} while {waiting}", text(self.stall)));
        }
        let silent = self.stall.min(self.health_silence);
        (self.misses > 0 && silent >= limits.stall_after).then(|| {
            format!(
                "neither a token nor a response from its health route for {} while {waiting}",
                text(silent)
            )
        })
    }

    /// Returns true if a tiny request is due.
    fn needs_probe(&self) -> bool {
        let idle_for_long = self
            .limits
            .idle_probe
            .is_some_and(|after| self.idle >= after);
        self.misses == 0 && (self.suspected || self.strikes > 0 || idle_for_long)
    }
}

fn text(duration: Duration) -> String {
    // Seconds are easier to read; below two seconds, milliseconds matter.
    match duration.as_secs() {
        0 | 1 => format!("{} ms", duration.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

type PendingProbe<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Watches a ready engine. Returns only when the engine is dead, with the reason as text.
pub(crate) async fn until_dead(endpoint: &Endpoint, ready_path: &str, watch: &Watch) -> String {
    let limits = &watch.limits;
    let mut judge = Judge {
        limits: limits.clone(),
        ..Judge::default()
    };
    let every = limits.look_every();
    let mut looks = Ticks::every(every);
    let mut looked = looks.tick().await;
    let mut ask_next = looked + limits.heartbeat;
    let mut hurried = false;
    let mut health: PendingProbe<Result<(), Miss>> = None;
    let mut probe: PendingProbe<ProbeResult> = None;
    let mut probe_began = looked;
    loop {
        let verdict = tokio::select! {
            now = looks.tick() => {
                // Caps the time: if the controller itself was suspended, the engine is not to blame.
                let passed = now.duration_since(looked).min(every * 3);
                looked = now;
                if watch.activity.is_resting() {
                    (health, probe) = (None, None);
                    judge = Judge { limits: limits.clone(), probe_worked: judge.probe_worked, ..Judge::default() };
                    watch.activity.look();
                    ask_next = now + limits.heartbeat;
                    continue;
                }
                if health.is_none() && now >= ask_next {
                    ask_next = now + limits.pause(judge.misses, hurried);
                    health = Some(ask(endpoint, ready_path, limits.heartbeat_timeout));
                }
                if probe.is_none() && judge.needs_probe() {
                    judge.idle = Duration::ZERO;
                    probe_began = now;
                    probe = Some(one_token(endpoint, &watch.model_name, limits.stall_after));
                }
                judge.passed(passed, watch.activity.look())
            }
            response = response_of(&mut health) => {
                health = None;
                match response {
                    Ok(()) => {
                        hurried = false;
                        judge.good_health();
                        None
                    }
                    Err(miss) => {
                        ask_next = ask_next.min(looked + limits.pause(judge.misses + 1, hurried));
                        judge.bad_health(miss)
                    }
                }
            }
            probed = response_of(&mut probe) => {
                probe = None;
                if probed == ProbeResult::Unreachable {
                    (hurried, ask_next) = (true, looked);
                }
                judge.probed(probed, watch.activity.has_worked(), probe_began.elapsed())
            }
            () = watch.activity.alarm() => {
                (hurried, ask_next) = (true, looked);
                judge.suspected = limits.idle_probe.is_some();
                None
            }
        };
        if let Some(reason) = verdict {
            return reason;
        }
    }
}

/// Pending forever while no request is in flight.
async fn response_of<T>(asking: &mut PendingProbe<T>) -> T {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn ask(
    endpoint: &Endpoint,
    path: &str,
    within: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), Miss>> + Send>> {
    let (endpoint, path) = (endpoint.clone(), path.to_owned());
    let is_remote = matches!(endpoint, Endpoint::Remote(_));
    Box::pin(async move {
        match timeout(within, health::get(&endpoint, &path)).await {
            Ok(Ok(response)) if is_success(response.status) => Ok(()),
            // An endpoint that rate-limits probes is alive.
            Ok(Ok(response)) if response.status == 429 && is_remote => Ok(()),
            Ok(Ok(response)) => Err(Miss::Responded(response.status)),
            Ok(Err(error)) if is_refusal(&*error) => Err(Miss::Refused),
            Ok(Err(_)) | Err(_) => Err(Miss::Silent),
        }
    })
}

/// A busy listener delays a connection; it does not refuse it.
fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        )
    })
}

/// Requests one token, as a chat and, if that is refused, as a completion.
fn one_token(
    endpoint: &Endpoint,
    model: &str,
    within: Duration,
) -> Pin<Box<dyn Future<Output = ProbeResult> + Send>> {
    let endpoint = endpoint.clone();
    let chat =
        json!({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "."}]});
    let completion = json!({"model": model, "max_tokens": 1, "prompt": "."});
    let both = [
        ("/v1/chat/completions", chat.to_string()),
        ("/v1/completions", completion.to_string()),
    ];
    Box::pin(async move {
        for (path, body) in both {
            match timeout(within, health::post(&endpoint, path, body)).await {
                Ok(Ok(response)) => match response.status {
                    200..=299 => return ProbeResult::Works,
                    400..=499 | 501 => {}
                    status => return ProbeResult::Broken(Some(status)),
                },
                Ok(Err(error)) if is_refusal(&*error) => return ProbeResult::Unreachable,
                Ok(Err(_)) => return ProbeResult::Broken(None),
                Err(_) => return ProbeResult::Silent,
            }
        }
        ProbeResult::NotSo
    })
}

#[cfg(test)]
mod tests;
