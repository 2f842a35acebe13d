//! Takes the state that the load path is judged by, every second and outside the loop: a stuck loop cannot report itself. Requests
//! a sign of life from the loop and keeps the last result.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ticks::Ticks;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::gates::Routes;
use crate::messages::Message;
use crate::view::{
    LoadPath, Observation, REMOTE_DEVICE, ReplicaSample, ServableReplica, Snapshot, Watchdog,
    WatchedState,
};
use engine::ServeWriters;
use pool::{ModelView, ReplicaState, ReplicaView, Span, Time};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Inputs of the check.
pub(crate) struct WatchInputs {
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub routes: Arc<ArcSwap<Routes>>,
    pub inbox: mpsc::UnboundedSender<Message>,
    /// Time of the last request to which the loop responded.
    pub responded: Arc<AtomicU64>,
    pub clock: Clock,
    pub load_path: Arc<ArcSwap<LoadPath>>,
    pub serve_writers: Arc<ServeWriters>,
}

/// Runs as long as the loop.
pub(crate) async fn run(sights: WatchInputs) {
    let mut watchdog = Watchdog::default();
    let mut looks = Ticks::every(LOOK_EVERY);
    let mut requested = Time(0);
    let mut reported = BTreeSet::new();
    loop {
        looks.tick().await;
        let now = sights.clock.now();
        let mut without_response = None;
        if sights.responded.load(Ordering::Relaxed) >= requested.0 {
            requested = now;
            // Fails only while the process ends.
            let _ = sights.inbox.send(Message::Sign { requested });
        } else {
            without_response = Some(now.since(requested));
        }
        let path = watchdog.judge(&picture(&sights, now, without_response));
        // Logs each finding when it appears, not every second.
        let mut found = BTreeSet::new();
        for finding in &path.findings {
            let key = finding
                .what
                .split(" for ")
                .next()
                .unwrap_or_default()
                .to_owned();
            if !reported.contains(&key) {
                tracing::warn!(stuck = finding.stuck, "{}", finding.what);
            }
            found.insert(key);
        }
        reported = found;
        if **sights.load_path.load() != path {
            sights.load_path.store(Arc::new(path));
        }
    }
}

fn picture(sights: &WatchInputs, now: Time, without_response: Option<Span>) -> Observation {
    let snapshot = sights.snapshot.load();
    let routes = sights.routes.load();
    // The snapshot may be older if nothing has happened since.
    let since = now.since(snapshot.pool.now);
    let servable = |model: &&ModelView| model.waiting > 0;
    Observation {
        now,
        without_response,
        replicas: snapshot
            .pool
            .models
            .iter()
            .flat_map(|model| model.replicas.iter().map(move |replica| (model, replica)))
            .filter_map(|(model, replica)| sample(&snapshot, model, replica, now, since))
            .collect(),
        servable: snapshot
            .pool
            .models
            .iter()
            .filter(servable)
            .filter_map(|model| {
                let gates = routes.route(model.model)?.gates.load();
                let gate = gates.iter().find(|gate| gate.has_room())?;
                Some(ServableReplica {
                    model: model.name.clone(),
                    replica: gate.replica,
                    seated: model.seated,
                })
            })
            .collect(),
        left_over: sights.serve_writers.left_over(),
        silent_rays: sights.serve_writers.silent_rays(),
    }
}

fn is_remote(replica: &ReplicaView) -> bool {
    replica
        .shares
        .iter()
        .any(|share| share.device == REMOTE_DEVICE)
}

fn sample(
    snapshot: &Snapshot,
    model: &ModelView,
    replica: &ReplicaView,
    now: Time,
    since: Span,
) -> Option<ReplicaSample> {
    let process = snapshot.processes.get(&replica.replica);
    let dead = process.and_then(|process| process.dead);
    let (state, age) = match (replica.state, dead) {
        // Ray removes its applications at its own pace. Applications that stay are counted as left over.
        (ReplicaState::Stopping, _) if is_remote(replica) => return None,
        (ReplicaState::Stopping, _) => {
            let grace = model.stop_grace;
            (WatchedState::Stopping { grace }, replica.for_ + since)
        }
        (_, Some(dead)) => (WatchedState::Dead, now.since(dead)),
        (ReplicaState::Launching, None) => {
            let stage = process.and_then(|process| process.stage.as_ref());
            let state = WatchedState::Launching {
                deadline: model.load_deadline,
                expected: model.reload,
                silent: stage.map_or(Span::ZERO, |stage| now.since(stage.since)),
                stage: stage.map(ToString::to_string).unwrap_or_default(),
            };
            (state, replica.for_ + since)
        }
        _ => return None,
    };
    Some(ReplicaSample {
        model: model.name.clone(),
        replica: replica.replica,
        state,
        age,
    })
}
