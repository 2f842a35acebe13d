//! Loading and unloading: the requests and their answers.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Share, shares};
use controller::Snapshot;
use pool::{Evicted, LoadResult, OrderId, Priority, ReplicaId, Span};

/// What `load` and `plan` take.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"model": "tiny-chat", "priority": 1, "keep_hot": "30m"}))]
pub struct LoadRequest {
    /// The model's name or an alias.
    #[schema(min_length = 1, example = "tiny-chat")]
    pub model: String,
    /// Sets the model's priority, as an override that stays (P1).
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000)]
    pub priority: Option<Priority>,
    /// How many replicas there shall be. Without it: as many as there are, and at least one.
    #[schema(minimum = 1, maximum = 64)]
    pub replicas: Option<u32>,
    /// Devices of each new replica, instead of what the catalogue says (M5).
    #[schema(minimum = 1, maximum = 1024)]
    pub gpus: Option<u32>,
    /// How long a replica stays after its last request ended (L2), `1s` to `365d`; an override that stays.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "30m")]
    pub keep_hot: Option<Span>,
    /// When the overrides end, `1s` to `365d` from now; until then keep-hot does not unload the model.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "2h")]
    pub lease: Option<Span>,
    /// May evict equal and always-hot models too (P4).
    #[schema(value_type = Option<bool>, default = false)]
    pub force: bool,
    /// Answer when the load has ended (true), or as soon as it is kept (false).
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

/// How a load ended, or that it has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LoadAnswer {
    pub model: String,
    /// `ready`: all replicas; `partial`: fewer, see `shortfall`; `started`: with `"wait": false`.
    #[schema(example = "ready")]
    pub status: &'static str,
    pub wanted_replicas: u32,
    pub ready_replicas: Vec<ReadyReplica>,
    pub evicted: Vec<EvictedView>,
    /// Why there are fewer replicas than wanted.
    pub shortfall: Option<String>,
    /// With a shortfall: how many replicas the devices could hold if nothing else were loaded.
    pub fits_when_empty: Option<u32>,
    #[schema(example = "o5")]
    pub order: String,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReadyReplica {
    #[schema(example = "r3")]
    pub replica: String,
    pub devices: Vec<Share>,
}

/// A replica that had to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct EvictedView {
    #[schema(example = "r1")]
    pub replica: String,
    pub model: String,
    pub priority: u32,
    pub bytes: u64,
    #[schema(example = "preempted by tiny-chat: priority 1 over 0 (P2)")]
    pub reason: String,
}

/// What `unload` takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"model": "tiny-chat"}))]
pub struct UnloadRequest {
    #[schema(min_length = 1, example = "tiny-chat")]
    pub model: String,
    /// One replica of it, like `r3`; without it all of them.
    #[schema(value_type = Option<String>, pattern = "^r[0-9]{1,18}$", example = "r3")]
    pub replica: Option<ReplicaId>,
    /// Cuts the requests in flight instead of waiting for them.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UnloadAnswer {
    pub model: String,
    /// The replicas that are gone.
    pub unloaded: Vec<String>,
    pub took_ms: u64,
}

impl LoadAnswer {
    /// The order is kept and goes on.
    pub fn started(model: &str, wanted: u32, order: OrderId, took: Span) -> LoadAnswer {
        LoadAnswer {
            model: model.to_owned(),
            status: "started",
            wanted_replicas: wanted,
            ready_replicas: Vec::new(),
            evicted: Vec::new(),
            shortfall: None,
            fits_when_empty: None,
            order: order.to_string(),
            took_ms: took.0,
        }
    }

    pub fn of(
        model: &str,
        result: &LoadResult,
        order: OrderId,
        took: Span,
        snapshot: &Snapshot,
    ) -> LoadAnswer {
        let is_complete = result.ready.len() >= result.wanted as usize;
        let ready = |(replica, held): &(ReplicaId, Vec<_>)| ReadyReplica {
            replica: replica.to_string(),
            devices: shares(snapshot, held),
        };
        let shortfall = result.shortfall.as_ref();
        LoadAnswer {
            status: if is_complete { "ready" } else { "partial" },
            ready_replicas: result.ready.iter().map(ready).collect(),
            evicted: result.evicted.iter().map(EvictedView::of).collect(),
            shortfall: shortfall.map(|why| why.to_string()),
            fits_when_empty: result.fits_when_empty,
            ..LoadAnswer::started(model, result.wanted, order, took)
        }
    }
}

impl EvictedView {
    fn of(evicted: &Evicted) -> EvictedView {
        EvictedView {
            replica: evicted.replica.to_string(),
            model: evicted.model.clone(),
            priority: evicted.priority.0,
            bytes: evicted.bytes.0,
            reason: evicted.reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{Bytes, DeviceId, Refusal, Share as Held, StopReason};

    #[test]
    fn a_load_with_fewer_replicas_than_wanted_is_partial_and_says_why() {
        let by = "tiny-chat".to_owned();
        let result = LoadResult {
            wanted: 2,
            ready: vec![(
                ReplicaId(3),
                vec![Held {
                    device: DeviceId(0),
                    bytes: Bytes(7),
                }],
            )],
            evicted: vec![Evicted {
                replica: ReplicaId(1),
                model: "old".to_owned(),
                priority: Priority(0),
                bytes: Bytes(9),
                reason: StopReason::Preempted {
                    by,
                    priority: Priority(1),
                    own: Priority(0),
                    lease: None,
                },
            }],
            shortfall: Some(Refusal::NotLoaded),
            fits_when_empty: Some(1),
        };
        let answer = LoadAnswer::of(
            "tiny-chat",
            &result,
            OrderId(5),
            Span(1200),
            &Snapshot::default(),
        );
        let json = serde_json::to_value(&answer).unwrap();
        let expected = serde_json::json!({
            "model": "tiny-chat", "status": "partial", "wanted_replicas": 2,
            "ready_replicas": [{"replica": "r3", "devices": [{"device": "d0", "bytes": 7}]}],
            "evicted": [{"replica": "r1", "model": "old", "priority": 0, "bytes": 9,
                "reason": "preempted by tiny-chat: priority 1 over 0 (P2)"}],
            "shortfall": "the model has no replica to unload", "fits_when_empty": 1, "order": "o5", "took_ms": 1200
        });
        assert_eq!(json, expected);
    }
}
