//! Storms of wishes: administrators who give orders faster than a slow store writes, leases that end, loads and devices that fail,
//! models that leave the catalogue, and a controller that is killed at any time and restarts from the store. `expected` checks what
//! must hold (D1).
//! One file because the agenda of a storm and what each of its entries does are one table.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

mod disk;
mod expected;

use alloc::collections::{BTreeMap, BTreeSet};

use super::random::Random;
use super::world::World;
use disk::{Disk, Write};
use expected::ExpectedState;
use pool::{
    Action, Bytes, CleanupScope, Command, DeviceId, DeviceReading, Event, Exit, KeyId, Limits,
    LoadOrder, ModelId, ModelSpec, OrderId, OverrideChange, Pool, Priority, RecordKind, Remedy,
    ReplicaId, Span, Ticket, Time, Wish, check,
};

const MODELS: u32 = 4;
const DEVICES: u32 = 2;
/// Everything has been written and every lease has ended after this time.
const REST: Span = Span::from_secs(7_200);

#[derive(Clone, Debug)]
pub struct WishStorm {
    pub seed: u64,
    /// Number of events.
    pub steps: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WishReport {
    pub orders: u64,
    /// Orders whose wish was confirmed.
    pub accepted: u64,
    /// Orders refused because the store failed.
    pub unsaved: u64,
    pub kills: u64,
    pub leases_ended: u64,
    pub loads_failed: u64,
    /// Confirmed settings that do not hold; empty if all is well.
    pub broken: Vec<String>,
}

struct Play {
    random: Random,
    world: World,
    disk: Disk,
    expected: ExpectedState,
    specs: BTreeMap<ModelId, ModelSpec>,
    in_catalogue: BTreeSet<ModelId>,
    /// Engines, and whether each has been ordered to stop.
    engines: BTreeMap<ReplicaId, bool>,
    numbers: u64,
    report: WishReport,
}

impl WishStorm {
    pub fn new(seed: u64) -> WishStorm {
        WishStorm { seed, steps: 250 }
    }

    /// Runs until the store has written everything.
    pub fn run(&self) -> WishReport {
        let mut play = Play::new(self.seed);
        for _ in 0..self.steps {
            if !play.report.broken.is_empty() {
                return play.report;
            }
            play.time_passes();
            play.something_happens();
        }
        // At the end no write is in flight, and everything is compared.
        while play.report.broken.is_empty() && play.writes_next(false) {}
        play.wake_until(play.world.now + REST);
        while play.report.broken.is_empty() && play.writes_next(false) {}
        play.report
    }
}

impl Play {
    fn new(seed: u64) -> Play {
        let mut random = Random::new(seed);
        let spec = |nth: u32, random: &mut Random| ModelSpec {
            name: format!("model-{nth}"),
            priority: Priority([0, 1, 2][random.below(3) as usize]),
            bytes_per_device: Bytes(random.between(20, 60) * Bytes::GIB),
            keep_hot: Span::from_secs(random.between(5, 120)),
            ..ModelSpec::default()
        };
        let specs: BTreeMap<ModelId, ModelSpec> = (0..MODELS)
            .map(|nth| (ModelId(nth), spec(nth, &mut random)))
            .collect();
        let mut play = Play {
            world: World::new(Pool::new(Limits::default(), false, ReplicaId(1))),
            disk: Disk::default(),
            expected: ExpectedState::default(),
            in_catalogue: specs.keys().copied().collect(),
            specs,
            engines: BTreeMap::new(),
            numbers: 0,
            report: WishReport::default(),
            random,
        };
        play.begins(Time(0));
        play
    }

    /// Starts a controller with the catalogue, the devices and the content of the store.
    fn begins(&mut self, at: Time) {
        self.numbers += 1;
        let first = ReplicaId(self.numbers);
        self.world = World::new(Pool::new(Limits::default(), false, first));
        self.world.unsaved = Some(Vec::new());
        self.world.now = at;
        self.engines.clear();
        let mut events = Vec::new();
        for nth in 0..DEVICES {
            let reading = DeviceReading {
                name: format!("gpu{nth}"),
                total: Bytes(80 * Bytes::GIB),
                ..DeviceReading::default()
            };
            let device = DeviceId(nth);
            events.push(Event::DeviceRead { device, reading });
            if let Some(cordon) = self.disk.cordons.get(&device).cloned() {
                events.push(Event::CordonRestored { device, cordon });
            }
        }
        for (name, drain) in self.disk.drains.clone() {
            events.push(Event::NodeDrainRestored { name, drain });
        }
        for (&model, spec) in &self.specs {
            if self.in_catalogue.contains(&model) {
                let spec = spec.clone();
                events.push(Event::ModelSet { model, spec });
            }
            // Includes models that are not in the catalogue now.
            let load = self.disk.loads.get(&model).cloned();
            let over = self.disk.over(model);
            events.push(Event::WishesRestored { model, over, load });
        }
        // The pool observes all of them before it decides anything, as at a real start.
        let response = self.world.pool.step_all(at, events);
        self.world.wake = response.wake;
        self.done(response.actions);
    }

