//! Checks a storm from outside, with its own record of memory, seats, priorities, failures and responses, derived from the orders,
//! the real state and the actions. It trusts the pool only for dropped loads, which no action shows; for expected reload times,
//! which are estimates; and for the cost of following the better rule, which is a sum of estimates.
//! One file because its records are changed by the same actions and compared at the same times.

use alloc::string::String;
use alloc::vec::Vec;

mod bounds;
mod cheapest;
mod eviction;
mod failures;
mod fetching;
mod host;
mod leaving;
mod memory;
mod sleepers;
mod yielding;

use alloc::collections::{BTreeMap, BTreeSet};

use failures::Failures;
use memory::DeviceMemory;
use pool::{
    Action, Bytes, Command, DeviceId, DeviceReading, Event, KeyId, Limits, LoadOrder, ModelId,
    ModelSpec, NodeId, OrderId, Outcome, Override, Priority, RecordKind, ReplicaId, Share, Span,
    StopReason, Ticket, Time,
};

/// The most that parts and sleepers may take on a host, and what was left of it at the last reading.
#[derive(Clone, Copy, Debug)]
struct HostLimit {
    limit: Bytes,
    left: Bytes,
}

/// The rules and limits that the referee enforces.
#[derive(Clone, Debug)]
pub struct Referee {
    limits: Limits,
    devices: BTreeMap<DeviceId, DeviceMemory>,
    /// From the launch to the real end.
    replicas: BTreeMap<ReplicaId, ReplicaRecord>,
    /// Ended, but not yet reported to the pool.
    ended: BTreeMap<ReplicaId, ReplicaRecord>,
    /// Planned loads that have not been launched.
    planned: BTreeMap<ReplicaId, Planned>,
    /// The planned loads that the pool keeps or launches in the step being judged.
    kept: BTreeSet<ReplicaId>,
    /// Evicted in this step, for the load whose record comes next.
    victims: Vec<ReplicaId>,
    specs: BTreeMap<ModelId, ModelSpec>,
    failures: BTreeMap<ModelId, Failures>,
    overrides: BTreeMap<ModelId, Override>,
    received: BTreeMap<OrderId, Command>,
    /// Load orders and the time each was received, from which its lease counts.
    loads: BTreeMap<OrderId, (Time, LoadOrder)>,
    names: BTreeMap<String, ModelId>,
    open_tickets: BTreeMap<Ticket, OpenRequest>,
    /// The pool's figures of how much each key has been served.
    levels: BTreeMap<KeyId, u64>,
    open_orders: BTreeSet<OrderId>,
    night: bool,
    /// Models whose weights are missing on this machine, and models being fetched.
    absent: BTreeSet<ModelId>,
    fetching: BTreeSet<ModelId>,
    /// The maximum for sleepers on each node.
    hosts: BTreeMap<NodeId, Bytes>,
    /// The memory of each node's host without its reserve, if it is known.
    host_limits: BTreeMap<NodeId, HostLimit>,
    /// The shortest load of each model so far.
    shortest_loads: BTreeMap<ModelId, Span>,
    /// The number of times a device was taken out of service.
    pub cordons: u64,
    /// The number of victim choices that were compared with every alternative.
    pub judged: u64,
    pub broken: Vec<String>,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    model: ModelId,
    since: Time,
    key: KeyId,
}

/// From the order to sleep until it is awake.
#[derive(Clone, Debug)]
struct Sleeper {
    host: Bytes,
    awake: Vec<Share>,
    /// The time it had fallen asleep.
    since: Option<Time>,
}

#[derive(Clone, Debug)]
struct ReplicaRecord {
    model: ModelId,
    shares: Vec<Share>,
    launched: Time,
    ready: Option<Time>,
    closed: Option<Time>,
    /// It is a victim, and may serve until the others of its load have finished (P8).
    marked: bool,
    /// Its gate was to close if it was idle, and it was not.
    stays_open: bool,
    stopping: Option<StopReason>,
    idle_since: Option<Time>,
    used: bool,
    /// The time until which its load has a disk or link reserved.
    reads_until: Time,
    sleeper: Option<Sleeper>,
    /// The deadline of the order to stop, and its reason.
    due: Option<(Time, &'static str)>,
}

impl ReplicaRecord {
    fn stays(&self) -> bool {
        let asleep = self
            .sleeper
            .as_ref()
            .is_some_and(|sleeper| sleeper.since.is_some());
        self.serves() && !self.marked || asleep && self.stopping.is_none()
    }

