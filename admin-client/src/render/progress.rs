//! The progress of a load, from one view of the model. Pure.

use crate::answers::ModelView;
use crate::render::models::fetched;
use crate::screen::clean;

/// The progress of a load at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Of all wanted replicas together.
    pub percent: u64,
    /// What happens now.
    pub label: String,
    /// The label without its numbers: it changes only with the stage.
    pub stage: String,
}

/// The progress of a model that is being loaded with `wanted` replicas. The label is the stage of the
/// replica that is furthest behind.
pub fn progress(view: &ModelView, wanted: u32) -> Progress {
    let ready = view
        .replicas
        .iter()
        .filter(|replica| replica.state == "ready")
        .count() as u64;
    let launching: Vec<_> = view
        .replicas
        .iter()
        .filter(|replica| replica.state == "launching")
        .collect();
    if let Some(fetch) = view.weights.as_ref().and_then(|it| it.fetch.as_ref()) {
        return Progress {
            percent: fetch.percent.unwrap_or(0.0).clamp(0.0, 100.0) as u64,
            label: fetched(fetch),
            stage: "fetching".to_owned(),
        };
    }
    let wanted = u64::from(wanted.max(1)).max(launching.len() as u64);
    let share = |percent: Option<f64>| percent.unwrap_or(0.0).clamp(0.0, 100.0) as u64;
    let started: u64 = launching.iter().map(|replica| share(replica.percent)).sum();
    let percent = (ready.min(wanted) * 100 + started).min(wanted * 100) / wanted;
    let behind = launching
        .iter()
        .min_by_key(|replica| share(replica.percent));
    let label = match behind {
        Some(replica) => clean(replica.stage.as_deref().unwrap_or("starting")),
        None if ready >= wanted => "ready".to_owned(),
        None if view
            .replicas
            .iter()
            .any(|replica| replica.state == "stopping") =>
        {
            "stopping the old replica".to_owned()
        }
        None => "waiting for room".to_owned(),
    };
    let label = if wanted > 1 {
        format!("{label}, {} of {wanted} ready", ready.min(wanted))
    } else {
        label
    };
    Progress {
        percent,
        stage: label.clone(),
        label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(wanted: u32, replicas: Value) -> (u64, String) {
        let view: ModelView =
            serde_json::from_value(json!({"model": "m", "state": "loading", "replicas": replicas}))
                .expect("a view");
        let Progress { percent, label, .. } = progress(&view, wanted);
        (percent, label)
    }

    #[test]
    fn one_replica_goes_from_waiting_through_its_stages_to_ready() {
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
    fn weights_on_their_way_are_told_with_what_is_left() {
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
        } = progress(&view, 1);
        assert_eq!((percent, stage.as_str()), (25, "fetching"));
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
    fn figures_out_of_range_are_held_within_it() {
        assert_eq!(
            at(1, json!([{"state": "ready"}, {"state": "ready"}, {"state": "launching", "percent": 900.0}])).0,
            100
        );
        assert_eq!(at(0, json!([])).0, 0);
    }
}
