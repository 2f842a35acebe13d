//! The loop. It owns the pool, reads the clock, and awaits nothing but its inputs. What an event
//! means is decided in `pool`; what an action does stands in `execute`.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::adopting::use_of;
use super::clock::Clock;
use super::fetching::Running;
use super::gate::{Gate, Lease};
use super::handle::{Handle, Message};
use super::inventory_task;
use super::keeper::{self, Job};
use super::parts::{Parts, Start};
use super::read_ahead::Reader;
use super::remote_device;
use super::restore::REMEMBER_EVERY;
use super::routing::{Route, Routes};
use super::snapshot::{DeviceSnapshot, ModelFacts, ProcessFacts, Snapshot};
use super::vital::{Heartbeat, OnPanic};
use super::watch::LoadPath;
use super::watch_task::{self, Sights};
use config::{Config, Provider};
use engine::{Guardians, ReplicaLog};
use inventory::Inventory;
use pool::{
    DeviceId, Event, GateReading, KindId, ModelId, OrderId, Outcome, Pool, Refusal, ReplicaId,
    Span, Ticket, Time,
};
use source::Sources;
use store::{Measurements, Store};

/// How long readers may see an older picture while much happens.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);
/// How often gates are read while requests are inside, so that readers see them come and go.
const READ_GATES_EVERY: Span = Span(250);
/// Records that a slow follower of the events may lag behind.
const EVENTS_MAX: usize = 4096;

pub(super) struct Replies {
    pub accepted: Option<oneshot::Sender<()>>,
    pub settled: oneshot::Sender<Outcome>,
}

pub(super) struct Control {
    /// The first field, which is dropped before what it concerns.
    _on_panic: OnPanic,
    pub guardians: Arc<Guardians>,
    heartbeat: Option<Heartbeat>,
    pub pool: Pool,
    pub clock: Clock,
    pub config: Arc<Config>,
    pub store: Arc<Store>,
    pub executable: PathBuf,
    pub runtime_dir: PathBuf,
    pub log_dir: PathBuf,
    pub ids: BTreeMap<String, ModelId>,
    pub facts: Arc<BTreeMap<ModelId, ModelFacts>>,
    pub measurements: Measurements,
    /// What the store holds of it.
    pub remembered: BTreeMap<ModelId, Vec<u64>>,
    pub routes: Arc<ArcSwap<Routes>>,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub provider: Provider,
    pub kinds: BTreeMap<String, KindId>,
    /// Has the devices read at once.
    pub look: Arc<Notify>,
    pub devices: Arc<BTreeMap<DeviceId, DeviceSnapshot>>,
    pub gates: BTreeMap<ReplicaId, Arc<Gate>>,
    told: BTreeMap<ReplicaId, GateReading>,
    /// Seats taken times how long, since it was last kept.
    pub busy_ms: BTreeMap<ModelId, u64>,
    /// Requests that had been seated when it was last kept.
    pub seated: BTreeMap<ModelId, u64>,
    pub seats: BTreeMap<Ticket, oneshot::Sender<Result<Lease, Refusal>>>,
    pub orders: BTreeMap<OrderId, Replies>,
    pub settled: Vec<(OrderId, Outcome)>,
    pub processes: BTreeMap<ReplicaId, ProcessFacts>,
    /// The last logs of each model, kept after their engines are gone.
    pub logs: BTreeMap<ModelId, VecDeque<(ReplicaId, Arc<ReplicaLog>)>>,
    pub stops: BTreeMap<ReplicaId, oneshot::Sender<Duration>>,
    pub reader: Reader,
    pub sources: Arc<Sources>,
    pub fetches: BTreeMap<ModelId, Running>,
    pub fetch_number: u64,
    /// Engines that were ended because they did not wake.
    pub wake_failures: BTreeMap<ReplicaId, String>,
    pub changes: VecDeque<Message>,
    pub changing: bool,
    /// The last sign that was given, by when it was asked for.
    answered: Arc<AtomicU64>,
    load_path: Arc<ArcSwap<LoadPath>>,
    pub tasks: JoinSet<()>,
    pub jobs: mpsc::UnboundedSender<Job>,
    pub inbox: mpsc::UnboundedSender<Message>,
    wake: Option<Time>,
    turned: Time,
    published: Time,
    dirty: bool,
    pub finished: bool,
}

