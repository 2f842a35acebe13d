//! The loop's state, and one turn of it: an event goes to the pool, and `execute` carries out the actions that the pool returns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::mpsc;

use super::background::Background;
use super::cluster_nodes::ClusterNodes;
use super::devices::Devices;
use super::engines::Engines;
use super::forecasts::Forecasts;
use super::heartbeat::{Heartbeat, OnPanic};
use super::launcher::Launcher;
use super::ledger::Ledger;
use super::models::Models;
use super::nodes::Nodes;
use super::parts::{Parts, Start};
use super::publication::Publishing;
use super::read_ahead::Reader;
use super::timers::Timers;
use super::usage::Usage;
use crate::clock::Clock;
use crate::gates::{EarlierSeats, GateReport, Orders, SeatRequests};
use crate::journal::{Job, Journal};
use crate::messages::Message;
use crate::view::{Fetches, LoadTimeline, NodeUse, Snapshot, remote_device};
use config::{Config, LiveConfig};
use pool::{Action, Event, Pool, PrefetchCandidate, ReplicaId};

pub(crate) struct Control {
    /// The first field: it is dropped before the state it concerns.
    _on_panic: OnPanic,
    pub heartbeat: Option<Heartbeat>,
    pub pool: Pool,
    pub clock: Clock,
    /// The configuration in force for this loop. A reload replaces it, and `live` for all other readers.
    pub config: Arc<Config>,
    pub live: LiveConfig,
    pub journal: Journal,
    pub launcher: Launcher,
    pub models: Models,
    pub devices: Devices,
    pub nodes: Nodes,
    pub cluster: ClusterNodes,
    pub engines: Engines,
    pub earlier_seats: EarlierSeats,
    pub seats: SeatRequests,
    pub forecasts: Forecasts,
    pub orders: Orders,
    pub fetches: Fetches,
    pub usage: Usage,
    pub ledger: Ledger,
    pub reader: Reader,
    pub publishing: Publishing,
    pub load_timeline: LoadTimeline,
    pub background: Background,
    pub timers: Timers,
    pub finished: bool,
}

impl Control {
    pub fn new(
        parts: Parts,
        inbox: mpsc::UnboundedSender<Message>,
        jobs: mpsc::UnboundedSender<Job>,
        numbers: &Arc<AtomicU64>,
    ) -> (Control, Start) {
        let config = parts.config.get();
        // Two controllers share a database only on PostgreSQL.
        let (started, is_shared) = (parts.clock.wall(), parts.store.path().is_none());
        let control = Control {
            _on_panic: OnPanic::new(&parts.guardians),
            heartbeat: parts.heartbeat,
            pool: Pool::new(
                config.limits(),
                parts.night,
                ReplicaId(parts.last_replica + 1),
            ),
            clock: parts.clock,
            config,
            live: parts.config,
            journal: Journal::new(parts.store, jobs),
            launcher: Launcher::new(
                parts.executable,
                parts.cuda,
                (parts.runtime_dir, parts.log_dir),
                parts.serve_writers,
            ),
            models: Models::default(),
            devices: Devices::new(&parts.inventory),
            nodes: Nodes::new(rand::random(), Arc::clone(numbers)),
            cluster: ClusterNodes::default(),
            engines: Engines::new(parts.guardians),
            earlier_seats: parts.seats,
            seats: SeatRequests::new(),
            forecasts: Forecasts::default(),
            orders: Orders::default(),
            fetches: Fetches::new(parts.sources),
            usage: Usage::new(parts.measurements),
            ledger: Ledger::new(parts.ledger_seen, started, is_shared),
            reader: Reader::default(),
            publishing: Publishing::new(),
            load_timeline: LoadTimeline::default(),
            background: Background::new(inbox),
            timers: Timers::default(),
            finished: false,
        };
        let start = Start {
            inventory: parts.inventory,
            cordons: parts.cordons,
            nodes: parts.nodes,
            remembered: parts.remembered,
            wishes: parts.wishes,
            catalog: parts.catalog,
            figures: parts.figures,
            found: parts.found,
        };
        (control, start)
    }

    /// Reports a jump of the machine's clock to the pool.
    pub(crate) fn follow_wall_clock(&mut self) {
        if let Some(ahead) = self.timers.wall_clock_jump(&self.clock) {
            self.turn(Event::WallClockJumped { ahead });
        }
    }

