//! Judges the load path: finds work that is due and not done, although the process responds and its health route is green. Pure;
//! `watch_task` supplies the state to judge.

use std::collections::BTreeMap;

use pool::{ReplicaId, Span, Time};

/// The loop normally responds within microseconds.
const LOOP_MAX: Span = Span::from_secs(5);
/// A passed deadline is acted on in the same turn, and a killed load is gone within milliseconds.
const DEADLINE_SLACK: Span = Span::from_secs(5);
/// A request that waits while a seat is free is normally served in the next turn.
const SERVABLE_MAX: Span = Span::from_secs(5);
/// SIGKILL follows the grace period. A process that still exists this much later hangs in the kernel.
const AFTER_GRACE_MAX: Span = Span::from_secs(15);
/// A load is reported if it shows no progress for this long, and has taken twice the expected time. Its deadline is checked
/// separately.
const PROGRESS_MAX: Span = Span::from_secs(60);

/// The state at one point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    pub now: Time,
    /// Age of the oldest message to the loop without a response.
    pub without_response: Option<Span>,
    pub replicas: Vec<ReplicaSample>,
    /// Models with waiting requests and a ready replica that has a free seat.
    pub servable: Vec<ServableReplica>,
    /// Ray Serve applications that may hold GPUs although their replicas have ended.
    pub left_over: usize,
    /// Ray clusters that have not responded since the start.
    pub silent_rays: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct ServableReplica {
    pub model: String,
    pub replica: ReplicaId,
    /// Total number of requests that got a seat. The queue moves while this rises.
    pub seated: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplicaSample {
    pub model: String,
    pub replica: ReplicaId,
    pub state: WatchedState,
    /// Time in this state.
    pub age: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum WatchedState {
    Launching {
        deadline: Span,
        /// Duration of the model's recent loads.
        expected: Span,
        /// Time since the stage or its percentage last changed.
        silent: Span,
        /// For example `loading 40 %`.
        stage: String,
    },
    Stopping {
        grace: Span,
    },
    /// Found dead, and does not end.
    Dead,
}

/// Work that is due and not done, or a load without progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// True if the load path is stuck. Other findings are only reported.
    pub stuck: bool,
    /// Delay beyond the limit.
    pub late: Span,
    /// A description with the model and the time.
    pub what: String,
}

/// Result of the last check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadPath {
    pub findings: Vec<Finding>,
    /// Ray Serve applications that may hold GPUs although their replicas have ended.
    pub left_over: usize,
    /// Ray clusters that have not responded since the start.
    pub silent_rays: usize,
}

impl LoadPath {
    /// The stuck finding with the longest delay.
    pub fn stuck(&self) -> Option<&Finding> {
        let stuck = self.findings.iter().filter(|finding| finding.stuck);
        stuck.max_by_key(|finding| finding.late)
    }
}

/// Keeps the state needed across checks.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// Start of the wait, with the number of requests seated then.
    servable_since: BTreeMap<String, (Time, u64)>,
}

impl Watchdog {
    pub fn judge(&mut self, picture: &Observation) -> LoadPath {
        let mut findings = Vec::new();
        let mut stuck = |age: Span, most: Span, what: &dyn Fn() -> String| {
            if age > most {
                findings.push(Finding {
                    stuck: true,
                    late: Span(age.0 - most.0),
                    what: what(),
                });
            }
        };
        if let Some(behind) = picture.without_response {
            stuck(behind, LOOP_MAX, &|| {
                format!("the control loop has not answered for {behind}")
            });
        }
        for sample in &picture.replicas {
            let (name, age) = (
                format!("{} of {}", sample.replica, sample.model),
                sample.age,
            );
            match &sample.state {
                WatchedState::Launching { deadline, .. } => {
                    let most = *deadline + DEADLINE_SLACK;
                    stuck(age, most, &|| {
                        format!(
                            "{name} has been loading for {age}, past its deadline of {deadline}"
                        )
                    });
                }
                WatchedState::Stopping { grace } => {
                    let most = *grace + AFTER_GRACE_MAX;
                    stuck(age, most, &|| {
                        format!(
                            "{name} was ordered to stop {age} ago and is still there, {grace} after which it was killed; a device driver may hang"
                        )
                    });
                }
                WatchedState::Dead => stuck(age, AFTER_GRACE_MAX, &|| {
                    format!(
                        "{name} was found dead {age} ago and does not end; a device driver may hang"
                    )
                }),
            }
        }
        let before = std::mem::take(&mut self.servable_since);
        for ServableReplica {
            model,
            replica,
            seated,
        } in &picture.servable
        {
            let known = before.get(model).filter(|(_, then)| then == seated);
            let since = known.map_or(picture.now, |(since, _)| *since);
            self.servable_since.insert(model.clone(), (since, *seated));
            let age = picture.now.since(since);
            stuck(age, SERVABLE_MAX, &|| {
                format!(
                    "requests for {model} have waited for {age} though {replica} has a free seat"
                )
            });
        }
        findings.extend(picture.replicas.iter().filter_map(slow));
        LoadPath {
            findings,
            left_over: picture.left_over,
            silent_rays: picture.silent_rays,
        }
    }
}

