//! Storms: a seeded world of devices, models, impatient clients, administrators, crashing and lying
//! engines and a slow store, played against the real core until it has shut down. The same seed gives
//! the same transcript.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::random::Random;
use super::referee::Referee;
use super::weather::{devices, models};
use super::world::World;
use crate::pool::{
    Action, Bytes, DeviceId, DeviceReading, Event, Exit, KeyId, Limits, ModelId, ModelSpec,
    OrderId, Pool, RecordKind, ReplicaId, Span, Ticket, Time, check,
};

/// A fault of ours, planted in the world around the core, which the referee must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The pool is told that a process is gone when it was only asked to go.
    StoppingCountsAsFree,
    /// A gate says it is idle when it is not.
    GateLies,
    /// One in a hundred answers is given twice.
    AnsweredTwice,
}

#[derive(Clone, Debug)]
pub struct Storm {
    pub seed: u64,
    pub requests: u64,
    pub orders: u64,
    pub fault: Option<Fault>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StormReport {
    pub steps: u64,
    pub requests: u64,
    pub seated_by_gate: u64,
    pub granted: u64,
    pub refused: u64,
    pub left: u64,
    pub launches: u64,
    pub crashes: u64,
    pub evictions: u64,
    pub settled: u64,
    pub finished: bool,
    pub transcript_hash: u64,
    /// What the referee or the checker found; empty is good.
    pub broken: Vec<String>,
}

/// The longest a world lives before everything must have come to rest.
const STEPS_MAX: u64 = 200_000;
const HOUR_MS: u64 = 3_600_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival(Ticket, ModelId, KeyId),
    /// The client hangs up, wherever it is.
    HangUp(Ticket),
    Served(Ticket),
    Ready(ReplicaId),
    Crash(ReplicaId),
    Gone(ReplicaId),
    Saved(OrderId),
    Order(OrderId),
    Foreign(DeviceId, Bytes),
    /// News that no healthy engine would send.
    Lie(ReplicaId, u64),
}

pub(super) struct Play {
    pub(super) random: Random,
    world: World,
    pub(super) referee: Referee,
    heap: BinaryHeap<Reverse<(Time, u64, Due)>>,
    sequence: u64,
    pub(super) specs: BTreeMap<ModelId, ModelSpec>,
    readings: BTreeMap<DeviceId, DeviceReading>,
    /// Processes that really run.
    running: BTreeMap<ReplicaId, bool>,
    replica_model: BTreeMap<ReplicaId, ModelId>,
    waiting: BTreeMap<Ticket, ModelId>,
    pub(super) cleanups: BTreeMap<OrderId, ()>,
    fault: Option<Fault>,
    report: StormReport,
}

impl Storm {
    pub fn new(seed: u64) -> Storm {
        Storm {
            seed,
            requests: 150,
            orders: 12,
            fault: None,
        }
    }

    /// Plays it to the end.
    pub fn run(&self) -> StormReport {
        let mut play = Play::new(self);
        while play.report.steps < STEPS_MAX
            && play.report.broken.is_empty()
            && !play.report.finished
        {
            let next = play.heap.peek().map(|Reverse((at, ..))| *at);
            match (play.world.wake, next) {
                (None, None) => break,
                (Some(wake), next) if next.is_none_or(|next| wake < next) => {
                    play.feed(wake, Event::Woke)
                }
                _ => {
                    let Reverse((at, _, due)) = play.heap.pop().expect("peeked");
                    play.happens(at, due);
                }
            }
        }
        if play.report.broken.is_empty() {
            if !play.report.finished {
                play.report
                    .broken
                    .push("the pool did not come to an end".to_owned());
            }
            play.referee.finish();
            let found = std::mem::take(&mut play.referee.broken);
            play.report.broken.extend(found);
        }
        play.report
    }
}

