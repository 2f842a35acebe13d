//! Stream comments for clients whose model is not ready (Q2): the position in the queue and the progress of the load. No SDK treats
//! comments as data.

use controller::Snapshot;
use pool::{ModelId, ReplicaId, ReplicaState, Span, Ticket};

/// Returns `: waiting position=1 stage=loading percent=40 expected_seconds=3`.
pub(crate) fn comment(snapshot: &Snapshot, ticket: Ticket, model: ModelId) -> String {
    let waiting = snapshot
        .pool
        .waiting
        .iter()
        .find(|waiter| waiter.ticket == ticket);
    let position = waiting.map_or(0, |waiter| waiter.position);
    let expected = waiting.map_or(0, |waiter| waiter.expected.secs_up());
    let (stage, percent) = stage(snapshot, model);
    let percent = percent
        .map(|percent| format!(" percent={percent}"))
        .unwrap_or_default();
    format!(": waiting position={position} stage={stage}{percent} expected_seconds={expected}\n\n")
}

/// Returns `: seated replica=r3 waited_ms=12000`.
pub fn seated(replica: ReplicaId, waited: Span) -> String {
    format!(": seated replica={replica} waited_ms={}\n\n", waited.0)
}

/// The stage of the model's load in one word, with its percentage if the engine reports one.
pub(crate) fn stage(snapshot: &Snapshot, model: ModelId) -> (String, Option<u8>) {
    let view = snapshot
        .pool
        .models
        .iter()
        .find(|candidate| candidate.model == model);
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
                let stage = process.and_then(|process| process.stage.as_ref());
                return (
                    stage.map_or("starting".to_owned(), |progress| progress.stage.to_string()),
                    stage.and_then(|progress| progress.percent),
                );
            }
            ReplicaState::Ready => return ("busy".to_owned(), None),
            _ => {}
        }
    }
    ("queued".to_owned(), None)
}
