//! The bounded wait of a call by MCP for the end of an order, and the response while replicas still drain. The order continues.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use controller::{ControllerBusy, PendingOrder, Snapshot};
use pool::{ModelView, OrderId, Outcome, ReplicaState, ReplicaView};

/// The longest time that a call by MCP waits for the end of an order.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Waits for the outcome of an order. `None` if the order of a call by MCP has not ended within the time of a call; it is on disk then.
pub(crate) async fn outcome(
    by_mcp: bool,
    ordered: &mut PendingOrder,
) -> Result<Option<Outcome>, ControllerBusy> {
    if !by_mcp {
        return ordered.outcome().await.map(Some);
    }
    ordered.accepted().await?;
    let ended = tokio::time::timeout(CALL_MAX, ordered.outcome()).await;
    ended.map_or(Ok(None), |outcome| outcome.map(Some))
}

/// The response while the replicas of these models still drain for an order.
pub(crate) fn still_draining(
    order: OrderId,
    snapshot: &Snapshot,
    is_concerned: impl Fn(&ModelView) -> bool,
) -> Response {
    let body = draining(order, &snapshot.pool.models, is_concerned);
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

fn draining(
    order: OrderId,
    models: &[ModelView],
    is_concerned: impl Fn(&ModelView) -> bool,
) -> Value {
    let leaves = |replica: &&ReplicaView| {
        matches!(
            replica.state,
            ReplicaState::Draining | ReplicaState::Stopping
        )
    };
    let models = models.iter().filter(|model| is_concerned(model));
    let leaving: Vec<(&ModelView, &ReplicaView)> = models
        .flat_map(|model| {
            let replicas = model.replicas.iter().filter(leaves);
            replicas.map(move |replica| (model, replica))
        })
        .collect();
    let requests: u32 = leaving.iter().map(|(_, replica)| replica.in_flight).sum();
    let replicas = leaving.iter().map(|(model, replica)| {
        json!({
            "replica": replica.replica.to_string(),
            "model": model.name,
            "in_flight": replica.in_flight,
        })
    });
    json!({
        "status": "draining",
        "order": order.to_string(),
        "replicas": replicas.collect::<Vec<_>>(),
        "message": format!(
            "still draining after {} s: {requests} requests in flight on {} replicas; the order continues, and the tool queue shows it until it has ended",
            CALL_MAX.as_secs(),
            leaving.len(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{
        Bytes, DeviceId, DeviceReading, Event, KeyId, Limits, ModelId, ModelSpec, Pool, ReplicaId,
        Ticket, Time,
    };

    #[test]
    fn the_response_names_the_replicas_that_drain_with_their_requests() {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".to_owned(),
            total: Bytes(10 * Bytes::GIB),
            ..DeviceReading::default()
        };
        let (device, model) = (DeviceId(0), ModelId(0));
        let spec = ModelSpec {
            name: "low".to_owned(),
            bytes_per_device: Bytes(Bytes::GIB),
            ..ModelSpec::default()
        };
        let arrival = Event::RequestArrived {
            ticket: Ticket(0),
            model,
            key: KeyId(0),
        };
        let events = [
            Event::DeviceRead { device, reading },
            Event::ModelSet { model, spec },
            arrival,
        ];
        drop(pool.step_all(Time(0), events));
        let mut models = pool.view(Time(0)).models;
        let none = draining(OrderId(5), &models, |_| true);
        assert_eq!(none["replicas"], json!([]), "it is loading");
        models[0].replicas[0].state = ReplicaState::Draining;
        models[0].replicas[0].in_flight = 2;
        let shown = draining(OrderId(5), &models, |model| model.name == "low");
        let replica = json!({"replica": "r1", "model": "low", "in_flight": 2});
        assert_eq!(shown["replicas"], json!([replica]));
        assert_eq!(
            (&shown["status"], &shown["order"]),
            (&json!("draining"), &json!("o5"))
        );
        let message = shown["message"].as_str().expect("a text");
        assert!(
            message.contains("2 requests in flight on 1 replicas"),
            "{message}"
        );
        let other = draining(OrderId(5), &models, |model| model.name == "high");
        assert_eq!(other["replicas"], json!([]), "another model");
    }
}
