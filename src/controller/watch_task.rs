//! Takes the snapshot that the load path is judged by, every second and beside the loop: a loop that is stuck cannot
//! report that. It asks the loop for a sign of life and keeps the last judgement.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ticks::Ticks;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::message::Message;
use super::remote_device::REMOTE_DEVICE;
use super::routing::Routes;
use super::snapshot::Snapshot;
use super::watch::{LoadPath, Picture, ReplicaSample, Servable, State, Watchdog};
use engine::ServeWriters;
use pool::{ModelView, ReplicaState, ReplicaView, Span, Time};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Everything that is looked at.
pub(super) struct Sights {
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub routes: Arc<ArcSwap<Routes>>,
    pub inbox: mpsc::UnboundedSender<Message>,
    /// The last question that the loop answered, by when it was requested.
    pub answered: Arc<AtomicU64>,
    pub clock: Clock,
    pub load_path: Arc<ArcSwap<LoadPath>>,
    pub serve_writers: Arc<ServeWriters>,
}

/// Lives as long as the loop.
pub(super) async fn run(sights: Sights) {
    let mut watchdog = Watchdog::default();
    let mut looks = Ticks::every(LOOK_EVERY);
    let mut requested = Time(0);
    let mut reported = BTreeSet::new();
    loop {
        looks.tick().await;
        let now = sights.clock.now();
        let mut unanswered = None;
        if sights.answered.load(Ordering::Relaxed) >= requested.0 {
            requested = now;
            // The loop is gone when the process ends.
            let _ = sights.inbox.send(Message::Sign { requested });
        } else {
            unanswered = Some(now.since(requested));
        }
        let path = watchdog.judge(&picture(&sights, now, unanswered));
        // Each is logged when it is found, and not every second again.
        let mut found = BTreeSet::new();
        for it in &path.findings {
            let key = it.what.split(" for ").next().unwrap_or_default().to_owned();
            if !reported.contains(&key) {
                tracing::warn!(stuck = it.stuck, "{}", it.what);
            }
            found.insert(key);
        }
        reported = found;
        if **sights.load_path.load() != path {
            sights.load_path.store(Arc::new(path));
        }
    }
}

fn picture(sights: &Sights, now: Time, unanswered: Option<Span>) -> Picture {
    let snapshot = sights.snapshot.load();
    let routes = sights.routes.load();
    // Readers may see a picture of a while ago, when nothing has happened since.
    let since = now.since(snapshot.pool.now);
    let servable = |model: &&ModelView| model.waiting > 0;
    Picture {
        now,
        unanswered,
        replicas: snapshot
            .pool
            .models
            .iter()
            .flat_map(|model| model.replicas.iter().map(move |it| (model, it)))
            .filter_map(|(model, it)| sample(&snapshot, model, it, now, since))
            .collect(),
        servable: snapshot
            .pool
            .models
            .iter()
            .filter(servable)
            .filter_map(|model| {
                let gates = routes.of(model.model)?.gates.load();
                let gate = gates.iter().find(|gate| gate.has_room())?;
                Some(Servable {
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

fn is_remote(it: &ReplicaView) -> bool {
    it.shares.iter().any(|share| share.device == REMOTE_DEVICE)
}

fn sample(
    snapshot: &Snapshot,
    model: &ModelView,
    it: &ReplicaView,
    now: Time,
    since: Span,
) -> Option<ReplicaSample> {
    let process = snapshot.processes.get(&it.replica);
    let dead = process.and_then(|process| process.dead);
    let (state, age) = match (it.state, dead) {
        // Ray takes its applications down in its own time; those that it does not are counted as left over.
        (ReplicaState::Stopping, _) if is_remote(it) => return None,
        (ReplicaState::Stopping, _) => {
            let grace = model.stop_grace;
            (State::Stopping { grace }, it.for_ + since)
        }
        (_, Some(dead)) => (State::Dead, now.since(dead)),
        (ReplicaState::Launching, None) => {
            let stage = process.and_then(|process| process.stage.as_ref());
            let state = State::Launching {
                deadline: model.load_deadline,
                expected: model.reload,
                silent: stage.map_or(Span::ZERO, |stage| now.since(stage.since)),
                stage: stage.map(ToString::to_string).unwrap_or_default(),
            };
            (state, it.for_ + since)
        }
        _ => return None,
    };
    Some(ReplicaSample {
        model: model.name.clone(),
        replica: it.replica,
        state,
        age,
    })
}
