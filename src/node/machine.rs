//! The state of a node: its engines, its pending reports, and the time of its controller. Protected by one lock, held only briefly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::outbox::Outbox;
use engine::{ActivityMeter, ActivityReport, Endpoint};
use node_link::{EngineReport, KeptForm, NodeReport, RunningEngine};

#[derive(Debug, Default)]
pub(super) struct Machine {
    inner: Mutex<Inner>,
    /// The outbox has messages to send.
    pub news: Notify,
    /// The devices should be read immediately.
    pub look: Notify,
    /// An engine has ended, or the node begins to leave.
    pub fewer: Notify,
    /// An engine of an earlier process has been adopted, or all of them have been resolved.
    pub adopted: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub engines: BTreeMap<u64, EngineState>,
    pub outbox: Outbox,
    pub is_connected: bool,
    /// Another process takes over: this one carries out no orders and does not reconnect.
    pub is_replaced: bool,
    /// The engines of an earlier process are being adopted or ended.
    pub is_resolving: bool,
    /// Number of commands that put an engine to sleep or wake it, in progress.
    pub commands: usize,
    /// The reason the node ends, once it does.
    pub leaving: Option<String>,
    /// The controller's clock at its latest heartbeat.
    pub beat: u64,
    /// Local time at which that heartbeat arrived.
    beat_at: Option<Instant>,
    pub read_every: Option<Duration>,
}

/// A change in the use of an engine. `None` where nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UseChange {
    pub replica: u64,
    pub busy: Option<bool>,
    pub asleep: Option<bool>,
}

/// One engine, from its order to its end.
#[derive(Debug)]
pub(super) struct EngineState {
    pub model: String,
    pub kept: KeptForm,
    pub pid: Option<u32>,
    pub contained: Option<u32>,
    pub endpoint: Option<Endpoint>,
    pub ready_at: Option<Instant>,
    pub idle_since: Option<Instant>,
    pub asleep: bool,
    /// Taken by the order to stop.
    pub stop: Option<oneshot::Sender<Duration>>,
    pub activity: Arc<ActivityMeter>,
    is_busy: bool,
}

impl EngineState {
    pub fn new(
        model: String,
        kept: KeptForm,
        stop: oneshot::Sender<Duration>,
        activity: Arc<ActivityMeter>,
    ) -> EngineState {
        EngineState {
            model,
            kept,
            pid: None,
            contained: None,
            endpoint: None,
            ready_at: None,
            idle_since: None,
            asleep: false,
            stop: Some(stop),
            activity,
            is_busy: false,
        }
    }
}

impl Machine {
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn report(&self, report: NodeReport) {
        let mut inner = self.lock();
        let is_connected = inner.is_connected;
        inner.outbox.push(report, is_connected);
        drop(inner);
        self.news.notify_one();
    }

    /// Handles an engine's report: updates the node's state and queues the report in one step.
    pub fn engine_report(&self, replica: u64, report: EngineReport) {
        let mut inner = self.lock();
        let is_over = matches!(report, EngineReport::Exited(_));
        if let Some(engine) = inner.engines.get_mut(&replica) {
            match &report {
                EngineReport::Started { pid } => engine.pid = Some(*pid),
                EngineReport::Contained { pid } => engine.contained = Some(*pid),
                EngineReport::Ready { .. } => engine.ready_at = Some(now()),
                _ => {}
            }
        }
        if is_over {
            inner.engines.remove(&replica);
        }
        let is_connected = inner.is_connected;
        inner
            .outbox
            .push(NodeReport::Engine { replica, report }, is_connected);
        drop(inner);
        self.news.notify_one();
        if is_over {
            self.look.notify_one();
            self.fewer.notify_waiters();
        }
    }

    /// Ends the engine with this grace period. A second order has no effect.
    pub fn stop(&self, replica: u64, grace: Duration) {
        let stop = self
            .lock()
            .engines
            .get_mut(&replica)
            .and_then(|engine| engine.stop.take());
        if let Some(stop) = stop {
            let _ = stop.send(grace);
        }
    }

    /// Ends every engine, with its own grace period or without one.
    pub fn stop_all(&self, at_once: bool) {
        for engine in self.lock().engines.values_mut() {
            if let Some(stop) = engine.stop.take() {
                let grace = if at_once {
                    Duration::ZERO
                } else {
                    Duration::from_millis(engine.kept.stop_grace_ms)
                };
                let _ = stop.send(grace);
            }
        }
    }