    pub(crate) fn turn(&mut self, event: Event) {
        self.turn_all(vec![event]);
    }

    /// One turn: takes the gates' counts and the events, and then each event that executing an action returns immediately.
    pub(crate) fn turn_all(&mut self, events: Vec<Event>) {
        let now = self.clock.now();
        let elapsed = self.timers.turn(now);
        self.usage.count_seats(&self.engines, elapsed);
        let (readings, gates) = self.engines.read_gates(now, &mut self.ledger);
        let mut news = vec![Event::GatesRead { readings }];
        if !gates.is_empty() {
            news.push(Event::KeysRead { gates });
        }
        news.extend(events);
        let mut responses = VecDeque::new();
        let (mut has_recorded, mut changes_memory) = (false, false);
        let idle_matters = loop {
            let response = self.pool.step_all(now, news);
            self.timers.wake_at(response.wake);
            has_recorded |= response.actions.iter().any(is_record);
            changes_memory |= response.actions.iter().any(may_change_memory);
            if has_recorded && response.actions.iter().any(ends_a_wait) {
                // A caller that is admitted or refused now and then reads the pool must see the records made before.
                self.publish();
                has_recorded = false;
            }
            for action in response.actions {
                responses.extend(self.execute(action));
            }
            match responses.pop_front() {
                Some(event) => news = vec![event],
                None => break response.idle_matters,
            }
        };
        if changes_memory {
            self.account_for(now);
        }
        let mattered = self.engines.set_idle_matters(idle_matters);
        if idle_matters && !mattered {
            // A replica may have become idle after its gate was read and before the gate knew that this matters.
            self.background.send(Message::Gate(GateReport::SeatFreed));
        }
        if self.config.parking.read_ahead {
            let (pool, models) = (&self.pool, &self.models);
            let next = self.reader.choose_for_load(pool, models, self.clock.now());
            self.read_ahead(next);
        }
        self.publishing.outdated();
        let settled = self.orders.take_settled();
        if !settled.is_empty() {
            // Callers that wait for an order must be able to see its effects.
            self.publish();
            self.journal.write(Job::Settled(settled));
        }
    }

    /// Reads the weights of this model ahead, if there is one.
    pub(crate) fn read_ahead(&mut self, next: Option<PrefetchCandidate>) {
        if let Some(next) = next {
            let (parking, background) = (&self.config.parking, &self.background);
            self.reader
                .read(&next, &self.models, &self.engines, parking, background);
        }
    }

    /// Publishes immediately if that is cheap, and otherwise at the next regular time. For changes that no caller waits for.
    pub(crate) fn publish_if_quick(&mut self) {
        if self.publishing.is_quick() {
            self.publish()
        } else {
            self.publishing.outdated()
        }
    }

    pub(crate) fn publish(&mut self) {
        let now = self.clock.now();
        let mut pool = remote_device::without_place(self.pool.view(now));
        self.forecasts.show(&mut pool.waiting, now);
        let snapshot = Snapshot {
            on_nodes: NodeUse::all(&pool, self.engines.facts()),
            pool,
            models: Arc::clone(self.models.facts()),
            processes: self.engines.facts().clone(),
            fetches: self.fetches.facts(),
            logs: self.engines.logs(),
            devices: Arc::clone(self.devices.known()),
            provider: self.devices.provider(),
            device_time: self.ledger.totals(),
            nodes: self.nodes.facts(),
            runs_alone: self.runs_alone(),
            kinds: self.devices.kinds().clone(),
        };
        self.publishing.publish(now, snapshot);
        self.publishing.took(self.clock.now().since(now));
        self.foresee();
    }
}

fn is_record(action: &Action) -> bool {
    matches!(action, Action::Record(_))
}

/// Returns true if the action comes with a change of the memory of a replica or a device. Every change is recorded in the history.
fn may_change_memory(action: &Action) -> bool {
    matches!(
        action,
        Action::Record(_)
            | Action::Launch { .. }
            | Action::Park { .. }
            | Action::Wake { .. }
            | Action::Stop { .. }
            | Action::Disown { .. }
    )
}

/// Returns true if the action lets requests continue, in the queue or at the gate.
fn ends_a_wait(action: &Action) -> bool {
    matches!(
        action,
        Action::Grant { .. } | Action::Refuse { .. } | Action::SetGate { .. }
    )
}