    fn time_passes(&mut self) {
        // Events are distinguished by their times.
        let span = match self.random.below(4) {
            0 => Span(1),
            1 => Span(self.random.between(1, 50)),
            2 => Span(self.random.between(1, 5_000)),
            _ => Span(self.random.between(1, 30_000)),
        };
        self.wake_until(self.world.now + span);
    }

    fn wake_until(&mut self, at: Time) {
        while let Some(wake) = self.world.wake.filter(|wake| *wake <= at)
            && self.report.broken.is_empty()
        {
            let wake = wake.max(self.world.now);
            self.feed(wake, Event::TimerFired);
            if self.world.wake == Some(wake) {
                break;
            }
        }
        self.world.now = self.world.now.max(at);
    }

    fn something_happens(&mut self) {
        let now = self.world.now;
        match self.random.below(100) {
            0..=29 => self.orders(now),
            30..=64 => {
                self.writes_next(true);
            }
            65..=84 => self.an_engine_reports(now),
            85..=91 => {
                let ticket = Ticket(self.number());
                let (model, key) = (self.model(), KeyId(0));
                self.feed(now, Event::RequestArrived { ticket, model, key });
            }
            92..=94 => self.the_catalogue_changes(now),
            95 | 96 => {
                let device = DeviceId(self.random.below(u64::from(DEVICES)) as u32);
                let lost = self.random.chance(300);
                let is_ending = self.disk.uncordons(device);
                self.expected.device_fails(device, lost, is_ending);
                let trouble = "Xid 79".to_owned();
                self.feed(
                    now,
                    Event::DeviceFailed {
                        device,
                        trouble,
                        lost,
                    },
                );
            }
            97 | 98 => self.is_killed(now),
            _ => self.seats_end(now),
        }
    }

    /// `kill -9`: the first write in flight may have completed, without a response.
    fn is_killed(&mut self, now: Time) {
        self.report.kills += 1;
        if let Some(write) = self.disk.in_flight.pop_front()
            && self.random.chance(500)
        {
            self.disk.write(write.wish);
        }
        self.disk.in_flight.clear();
        self.expected.begin_again(&self.disk);
        self.begins(now);
    }

    /// The store performs the next write; returns false if there is none.
    fn writes_next(&mut self, may_fail: bool) -> bool {
        let Some(write) = self.disk.in_flight.front().cloned() else {
            return false;
        };
        let now = self.world.now;
        // A write without an order is retried until it succeeds.
        if may_fail && self.random.chance(60) {
            if let Some(order) = write.order {
                self.disk.in_flight.pop_front();
                self.report.unsaved += 1;
                let message = "disk full".to_owned();
                self.feed(now, Event::SaveFailed { order, message });
            }
            return true;
        }
        self.disk.in_flight.pop_front();
        self.disk.write(write.wish);
        if let Some(order) = write.order {
            self.report.accepted += 1;
            self.expected.accepted(order);
            self.feed(now, Event::Saved { order });
        }
        true
    }

