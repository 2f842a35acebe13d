//! The progress of a load, from one view of the model. Pure.

use crate::render::models::fetched;
use crate::render::quantity::milliseconds;
use crate::responses::{ModelView, ReplicaView};
use crate::state::LoadState;
use crate::style::clean;

/// The progress of a load at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Progress of all wanted replicas together, for the bar: measured, or estimated from the expected time.
    pub percent: u64,
    /// The text next to the bar: `40 %`, `6 of about 20 s`, or empty if neither is known.
    pub figure: String,
    /// The current stage, with its numbers.
    pub label: String,
    /// The label without its numbers. Changes only with the stage.
    pub stage: String,
}

/// Limit of a bar that is driven by the expected time alone, until the load is ready.
const BY_TIME_MAX: u64 = 95;

/// The progress of loading `wanted` replicas of a model. The label is the stage of the replica that is furthest behind.
/// `watched_ms` is the time for which this client has seen a replica loading; the server's figures may be some seconds old.
pub fn progress(view: &ModelView, wanted: u32, watched_ms: u64) -> Progress {
    let ready = view
        .replicas
        .iter()
        .filter(|replica| replica.state == LoadState::Ready)
        .count() as u64;
    let launching: Vec<&ReplicaView> = view
        .replicas
        .iter()
        .filter(|replica| replica.state == LoadState::Launching)
        .collect();
    if let Some(fetch) = view
        .weights
        .as_ref()
        .and_then(|weights| weights.fetch.as_ref())
    {
        let percent = fetch.percent.map(clamped);
        return Progress {
            percent: percent.unwrap_or(0),
            // The label has all the figures.
            figure: String::new(),
            label: fetched(fetch),
            stage: "fetching".to_owned(),
        };
    }
    let wanted = u64::from(wanted.max(1)).max(launching.len() as u64);
    let share = |replica: &ReplicaView| match replica.percent {
        Some(percent) => clamped(percent),
        None => ExpectedLoad::new(replica, view.load_ms_expected, watched_ms)
            .map_or(0, |timed| timed.percent()),
    };
    let started: u64 = launching.iter().map(|replica| share(replica)).sum();
    let percent = (ready.min(wanted) * 100 + started).min(wanted * 100) / wanted;
    let behind = launching.iter().min_by_key(|replica| share(replica));
    let label = match behind {
        Some(replica) => clean(replica.stage.as_deref().unwrap_or("starting")),
        None if ready >= wanted => "ready".to_owned(),
        None if view
            .replicas
            .iter()
            .any(|replica| replica.state == LoadState::Stopping) =>
        {
            "stopping the old replica".to_owned()
        }
        None => "waiting for room".to_owned(),
    };
    // A replica without a percentage makes the sum a guess, so the expected time is shown instead.
    let by_time = launching.iter().find(|replica| replica.percent.is_none());
    let figure = match by_time {
        Some(replica) => ExpectedLoad::new(replica, view.load_ms_expected, watched_ms)
            .map_or_else(String::new, |timed| timed.figure()),
        None if launching.is_empty() && ready < wanted => String::new(),
        None => format!("{percent} %"),
    };
    let label = if wanted > 1 {
        format!("{label}, {} of {wanted} ready", ready.min(wanted))
    } else {
        label
    };
    Progress {
        percent,
        figure,
        stage: label.clone(),
        label,
    }
}

fn clamped(percent: f64) -> u64 {
    percent.clamp(0.0, 100.0) as u64
}

/// A load for which only the expected time is known.
struct ExpectedLoad {
    gone_ms: u64,
    expected_ms: u64,
}

impl ExpectedLoad {
    /// `None` if the server does not report an expected time.
    fn new(
        replica: &ReplicaView,
        expected_ms: Option<u64>,
        watched_ms: u64,
    ) -> Option<ExpectedLoad> {
        let expected_ms = expected_ms.filter(|ms| *ms > 0)?;
        let gone_ms = expected_ms.saturating_sub(replica.expected_ms?);
        let gone_ms = gone_ms.max(watched_ms);
        Some(ExpectedLoad {
            gone_ms,
            expected_ms,
        })
    }

    fn percent(&self) -> u64 {
        let percent = u128::from(self.gone_ms) * 100 / u128::from(self.expected_ms);
        u64::try_from(percent).map_or(BY_TIME_MAX, |percent| percent.min(BY_TIME_MAX))
    }

    /// `6 of about 20 s`, or `longer than the usual 20 s` once that has passed.
    fn figure(&self) -> String {
        let whole = |ms: u64| ms / 1000;
        match (self.gone_ms, self.expected_ms) {
            (gone, all) if gone >= all => format!("longer than the usual {}", round(all)),
            (gone, all) if all < 60_000 => {
                format!("{} of about {} s", whole(gone), whole(all).max(1))
            }
            (gone, all) => format!("{} of about {}", round(gone), round(all)),
        }
    }
}