/// Starts the loop. The join handle ends when the pool has finished its shutdown and all of it is
/// written.
#[expect(
    clippy::disallowed_methods,
    reason = "the loop and the keeper; joined by serve"
)]
pub fn spawn(parts: Parts) -> (Handle, JoinHandle<()>) {
    let (inbox, messages) = mpsc::unbounded_channel();
    let (jobs, todo) = mpsc::unbounded_channel();
    let (events, _) = broadcast::channel(EVENTS_MAX);
    let names = remote_device::names_with_it(parts.inventory.devices());
    let keeper = tokio::spawn(keeper::run(
        Arc::clone(&parts.store),
        todo,
        inbox.downgrade(),
        events.clone(),
        names,
        keeper::Trimming::new(parts.clock, &parts.config),
    ));
    let numbers = Arc::new(AtomicU64::new(parts.last_order + 1));
    let (mut control, start) = Control::new(parts, inbox, jobs);
    // Nobody may ask before it is known what there is.
    let inventory = control.begin(start);
    let handle = Handle {
        inbox: control.inbox.clone(),
        routes: Arc::clone(&control.routes),
        snapshot: Arc::clone(&control.snapshot),
        numbers,
        events,
        store: Arc::clone(&control.store),
        clock: control.clock,
        load_path: Arc::clone(&control.load_path),
        newcomers: control.newcomers(),
    };
    let task = tokio::spawn(async move {
        control.run(messages, inventory).await;
        if let Err(error) = keeper.await {
            tracing::error!(%error, "the keeper of the store ended badly");
        }
    });
    (handle, task)
}