fn slow(sample: &ReplicaSample) -> Option<Finding> {
    let WatchedState::Launching {
        expected,
        silent,
        stage,
        ..
    } = &sample.state
    else {
        return None;
    };
    let most = PROGRESS_MAX.max(*expected + *expected);
    (*silent > most).then(|| Finding {
        stuck: false,
        late: Span(silent.0 - most.0),
        what: format!(
            "the load of {} ({}) has made no progress for {silent}, at {stage}",
            sample.model, sample.replica
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Span {
        Span::from_secs(seconds)
    }

    fn replica(state: WatchedState, age: u64) -> Observation {
        Observation {
            replicas: vec![ReplicaSample {
                model: "m".to_owned(),
                replica: ReplicaId(3),
                state,
                age: seconds(age),
            }],
            ..Observation::default()
        }
    }

    fn loading(age: u64, silent: u64) -> Observation {
        let state = WatchedState::Launching {
            deadline: seconds(300),
            expected: seconds(40),
            silent: seconds(silent),
            stage: "loading 40 %".to_owned(),
        };
        replica(state, age)
    }

    fn found(picture: &Observation) -> Vec<(bool, u64)> {
        let path = Watchdog::default().judge(picture);
        let found = path.findings.iter();
        found
            .map(|finding| (finding.stuck, finding.late.0 / 1000))
            .collect()
    }

    #[test]
    fn a_load_is_stuck_only_after_its_deadline() {
        assert_eq!(found(&loading(305, 1)), []);
        assert_eq!(found(&loading(315, 1)), [(true, 10)]);
    }

    #[test]
    fn a_load_without_progress_is_reported_but_does_not_make_the_pool_unready() {
        assert_eq!(found(&loading(200, 80)), []);
        assert_eq!(found(&loading(200, 90)), [(false, 10)]);
        let path = Watchdog::default().judge(&loading(200, 90));
        assert_eq!(path.stuck(), None);
        assert!(path.findings[0].what.contains("no progress for"));
    }

    #[test]
    fn an_engine_that_exceeds_its_stop_grace_is_stuck() {
        let stopping = |age| replica(WatchedState::Stopping { grace: seconds(10) }, age);
        assert_eq!(found(&stopping(25)), []);
        assert_eq!(found(&stopping(26)), [(true, 1)]);
        assert_eq!(found(&replica(WatchedState::Dead, 20)), [(true, 5)]);
    }

    #[test]
    fn an_unresponsive_loop_is_stuck() {
        let without_response = |age| Observation {
            without_response: Some(seconds(age)),
            ..Observation::default()
        };
        assert_eq!(found(&without_response(5)), []);
        assert_eq!(found(&without_response(9)), [(true, 4)]);
    }

    #[test]
    fn a_request_waiting_five_seconds_next_to_a_free_seat_is_stuck() {
        let mut watchdog = Watchdog::default();
        let mut seated = 0;
        let mut at = |second: u64, servable: bool, new: u64| {
            seated += new;
            let servable = servable.then(|| ServableReplica {
                model: "m".to_owned(),
                replica: ReplicaId(1),
                seated,
            });
            let picture = Observation {
                now: Time(second * 1000),
                servable: servable.into_iter().collect(),
                ..Observation::default()
            };
            watchdog.judge(&picture).stuck().is_some()
        };
        assert!(!at(0, true, 0) && !at(5, true, 0));
        assert!(!at(6, false, 0), "a request was served");
        assert!(!at(7, true, 0) && !at(12, true, 0));
        assert!(!at(13, true, 1), "the queue moves");
        assert!(!at(18, true, 0) && at(19, true, 0));
    }

    #[test]
    fn the_watchdog_reports_the_longest_delay() {
        let mut picture = loading(400, 1);
        picture.without_response = Some(seconds(30));
        let path = Watchdog::default().judge(&picture);
        let worst = path.stuck().expect("stuck");
        assert!(
            worst.what.starts_with("r3 of m has been loading"),
            "{worst:?}"
        );
    }
}
