//! Requests and responses for loading and unloading.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Share, shares};
use controller::Snapshot;
use pool::{Evicted, LoadResult, OrderId, ReplicaId, Span};

/// Result of a load, or confirmation that it has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LoadResponse {
    pub model: String,
    /// `ready` if all replicas are ready, `partial` if some are missing (see `shortfall`), `started` with `"wait": false`.
    #[schema(example = "ready")]
    pub status: &'static str,
    pub wanted_replicas: u32,
    pub ready_replicas: Vec<ReadyReplica>,
    pub evicted: Vec<EvictedView>,
    /// Reason that fewer replicas than desired are ready.
    pub shortfall: Option<String>,
    /// With a shortfall: the number of replicas that would fit on empty devices.
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

/// A replica that was evicted.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UnloadResponse {
    pub model: String,
    /// Replicas that were unloaded.
    pub unloaded: Vec<String>,
    pub took_ms: u64,
}

impl LoadResponse {
    /// Confirms an order that is stored and still in progress.
    pub fn started(model: &str, wanted: u32, order: OrderId, took: Span) -> LoadResponse {
        LoadResponse {
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

    pub fn new(
        model: &str,
        result: &LoadResult,
        order: OrderId,
        took: Span,
        snapshot: &Snapshot,
    ) -> LoadResponse {
        let is_complete = result.ready.len() >= result.wanted as usize;
        let ready = |(replica, held): &(ReplicaId, Vec<_>)| ReadyReplica {
            replica: replica.to_string(),
            devices: shares(snapshot, held),
        };
        let shortfall = result.shortfall.as_ref();
        LoadResponse {
            status: if is_complete { "ready" } else { "partial" },
            ready_replicas: result.ready.iter().map(ready).collect(),
            evicted: result.evicted.iter().map(EvictedView::new).collect(),
            shortfall: shortfall.map(|why| why.to_string()),
            fits_when_empty: result.fits_when_empty,
            ..LoadResponse::started(model, result.wanted, order, took)
        }
    }
}

impl EvictedView {
    fn new(evicted: &Evicted) -> EvictedView {
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
    use pool::{Bytes, DeviceId, Priority, Refusal, Share as Held, StopReason};

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
        let response = LoadResponse::new(
            "tiny-chat",
            &result,
            OrderId(5),
            Span(1200),
            &Snapshot::default(),
        );
        let json = serde_json::to_value(&response).unwrap();
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
