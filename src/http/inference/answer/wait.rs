//! What a client hears while its model is not ready (Q2): comments in the stream, which no SDK takes
//! for data, with the place in the queue and what the load is doing.

use controller::Snapshot;
use pool::{ModelId, ReplicaId, ReplicaState, Span, Ticket};

/// `: waiting position=1 stage=loading percent=40 expected_seconds=3`
pub(crate) fn comment(snapshot: &Snapshot, ticket: Ticket, model: ModelId) -> String {
    let waiting = snapshot.pool.waiting.iter().find(|it| it.ticket == ticket);
    let position = waiting.map_or(0, |it| it.position);
    let expected = waiting.map_or(0, |it| it.expected.secs_up());
    let (stage, percent) = stage(snapshot, model);
    let percent = percent
        .map(|percent| format!(" percent={percent}"))
        .unwrap_or_default();
    format!(": waiting position={position} stage={stage}{percent} expected_seconds={expected}\n\n")
}

/// `: seated replica=r3 waited_ms=12000`
pub(crate) fn seated(replica: ReplicaId, waited: Span) -> String {
    format!(": seated replica={replica} waited_ms={}\n\n", waited.0)
}

/// What the model's load is doing, in one word, and per cent where the engine tells.
pub(crate) fn stage(snapshot: &Snapshot, model: ModelId) -> (String, Option<u8>) {
    let view = snapshot.pool.models.iter().find(|it| it.model == model);
    let Some(view) = view else {
        return ("queued".to_owned(), None);
    };
    if let Some(fetch) = snapshot.fetches.get(&model) {
        return ("fetching".to_owned(), fetch.progress.percent());
    }
    for replica in &view.replicas {
        match replica.state {
            ReplicaState::Planned => return ("making-room".to_owned(), None),
            ReplicaState::Launching => {
                let process = snapshot.processes.get(&replica.replica);
                let stage = process.and_then(|it| it.stage.as_ref());
                return (
                    stage.map_or("starting".to_owned(), |it| it.stage.to_string()),
                    stage.and_then(|it| it.percent),
                );
            }
            ReplicaState::Ready => return ("busy".to_owned(), None),
            _ => {}
        }
    }
    ("queued".to_owned(), None)
}