    fn orders(&mut self, now: Time) {
        let order = OrderId(self.number());
        let model = self.model();
        let random = &mut self.random;
        let priority = random
            .chance(400)
            .then(|| Priority(random.between(0, 3) as u32));
        let span = random
            .chance(300)
            .then(|| Span(random.between(1_000, 60_000)));
        let lease = random
            .chance(300)
            .then(|| Span(random.between(500, 60_000)));
        let device = DeviceId(random.below(u64::from(DEVICES)) as u32);
        let command = match random.below(20) {
            0..=6 => Command::Load(LoadOrder {
                model,
                replicas: Some(random.between(1, 2) as u32),
                devices: None,
                priority,
                keep_hot: span,
                lease,
                force: random.chance(150),
                waits: true,
            }),
            7..=12 => Command::Set {
                model,
                change: OverrideChange {
                    priority: random.chance(500).then_some(priority),
                    keep_hot: random.chance(400).then_some(span),
                    expires: random.chance(400).then(|| lease.map(|lease| now + lease)),
                },
            },
            13 | 14 => Command::Unload {
                model,
                replica: None,
                now: random.chance(500),
            },
            15 => Command::Cleanup {
                scope: CleanupScope::All,
                drain: Span::from_secs(5),
                begun: None,
            },
            16 => Command::Reopen,
            17 => Command::Reset,
            18 => Command::Cordon {
                device,
                reason: "maintenance".to_owned(),
                until: None,
                now: true,
            },
            _ => Command::Uncordon { device },
        };
        self.report.orders += 1;
        self.expected.received(order, command.clone(), now);
        self.feed(now, Event::OrderReceived { order, command });
    }

    fn an_engine_reports(&mut self, now: Time) {
        let nth = self.random.below(self.engines.len() as u64) as usize;
        let Some((&replica, &is_stopping)) = self.engines.iter().nth(nth) else {
            return;
        };
        let fails = self.random.chance(400);
        if !is_stopping && !fails {
            return self.feed(now, Event::ReplicaReady { replica });
        }
        self.engines.remove(&replica);
        let remedy = if self.random.chance(700) {
            Remedy::Time
        } else {
            Remedy::Change
        };
        let message = "no kernel image".to_owned();
        let exit = if is_stopping {
            Exit::Requested
        } else {
            Exit::Failed { message, remedy }
        };
        self.feed(now, Event::ReplicaExited { replica, exit });
    }

    /// Removes a model's file and reads the catalogue again, or restores it.
    fn the_catalogue_changes(&mut self, now: Time) {
        let model = self.model();
        if self.in_catalogue.remove(&model) {
            self.expected.load_is_over(model);
            self.feed(now, Event::ModelRemoved { model });
        } else {
            self.in_catalogue.insert(model);
            let spec = self.specs[&model].clone();
            self.feed(now, Event::ModelSet { model, spec });
        }
    }

    fn seats_end(&mut self, now: Time) {
        let seated: Vec<Ticket> = self.world.seats.keys().copied().collect();
        for ticket in seated {
            if let Some(event) = self.world.end(ticket, now) {
                self.feed(now, event);
            }
        }
    }

    fn model(&mut self) -> ModelId {
        ModelId(self.random.below(u64::from(MODELS)) as u32)
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn feed(&mut self, at: Time, event: Event) {
        let actions = self.world.feed(at, event);
        self.done(actions);
        let view = self.world.pool.view(self.world.now);
        self.expected.compare(&self.disk, &view);
        let broken = core::mem::take(&mut self.expected.broken);
        self.report.broken.extend(broken);
        let violations = check(&self.world.pool);
        let violations = violations.iter().map(ToString::to_string);
        self.report.broken.extend(violations);
    }

    fn done(&mut self, actions: Vec<Action>) {
        let now = self.world.now;
        for action in actions {
            match action {
                Action::Save { order, wish } => {
                    let order = Some(order);
                    self.disk.in_flight.push_back(Write { order, wish });
                }
                Action::Keep { wish } => {
                    if let Wish::Load {
                        model,
                        wish: Some(away),
                    } = &wish
                        && away.replicas == 0
                    {
                        self.expected.load_is_over(*model);
                    }
                    self.disk.in_flight.push_back(Write { order: None, wish });
                }
                Action::Settle { order, outcome } => self.expected.settled(order, &outcome),
                Action::Launch { replica, .. } => {
                    self.engines.insert(replica, false);
                }
                Action::Stop { replica, .. } => {
                    if let Some(is_stopping) = self.engines.get_mut(&replica) {
                        *is_stopping = true;
                    }
                }
                Action::Record(record) if record.kind == RecordKind::LeaseEnded => {
                    self.report.leases_ended += 1;
                    let named = |(_, spec): &(&ModelId, &ModelSpec)| {
                        record.model.as_ref() == Some(&spec.name)
                    };
                    if let Some((&model, _)) = self.specs.iter().find(named) {
                        self.expected.lease_ends(model, now);
                    }
                }
                Action::Record(record) if record.kind == RecordKind::LoadFailed => {
                    self.report.loads_failed += 1;
                }
                _ => {}
            }
        }
    }
}