    /// Its gate is open.
    fn serves(&self) -> bool {
        self.stopping.is_none() && self.closed.is_none()
    }
}

#[derive(Clone, Debug)]
struct Planned {
    model: ModelId,
    shares: Vec<Share>,
    /// Only waiting requests called for it.
    for_requests: bool,
}

impl Referee {
    /// A drain that has begun keeps its deadline, so no stream may be cut before the shortest limit so far.
    pub fn limits_change(&mut self, limits: &Limits) {
        self.limits.preempt_drain = self.limits.preempt_drain.min(limits.preempt_drain);
        self.limits.idle_yields = limits.idle_yields;
    }

    pub fn new(
        limits: Limits,
        readings: &BTreeMap<DeviceId, DeviceReading>,
        measured: bool,
        specs: BTreeMap<ModelId, ModelSpec>,
    ) -> Referee {
        let names = specs
            .iter()
            .map(|(&id, spec)| (spec.name.clone(), id))
            .collect();
        Referee {
            limits,
            devices: readings
                .iter()
                .map(|(&id, reading)| (id, DeviceMemory::new(reading, measured)))
                .collect(),
            replicas: BTreeMap::new(),
            ended: BTreeMap::new(),
            planned: BTreeMap::new(),
            kept: BTreeSet::new(),
            victims: Vec::new(),
            absent: BTreeSet::new(),
            fetching: BTreeSet::new(),
            failures: specs.keys().map(|&id| (id, Failures::default())).collect(),
            specs,
            overrides: BTreeMap::new(),
            received: BTreeMap::new(),
            loads: BTreeMap::new(),
            names,
            open_tickets: BTreeMap::new(),
            levels: BTreeMap::new(),
            open_orders: BTreeSet::new(),
            night: false,
            hosts: BTreeMap::new(),
            host_limits: BTreeMap::new(),
            shortest_loads: BTreeMap::new(),
            cordons: 0,
            judged: 0,
            broken: Vec::new(),
        }
    }

    fn priority(&self, model: ModelId, now: Time) -> Priority {
        let over = self
            .overrides
            .get(&model)
            .filter(|over| over.expires.is_none_or(|at| at > now));
        over.and_then(|over| over.priority)
            .unwrap_or(self.specs[&model].priority)
    }

    fn is_leased(&self, model: ModelId, now: Time) -> bool {
        let over = self.overrides.get(&model);
        over.and_then(|over| over.expires)
            .is_some_and(|expires| expires > now)
    }

    fn protected(&self, model: ModelId, now: Time) -> bool {
        !self.night && self.priority(model, now) >= Priority::ALWAYS_HOT
    }