    /// Takes the gateway's counts of requests. Returns the changes that a later process has to know.
    pub fn mirror(&self, activity: Vec<(u64, ActivityReport)>) -> Vec<UseChange> {
        let mut inner = self.lock();
        let mut changes = Vec::new();
        for (replica, report) in activity {
            if let Some(engine) = inner.engines.get_mut(&replica) {
                let is_busy = report.asking + report.responding > 0;
                if engine.is_busy && !is_busy {
                    engine.idle_since = Some(now());
                }
                // An engine that falls asleep or wakes counts as asleep.
                let change = UseChange {
                    replica,
                    busy: (engine.is_busy != is_busy).then_some(is_busy),
                    asleep: (engine.asleep != report.resting).then_some(report.resting),
                };
                if change.busy.is_some() || change.asleep.is_some() {
                    changes.push(change);
                }
                engine.is_busy = is_busy;
                engine.asleep = report.resting;
                engine.activity.mirror(report);
            }
        }
        changes
    }

    /// Returns true if no engine starts, ends, falls asleep or wakes.
    pub fn is_settled(&self) -> bool {
        let inner = self.lock();
        let mut engines = inner.engines.values();
        inner.commands == 0
            && engines.all(|engine| engine.ready_at.is_some() && engine.stop.is_some())
    }

    /// Takes the controller's time from a heartbeat.
    pub fn hear_beat(&self, at: u64) {
        let mut inner = self.lock();
        inner.beat = at;
        inner.beat_at = Some(now());
    }

    /// The controller's current time, as estimated by this node. `None` before the first heartbeat.
    pub fn controller_time(&self) -> Option<u64> {
        let inner = self.lock();
        let passed = now().saturating_duration_since(inner.beat_at?).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        Some(inner.beat.saturating_add(passed))
    }

    /// Returns true if an engine is starting: it reads its weights from the disk.
    pub fn loads_an_engine(&self) -> bool {
        let inner = self.lock();
        let mut engines = inner.engines.values();
        engines.any(|engine| engine.pid.is_some() && engine.ready_at.is_none())
    }

    /// Records a lost connection: from now on, it is unknown whether requests wait for an engine.
    pub fn disconnected(&self) {
        let mut inner = self.lock();
        inner.is_connected = false;
        for engine in inner.engines.values_mut() {
            engine.activity.mirror(ActivityReport {
                resting: engine.asleep,
                ..ActivityReport::default()
            });
        }
    }

    /// Waits until the node begins to leave, at most for this time.
    pub async fn leaves_within(&self, limit: Duration) {
        let leaves = async {
            loop {
                let changed = self.fewer.notified();
                if self.lock().leaving.is_some() {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(limit, leaves).await;
    }

    /// The endpoint of an engine. Waits while the engine may still be adopted.
    pub async fn endpoint(&self, replica: u64) -> Option<Endpoint> {
        loop {
            let changed = self.adopted.notified();
            {
                let inner = self.lock();
                match inner.engines.get(&replica) {
                    Some(engine) => return engine.endpoint.clone(),
                    None if !inner.is_resolving => return None,
                    None => {}
                }
            }
            changed.await;
        }
    }

    /// Records that no further engine of an earlier process is adopted.
    pub fn resolved(&self) {
        self.lock().is_resolving = false;
        self.adopted.notify_waiters();
    }

    pub fn has_engines(&self) -> bool {
        !self.lock().engines.is_empty()
    }
}

impl Inner {
    pub fn running(&self) -> Vec<RunningEngine> {
        let since = |at: Instant| {
            let passed = now().saturating_duration_since(at).as_millis();
            u64::try_from(passed).unwrap_or(u64::MAX)
        };
        self.engines
            .iter()
            .map(|(&replica, engine)| RunningEngine {
                replica,
                model: engine.model.clone(),
                kept: engine.kept.clone(),
                pid: engine.pid,
                ready_for_ms: engine.ready_at.map(since),
                idle_for_ms: engine.idle_since.map(since),
                asleep: engine.asleep,
                ending: engine.stop.is_none(),
            })
            .collect()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the node's own monotonic clock; the controller's decisions come with its own"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}