impl Play {
    fn new(storm: &Storm) -> Play {
        let mut random = Random::new(storm.seed);
        let limits = Limits {
            preempt_drain: Span::from_secs(random.between(1, 40)),
            ..Limits::default()
        };
        let preempt_drain = limits.preempt_drain;
        let readings = devices(&mut random);
        let specs = models(&mut random, readings.len() as u64);
        let capacity = readings
            .iter()
            .map(|(&id, it)| (id, it.total.saturating_sub(it.headroom)))
            .collect();
        let mut play = Play {
            world: World::new(Pool::new(limits, random.chance(200), ReplicaId(1))),
            referee: Referee::new(capacity, specs.clone(), preempt_drain),
            heap: BinaryHeap::new(),
            sequence: 0,
            specs,
            readings,
            running: BTreeMap::new(),
            replica_model: BTreeMap::new(),
            waiting: BTreeMap::new(),
            cleanups: BTreeMap::new(),
            fault: storm.fault,
            report: StormReport::default(),
            random,
        };
        play.world.unsaved = Some(Vec::new());
        if play.world.pool.view(Time(0)).night {
            play.referee.night_falls();
        }
        for (device, reading) in play.readings.clone() {
            play.feed(Time(0), Event::DeviceRead { device, reading });
        }
        for (model, spec) in play.specs.clone() {
            play.feed(Time(0), Event::ModelSet { model, spec });
        }
        play.schedule(storm);
        play
    }

    fn schedule(&mut self, storm: &Storm) {
        let length = self.random.between(HOUR_MS / 12, HOUR_MS * 2);
        let count = self.specs.len() as u64;
        for ticket in 0..storm.requests {
            // Half of the requests come in bursts, and some models are wanted more than others.
            let at = match ticket % 2 {
                0 => self.random.below(length),
                _ => length / 8 * self.random.below(8) + self.random.below(2_000),
            };
            let model =
                ModelId((self.random.below(count) * self.random.below(count) / count) as u32);
            let key = KeyId(self.random.below(3));
            self.push(Time(at), Due::Arrival(Ticket(ticket), model, key));
        }
        for order in 0..storm.orders {
            let at = Time(self.random.below(length));
            self.push(at, Due::Order(OrderId(order)));
        }
        let devices: Vec<DeviceId> = self.readings.keys().copied().collect();
        for _ in 0..self.random.below(4) {
            let device = devices[self.random.below(devices.len() as u64) as usize];
            let bytes = Bytes(self.readings[&device].total.0 / 10 * self.random.below(6));
            let at = Time(self.random.below(length));
            self.push(at, Due::Foreign(device, bytes));
            self.push(at + Span(length / 4), Due::Foreign(device, Bytes::ZERO));
        }
        self.push(Time(length + HOUR_MS), Due::Order(OrderId(u64::MAX)));
    }