    /// An event, before the pool observes it.
    pub fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::RequestArrived { ticket, model, key } => {
                let request = OpenRequest {
                    model: *model,
                    since: now,
                    key: *key,
                };
                self.open_tickets.insert(*ticket, request);
            }
            Event::RequestLeft { ticket } => {
                self.open_tickets.remove(ticket);
            }
            Event::OrderReceived { order, command }
            | Event::PlannedOrderReceived { order, command, .. } => {
                self.open_orders.insert(*order);
                self.received.insert(*order, command.clone());
                match command {
                    Command::Load(load) => {
                        self.loads.insert(*order, (now, load.clone()));
                    }
                    Command::Reopen => self.night = false,
                    _ => {}
                }
            }
            Event::Saved { order } => {
                if let Some(command) = self.received.remove(order)
                    && self.open_orders.contains(order)
                {
                    let received = self.loads.get(order).map_or(now, |(at, _)| *at);
                    self.counts(now, received, command);
                }
            }
            Event::SaveFailed { order, .. } => {
                self.received.remove(order);
            }
            Event::ModelSet { model, spec } => self.model_set(*model, spec.absent),
            // Its loads from before the restart are not known here.
            Event::Remembered { model, .. } => self.loaded_in(*model, Span::ZERO),
            Event::FetchEnded { model, end } => self.fetch_ended(now, *model, end),
            Event::ReplicaExited { replica, exit } => self.exited(now, *replica, exit),
            Event::LoadsFrom { replica, tier } => self.loads_from(now, *replica, *tier),
            Event::ModelMeasured {
                model,
                devices,
                kind,
                ..
            } => {
                let failures = self.failures.get_mut(model).expect("a model of ours");
                failures.too_small.remove(&(*devices, *kind));
            }
            Event::HostRead { node, reading } => self.host_read(*node, reading),
            Event::DeviceFailed { device, lost, .. } => self.device_failed(now, *device, *lost),
            Event::CordonRestored { device, .. } => {
                self.device_memory(*device).cordoned = true;
            }
            _ => {}
        }
    }

    /// An order takes effect once the store has it.
    fn counts(&mut self, now: Time, received: Time, command: Command) {
        match command {
            Command::Set { model, change } => {
                let over = self.overrides.entry(model).or_default();
                *over = change.on(over);
            }
            Command::Load(load) => {
                let mut over = self.overrides.get(&load.model).cloned().unwrap_or_default();
                over.priority = load.priority.or(over.priority);
                over.expires = load.lease.map(|lease| received + lease).or(over.expires);
                self.overrides.insert(load.model, over);
                self.forget_failures(load.model);
            }
            Command::Reset => {
                for model in self.specs.keys().copied().collect::<Vec<_>>() {
                    self.forget_failures(model);
                }
            }
            Command::Cordon {
                device, now: cut, ..
            } => self.cordoned(now, device, cut),
            Command::Uncordon { device } => self.device_memory(device).cordoned = false,
            _ => {}
        }
    }

    /// A cleanup takes effect once the store has it.
    pub fn night_falls(&mut self) {
        self.night = true;
    }

    pub fn seat_ended(&mut self, replica: ReplicaId, now: Time, in_flight: u32) {
        if let Some(seen) = self.replicas.get_mut(&replica) {
            seen.idle_since = (in_flight == 0).then_some(now);
        }
    }

    pub fn seat_taken(&mut self, replica: ReplicaId) {
        if let Some(seen) = self.replicas.get_mut(&replica) {
            seen.idle_since = None;
            seen.used = true;
        }
    }

    pub fn ready(&mut self, replica: ReplicaId, now: Time) {
        let Some(seen) = self.replicas.get_mut(&replica) else {
            return;
        };
        if seen.stopping.is_none() {
            seen.idle_since = Some(now);
            seen.ready = Some(now);
            let is_woken = seen.sleeper.take().is_some();
            let (model, took) = (seen.model, now.since(seen.launched));
            self.failures.get_mut(&model).expect("known").succeeded(now);
            if !is_woken {
                self.loaded_in(model, took);
            }
        }
    }

    /// Takes the pool's figures of how much the waiting keys have been served. The key storms check them.
    pub fn keys_are_served(&mut self, level: impl Fn(KeyId) -> u64) {
        let keys = self.open_tickets.values().map(|request| request.key);
        self.levels = keys.map(|key| (key, level(key))).collect();
    }

    /// Records which loads remain after a step, before its actions are judged individually.
    pub fn step_begins(&mut self, now: Time, actions: &[Action], planned: BTreeSet<ReplicaId>) {
        let launched = actions.iter().filter_map(|action| match action {
            Action::Launch { replica, .. } | Action::Wake { replica, .. } => Some(*replica),
            _ => None,
        });
        // A load that was dropped earlier no longer has a promise.
        let before = core::mem::replace(&mut self.kept, planned);
        self.planned.retain(|load, _| before.contains(load));
        self.kept.extend(launched);
        self.victims.clear();
        self.who_should_be_gone(now);
    }

    /// An action of the pool. `in_flight` returns the number of seats really taken on a replica.
    pub fn action(&mut self, now: Time, action: &Action, in_flight: impl Fn(ReplicaId) -> u32) {
        match action {
            Action::Grant { ticket, replica } => {
                self.responded(*ticket);
                self.seat_taken(*replica);
                match self.replicas.get(replica) {
                    None => self.broken.push(format!(
                        "Q4: {ticket} got a seat on {replica}, which does not exist"
                    )),
                    Some(seen) if !seen.serves() => {
                        self.broken.push(format!(
                            "L1: {ticket} got a seat on {replica}, which leaves"
                        ));
                    }
                    Some(_) => {}
                }
            }
            Action::Refuse { ticket, refusal } => {
                self.refused(*ticket, refusal);
                self.responded(*ticket);
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => {
                self.has_weights(*replica, *model);
                self.launched(now, *replica, *model, placement);
            }
            Action::Fetch { model } => self.fetch_begins(now, *model),
            Action::EndFetch { model } => self.fetch_is_to_end(*model),
            Action::Park { replica, reason } => {
                self.parked(*replica, in_flight(*replica));
                self.reason_holds(now, *replica, reason, in_flight(*replica));
            }
            Action::Wake { replica, .. } => self.woken(now, *replica),
            Action::SetGate { replica, .. } => {
                if let Some(seen) = self.replicas.get_mut(replica) {
                    seen.stays_open = false;
                    if seen.closed.take().is_some() {
                        seen.marked = false;
                    }
                }
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let busy = in_flight(*replica) > 0;
                if let Some(seen) = self.replicas.get_mut(replica) {
                    seen.stays_open = if_idle_at.is_some() && busy;
                    if !seen.stays_open {
                        seen.closed = Some(now);
                    }
                }
            }
            Action::Stop {
                replica, reason, ..
            } => {
                self.goes_on(*replica, reason);
                self.stop(now, *replica, reason, in_flight(*replica));
            }
            Action::Settle { order, outcome } => self.settled(*order, outcome),
            Action::Keep {
                wish: pool::Wish::Override { model, over },
            } => {
                self.overrides.insert(*model, over.clone());
            }
            Action::Record(record) => match (record.kind, record.replica) {
                (RecordKind::Evict, Some(victim)) => {
                    self.evicted(now, victim, &record.reason);
                }
                (RecordKind::Load, Some(load)) => self.load_decided(now, load, record),
                (RecordKind::Stay, Some(victim)) => {
                    if let Some(seen) = self.replicas.get_mut(&victim) {
                        seen.marked = false;
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Another replica than the victim. A planted fault can evict it along with the victim.
    pub fn bystander(&self, victim: Option<ReplicaId>) -> Option<ReplicaId> {
        let stays = self
            .replicas
            .iter()
            .find(|(id, seen)| Some(**id) != victim && seen.ready.is_some() && seen.stays());
        stays.map(|(&id, _)| id)
    }

    fn settled(&mut self, order: OrderId, outcome: &Outcome) {
        if !self.open_orders.remove(&order) {
            self.broken.push(format!("{order} was settled twice"));
        }
        match outcome {
            Outcome::Loaded(result)
                if result.ready.len() < result.wanted as usize && result.shortfall.is_none() =>
            {
                self.broken.push(format!(
                    "{order} got less than it requested, without a reason"
                ));
            }
            Outcome::Cordoned { replicas } => {
                for replica in replicas {
                    if self.replicas.contains_key(replica) {
                        let what = format!("M7: {order} is settled and {replica} is still there");
                        self.broken.push(what);
                    }
                }
            }
            _ => {}
        }
    }

    fn responded(&mut self, ticket: Ticket) {
        if self.open_tickets.remove(&ticket).is_none() {
            self.broken
                .push(format!("Q4: {ticket} was answered twice, or after it left"));
        }
    }

    /// Nothing may be left when the pool has finished.
    pub fn finish(&mut self) {
        for ticket in self.open_tickets.keys() {
            self.broken.push(format!("Q4: {ticket} was never answered"));
        }
        for order in &self.open_orders {
            self.broken.push(format!("{order} was never settled"));
        }
        for replica in self.replicas.keys() {
            self.broken.push(format!("D2: {replica} is left behind"));
        }
    }

    fn device_memory(&mut self, device: DeviceId) -> &mut DeviceMemory {
        self.devices.get_mut(&device).expect("a device of ours")
    }
}