impl Control {
    fn new(
        parts: Parts,
        inbox: mpsc::UnboundedSender<Message>,
        jobs: mpsc::UnboundedSender<Job>,
    ) -> (Control, Start) {
        let devices = parts
            .inventory
            .devices()
            .iter()
            .map(|info| {
                (
                    info.id,
                    DeviceSnapshot {
                        info: info.clone(),
                        used: None,
                        read_at: None,
                        stale: None,
                        own: BTreeMap::new(),
                    },
                )
            })
            .collect();
        let control = Control {
            _on_panic: OnPanic::new(&parts.guardians),
            guardians: parts.guardians,
            heartbeat: parts.heartbeat,
            pool: Pool::new(
                parts.config.limits(),
                parts.night,
                ReplicaId(parts.last_replica + 1),
            ),
            clock: parts.clock,
            config: parts.config,
            store: parts.store,
            executable: parts.executable,
            runtime_dir: parts.runtime_dir,
            log_dir: parts.log_dir,
            ids: BTreeMap::new(),
            facts: Arc::default(),
            measurements: parts.measurements,
            remembered: BTreeMap::new(),
            routes: Arc::new(ArcSwap::from_pointee(Routes::default())),
            snapshot: Arc::new(ArcSwap::from_pointee(Snapshot::default())),
            provider: parts.inventory.provider(),
            kinds: inventory_task::kinds(parts.inventory.devices()),
            look: Arc::default(),
            devices: Arc::new(devices),
            gates: BTreeMap::new(),
            told: BTreeMap::new(),
            busy_ms: BTreeMap::new(),
            seated: BTreeMap::new(),
            seats: BTreeMap::new(),
            orders: BTreeMap::new(),
            settled: Vec::new(),
            processes: BTreeMap::new(),
            logs: BTreeMap::new(),
            stops: BTreeMap::new(),
            reader: Reader::default(),
            sources: parts.sources,
            fetches: BTreeMap::new(),
            fetch_number: 0,
            wake_failures: BTreeMap::new(),
            changes: VecDeque::new(),
            changing: false,
            answered: Arc::default(),
            load_path: Arc::default(),
            tasks: JoinSet::new(),
            jobs,
            inbox,
            wake: None,
            turned: Time(0),
            published: Time(0),
            dirty: true,
            finished: false,
        };
        let start = Start {
            inventory: parts.inventory,
            cordons: parts.cordons,
            remembered: parts.remembered,
            wishes: parts.wishes,
            catalog: parts.catalog,
            found: parts.found,
            seats: parts.seats,
        };
        (control, start)
    }

    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>, inventory: Inventory) {
        self.tasks.spawn(inventory_task::run(
            inventory,
            Arc::clone(&self.snapshot),
            self.inbox.clone(),
            self.clock,
            Arc::clone(&self.look),
        ));
        self.tasks.spawn(watch_task::run(Sights {
            snapshot: Arc::clone(&self.snapshot),
            routes: Arc::clone(&self.routes),
            inbox: self.inbox.clone(),
            answered: Arc::clone(&self.answered),
            clock: self.clock,
            load_path: Arc::clone(&self.load_path),
        }));
        let mut remembered_at = self.clock.now();
        while !self.finished {
            let publish = self
                .dirty
                .then(|| self.published + Span(PUBLISH_EVERY.as_millis() as u64));
            let busy = self.told.values().any(|reading| reading.in_flight > 0);
            let read = busy.then(|| self.turned + READ_GATES_EVERY);
            let remember = Some(remembered_at + REMEMBER_EVERY);
            let next = self
                .wake
                .into_iter()
                .chain(publish)
                .chain(read)
                .chain(self.heartbeat.as_ref().map(Heartbeat::next))
                .chain(remember);
            let next = next.min();
            let sleep = tokio::time::sleep_until(self.clock.instant(next.unwrap_or_default()));
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => self.hear(message),
                    None => break,
                },
                () = sleep, if next.is_some() => {
                    let now = self.clock.now();
                    if self.wake.into_iter().chain(read).any(|at| at <= now) {
                        self.turn(Event::Woke);
                    }
                }
            }
            while self.tasks.try_join_next().is_some() {}
            let now = self.clock.now();
            if let Some(heart) = &mut self.heartbeat {
                heart.beat(now);
            }
            if now >= remembered_at + REMEMBER_EVERY {
                remembered_at = now;
                self.remember();
                self.keep_usage();
                self.read_ahead();
            }
            self.publish_if_due();
        }
        self.publish();
        self.last_words();
        // Whatever still runs of engines then is left to somebody else.
        self.tasks.shutdown().await;
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Seat {
                ticket,
                model,
                key,
                reply,
            } => {
                self.seats.insert(ticket, reply);
                self.turn(Event::RequestArrived { ticket, model, key });
            }
            Message::Left { ticket } => {
                self.seats.remove(&ticket);
                self.turn(Event::RequestLeft { ticket });
            }
            Message::Drained { replica } => self.turn(Event::Drained { replica }),
            Message::SeatFreed => self.turn(Event::Woke),
            Message::Sign { asked } => self.answered.store(asked.0, Ordering::Relaxed),
            Message::Order {
                order,
                command,
                accepted,
                settled,
            } => {
                self.orders.insert(
                    order,
                    Replies {
                        accepted: Some(accepted),
                        settled,
                    },
                );
                self.turn(Event::OrderAsked { order, command });
            }
            Message::Plan { load, reply } => {
                self.turn(Event::Woke);
                let plan = self.pool.preview(self.clock.now(), &load);
                let answer = plan.map(|plan| {
                    let candidates = self.pool.candidates(&plan);
                    (plan, candidates)
                });
                let _ = reply.send(answer);
            }
            Message::Saved { order, failure } => {
                // A failure settles the order first: nobody hears `accepted` of what was not kept.
                self.turn(match failure {
                    None => Event::Saved { order },
                    Some(message) => Event::SaveFailed { order, message },
                });
                if self.orders.contains_key(&order) {
                    // Whoever hears that it is accepted must be able to see what it began.
                    self.publish();
                }
                let replies = self.orders.get_mut(&order);
                if let Some(accepted) = replies.and_then(|replies| replies.accepted.take()) {
                    let _ = accepted.send(());
                }
            }
            Message::Report { replica, report } => self.report(replica, report),
            Message::Readings(readings) => self.readings(readings),
            Message::DeviceTrouble(event) => self.device_trouble(event),
            Message::LoadsFrom {
                replica,
                tier,
                weights,
            } => {
                self.turn(Event::LoadsFrom { replica, tier });
                if let Some(weights) = weights {
                    self.weights_seen(replica, weights);
                }
            }
            Message::FetchGoesOn { model } => self.fetch_goes_on(model),
            Message::FetchEnded {
                model,
                nth,
                outcome,
            } => self.fetch_ended(model, nth, outcome),
            Message::ReadAheadEnded { model, end } => self.read_ahead_ended(model, end),
            Message::Parked(parked) => self.parked(parked),
            change @ (Message::Register { .. }
            | Message::Remove { .. }
            | Message::Figure { .. }
            | Message::Reload { .. }) => {
                self.changes.push_back(change);
                self.next_change();
            }
            Message::Figured(figured) => self.figured(*figured),
            Message::HandOver => self.finished = true,
        }
    }

    pub(super) fn turn(&mut self, event: Event) {
        self.turn_all(vec![event]);
    }

    /// One moment: what the gates counted, the events, and whatever the actions answer at once.
    pub(super) fn turn_all(&mut self, events: Vec<Event>) {
        let now = self.clock.now();
        self.count_seats(now.since(self.turned));
        self.turned = now;
        let mut news = vec![Event::GatesRead {
            readings: self.read_gates(),
        }];
        news.extend(events);
        let mut answers = VecDeque::new();
        loop {
            let answer = self.pool.step_all(now, news);
            self.wake = answer.wake;
            for action in answer.actions {
                answers.extend(self.execute(action));
            }
            match answers.pop_front() {
                Some(event) => news = vec![event],
                None => break,
            }
        }
        self.dirty = true;
        if !self.settled.is_empty() {
            // Whoever waits for an order must be able to see what it brought about.
            self.publish();
            for (order, outcome) in std::mem::take(&mut self.settled) {
                if let Some(mut replies) = self.orders.remove(&order) {
                    if let Some(accepted) = replies.accepted.take() {
                        let _ = accepted.send(());
                    }
                    let _ = replies.settled.send(outcome);
                }
            }
        }
    }

    /// As the gates were when they were last read.
    pub(super) fn busy(&self) -> Vec<(ReplicaId, u32)> {
        let busy = self.told.values().filter(|reading| reading.in_flight > 0);
        busy.map(|reading| (reading.replica, reading.in_flight))
            .collect()
    }

    fn read_gates(&mut self) -> Vec<GateReading> {
        let (told, guardians) = (&mut self.told, &self.guardians);
        self.gates
            .iter()
            .filter_map(|(&replica, gate)| {
                let reading = gate.reading();
                if told.insert(replica, reading) == Some(reading) {
                    return None;
                }
                guardians.used(replica, use_of(&reading));
                Some(reading)
            })
            .collect()
    }

    fn publish_if_due(&mut self) {
        let age = self.clock.now().since(self.published);
        if self.dirty && age.0 >= PUBLISH_EVERY.as_millis() as u64 {
            self.publish();
        }
    }

    pub(super) fn publish(&mut self) {
        let now = self.clock.now();
        self.snapshot.store(Arc::new(Snapshot {
            pool: remote_device::without_place(self.pool.view(now)),
            models: Arc::clone(&self.facts),
            processes: self.processes.clone(),
            fetches: self.fetch_facts(),
            logs: self
                .logs
                .iter()
                .map(|(&model, logs)| (model, logs.iter().cloned().collect()))
                .collect(),
            devices: Arc::clone(&self.devices),
            provider: self.provider,
            kinds: self.kinds.clone(),
        }));
        self.published = now;
        self.dirty = false;
    }

    pub(super) fn route(&self, model: ModelId) -> Option<Arc<Route>> {
        self.routes.load().of(model).cloned()
    }

    pub(super) fn name(&self, model: ModelId) -> String {
        self.facts
            .get(&model)
            .map_or_else(|| model.to_string(), |facts| facts.entry.name.clone())
    }

    /// Forgets the gate of a replica that is gone.
    pub(super) fn drop_gate(&mut self, replica: ReplicaId) -> Option<Arc<Gate>> {
        self.told.remove(&replica);
        self.gates.remove(&replica)
    }
}