    fn push(&mut self, at: Time, due: Due) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, due)));
    }

    fn happens(&mut self, at: Time, due: Due) {
        match due {
            Due::Arrival(ticket, model, key) => self.arrives(at, ticket, model, key),
            Due::HangUp(ticket) | Due::Served(ticket) if self.world.seats.contains_key(&ticket) => {
                self.ends(at, ticket)
            }
            Due::HangUp(ticket) => {
                if self.waiting.remove(&ticket).is_some() {
                    self.report.left += 1;
                    self.feed(at, Event::RequestLeft { ticket });
                }
            }
            Due::Served(_) => {}
            Due::Ready(replica) => {
                if self.running.get(&replica) == Some(&true) {
                    self.referee.ready(replica, at);
                    self.feed(at, Event::ReplicaReady { replica });
                }
            }
            Due::Crash(replica) => {
                if self.running.remove(&replica).is_some() {
                    self.report.crashes += 1;
                    self.process_gone(at, replica);
                    let message = "CUDA error: an illegal memory access".to_owned();
                    self.feed(
                        at,
                        Event::ReplicaExited {
                            replica,
                            exit: Exit::Failed { message },
                        },
                    );
                }
            }
            Due::Gone(replica) => {
                self.running.remove(&replica);
                self.process_gone(at, replica);
                self.feed(
                    at,
                    Event::ReplicaExited {
                        replica,
                        exit: Exit::Asked,
                    },
                );
            }
            Due::Saved(order) => {
                if self.cleanups.remove(&order).is_some() {
                    self.referee.night_falls();
                }
                let failed = self.random.chance(30);
                if failed {
                    self.feed(
                        at,
                        Event::SaveFailed {
                            order,
                            message: "disk full".to_owned(),
                        },
                    );
                } else {
                    self.feed(at, Event::Saved { order });
                }
            }
            Due::Order(order) => self.orders(at, order),
            Due::Foreign(device, bytes) => {
                let mut reading = self.readings[&device].clone();
                reading.foreign = bytes;
                self.feed(at, Event::DeviceRead { device, reading });
            }
            Due::Lie(replica, kind) => {
                let event = match kind {
                    0 => Event::ReplicaReady { replica },
                    1 => Event::Drained {
                        replica: ReplicaId(replica.0 + 1000),
                    },
                    _ => Event::ReplicaReady {
                        replica: ReplicaId(replica.0 + 1000),
                    },
                };
                // A second "ready" of a running engine is a lie that must change nothing.
                if kind != 0
                    || self
                        .world
                        .gates
                        .get(&replica)
                        .is_some_and(|gate| gate.mode.is_some())
                {
                    self.feed(at, event);
                }
            }
        }
    }

    fn arrives(&mut self, at: Time, ticket: Ticket, model: ModelId, key: KeyId) {
        self.report.requests += 1;
        let patience = self.random.below(600_000);
        if self.random.chance(250) {
            self.push(at + Span(patience), Due::HangUp(ticket));
        }
        let seats = self.specs[&model].seats_per_replica;
        let mut replicas: Vec<ReplicaId> = self
            .replica_model
            .iter()
            .filter(|(_, it)| **it == model)
            .map(|(&id, _)| id)
            .collect();
        replicas.retain(|replica| self.running.contains_key(replica));
        self.world.now = self.world.now.max(at);
        for replica in replicas {
            if self.world.enter(ticket, replica, seats) {
                self.report.seated_by_gate += 1;
                self.referee.seat_taken(replica);
                let took = self.random.between(20, 90_000);
                self.push(at + Span(took), Due::Served(ticket));
                return;
            }
        }
        self.waiting.insert(ticket, model);
        self.feed(at, Event::RequestArrived { ticket, model, key });
    }

    fn ends(&mut self, at: Time, ticket: Ticket) {
        let replica = self.world.seats[&ticket];
        let event = self.world.end(ticket, at);
        let in_flight = self
            .world
            .gates
            .get(&replica)
            .map_or(0, |gate| gate.in_flight);
        self.referee.seat_ended(replica, at, in_flight);
        if let Some(event) = event {
            self.feed(at, event);
        }
    }

    /// Requests inside a process that is gone end with it.
    fn process_gone(&mut self, at: Time, replica: ReplicaId) {
        self.referee.process_ended(replica);
        let inside: Vec<Ticket> = self
            .world
            .seats
            .iter()
            .filter(|(_, on)| **on == replica)
            .map(|(&ticket, _)| ticket)
            .collect();
        for ticket in inside {
            self.world.end(ticket, at);
        }
        self.world.gates.remove(&replica);
    }

    /// One event through the pool, the world and the referee.
    pub(super) fn feed(&mut self, at: Time, event: Event) {
        self.report.steps += 1;
        self.referee.event(at, &event);
        let actions = self.world.feed(at, event);
        for action in actions {
            self.mix(&format!("{at} {action:?}"));
            let lies = self.fault == Some(Fault::GateLies);
            let gates = &self.world.gates;
            let in_flight =
                |replica: ReplicaId| gates.get(&replica).map_or(0, |gate| gate.in_flight);
            self.referee.action(at, &action, in_flight);
            if lies {
                self.lie_about_gates();
            }
            self.carry_out(at, &action);
        }
        self.report.broken.append(&mut self.referee.broken);
        // Foreign memory may take what was reserved before it came; nobody over-commits by that.
        let violations = check(&self.world.pool);
        self.report
            .broken
            .extend(violations.iter().map(ToString::to_string));
    }

    /// The fault: a gate with requests inside claims to be empty, so that the pool stops it.
    fn lie_about_gates(&mut self) {
        let closed: Vec<ReplicaId> = self
            .world
            .gates
            .iter()
            .filter(|(_, gate)| gate.closed && gate.in_flight > 0)
            .map(|(&id, _)| id)
            .collect();
        for replica in closed {
            let now = self.world.now;
            let answer = self.world.pool.step(now, Event::Drained { replica });
            for action in answer.actions {
                let in_flight = self
                    .world
                    .gates
                    .get(&replica)
                    .map_or(0, |gate| gate.in_flight);
                self.referee.action(now, &action, |_| in_flight);
            }
        }
    }

    fn carry_out(&mut self, at: Time, action: &Action) {
        match action {
            Action::Grant { ticket, .. } => {
                self.report.granted += 1;
                self.waiting.remove(ticket);
                let took = self.random.between(20, 90_000);
                self.push(at + Span(took), Due::Served(*ticket));
                if self.fault == Some(Fault::AnsweredTwice) && self.random.chance(10) {
                    let again = action.clone();
                    self.referee.action(at, &again, |_| 0);
                }
            }
            Action::Refuse { ticket, .. } => {
                self.report.refused += 1;
                self.waiting.remove(ticket);
            }
            Action::Launch { replica, model, .. } => self.launches(at, *replica, *model),
            Action::Stop { replica, grace, .. } if self.running.contains_key(replica) => {
                self.running.insert(*replica, false);
                let slow = self.random.below(grace.0 + 500);
                self.push(at + Span(slow), Due::Gone(*replica));
                if self.fault == Some(Fault::StoppingCountsAsFree) {
                    self.world.gates.remove(replica);
                    let exit = Exit::Asked;
                    let replica = *replica;
                    self.feed(at, Event::ReplicaExited { replica, exit });
                }
            }
            Action::Save { order, .. } => {
                let slow = self.random.below(200);
                self.push(at + Span(slow), Due::Saved(*order));
            }
            Action::Settle { .. } => self.report.settled += 1,
            Action::Record(record) if record.kind == RecordKind::Evict => {
                self.report.evictions += 1;
                if let Some(replica) = record.replica {
                    self.referee.eviction(at, replica, &record.reason);
                }
            }
            Action::Finished => self.report.finished = true,
            _ => {}
        }
    }

    /// Most engines become ready; some crash while loading, some later, some never say a word.
    fn launches(&mut self, at: Time, replica: ReplicaId, model: ModelId) {
        self.report.launches += 1;
        self.running.insert(replica, true);
        self.replica_model.insert(replica, model);
        let usual = self.specs[&model].reload.0;
        let load = Span(self.random.between(usual / 2, usual * 2));
        match self.random.below(100) {
            0..=9 => {
                let early = Span(self.random.below(load.0));
                self.push(at + early, Due::Crash(replica));
            }
            10..=12 => {}
            13..=19 => {
                self.push(at + load, Due::Ready(replica));
                let later = Span(self.random.below(HOUR_MS / 4));
                self.push(at + load + later, Due::Crash(replica));
            }
            20..=26 => {
                self.push(at + load, Due::Ready(replica));
                let kind = self.random.below(3);
                self.push(at + load + Span(5_000), Due::Lie(replica, kind));
            }
            _ => self.push(at + load, Due::Ready(replica)),
        }
    }

    fn mix(&mut self, line: &str) {
        for byte in line.bytes() {
            self.report.transcript_hash =
                (self.report.transcript_hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