/// Seconds without a fraction.
fn round(ms: u64) -> String {
    match ms {
        1000..60_000 => format!("{} s", ms / 1000),
        _ => milliseconds(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(wanted: u32, replicas: Value) -> Progress {
        let view: ModelView = serde_json::from_value(
            json!({"model": "m", "state": "loading", "load_ms_expected": 20_000, "replicas": replicas}),
        )
        .expect("a view");
        progress(&view, wanted, 0)
    }

    fn at(wanted: u32, replicas: Value) -> (u64, String) {
        let Progress { percent, label, .. } = shown(wanted, replicas);
        (percent, label)
    }

    #[test]
    fn a_replica_progresses_from_waiting_through_its_stages_to_ready() {
        assert_eq!(at(1, json!([])), (0, "waiting for room".into()));
        assert_eq!(
            at(
                1,
                json!([{"replica": "r1", "state": "launching", "stage": "fetching", "percent": null}])
            ),
            (0, "fetching".into())
        );
        assert_eq!(
            at(
                1,
                json!([{"replica": "r1", "state": "launching", "stage": "loading", "percent": 40}])
            ),
            (40, "loading".into())
        );
        assert_eq!(
            at(1, json!([{"replica": "r1", "state": "ready"}])),
            (100, "ready".into())
        );
    }

    #[test]
    fn without_a_percentage_the_time_is_shown_and_moves_the_bar() {
        let loading = |left: Value| {
            let replica = json!({"state": "launching", "stage": "loading", "percent": null, "expected_ms": left});
            let Progress {
                percent, figure, ..
            } = shown(1, json!([replica]));
            (percent, figure)
        };
        assert_eq!(loading(json!(14_000)), (30, "6 of about 20 s".into()));
        assert_eq!(loading(json!(20_000)), (0, "0 of about 20 s".into()));
        assert_eq!(loading(json!(100)).0, BY_TIME_MAX);
        assert_eq!(
            loading(json!(0)),
            (BY_TIME_MAX, "longer than the usual 20 s".into())
        );
        assert_eq!(loading(Value::Null), (0, String::new()));
    }

    #[test]
    fn a_long_load_is_counted_in_minutes() {
        let view: ModelView = serde_json::from_value(
            json!({"model": "m", "load_ms_expected": 250_000, "replicas": [
                {"state": "launching", "stage": "loading", "expected_ms": 130_000}]}),
        )
        .expect("a view");
        assert_eq!(progress(&view, 1, 0).figure, "2 min of about 4 min 10 s");
        // The time watched is newer than the server's figure.
        assert_eq!(
            progress(&view, 1, 180_000).figure,
            "3 min of about 4 min 10 s"
        );
        assert_eq!(
            progress(&view, 1, 60_000).figure,
            "2 min of about 4 min 10 s"
        );
    }

    #[test]
    fn a_measured_percentage_is_shown() {
        let replica =
            json!({"state": "launching", "stage": "loading", "percent": 40, "expected_ms": 5_000});
        assert_eq!(shown(1, json!([replica])).figure, "40 %");
        assert_eq!(shown(1, json!([])).figure, "", "nothing is known yet");
    }

    #[test]
    fn weights_in_transit_are_shown_with_the_time_left() {
        let view: ModelView = serde_json::from_value(json!({
            "model": "m", "state": "fetching", "replicas": [],
            "weights": {"from": "s3://b/m", "here": false, "fetch": {
                "bytes_done": 1_u64 << 30, "bytes_total": 4_u64 << 30, "percent": 25,
                "words": "fetching", "left_ms": 20_000}}}))
        .expect("a view");
        let Progress {
            percent,
            label,
            stage,
            figure,
        } = progress(&view, 1, 0);
        assert_eq!((percent, stage.as_str()), (25, "fetching"));
        assert_eq!(figure, "");
        assert_eq!(label, "fetching 25 %, 1.0 GiB of 4.0 GiB, 20.0 s left");
    }

    #[test]
    fn several_replicas_progress_together_and_the_last_one_is_named() {
        assert_eq!(
            at(
                3,
                json!([{"state": "ready"}, {"state": "launching", "stage": "loading", "percent": 50},
                    {"state": "launching", "stage": "starting", "percent": null}])
            ),
            (50, "starting, 1 of 3 ready".into())
        );
    }

    #[test]
    fn out_of_range_percentages_are_clamped() {
        assert_eq!(
            at(1, json!([{"state": "ready"}, {"state": "ready"}, {"state": "launching", "percent": 900.0}])).0,
            100
        );
        assert_eq!(at(0, json!([])).0, 0);
    }
}
