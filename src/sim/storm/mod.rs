//! Storms: a seeded world of devices, models, impatient clients, administrators, engines that crash and send false reports, failing
//! devices, memory that is returned late and a slow store, run against the real core until it has shut down. The same seed gives
//! the same transcript.
//! One file because the agenda of a storm and what each of its entries does are one table.

use alloc::borrow::ToOwned;
use alloc::string::ToString;
use alloc::vec::Vec;

mod bounds;
mod clients;
mod conditions;
mod engines;
mod fairness;
mod fetching;
mod hardware;
mod hosts;
mod measurements;
mod orders;
mod readings;
mod settings;

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use core::cmp::Reverse;

use super::random::Random;
use super::referee::Referee;
use super::world::World;
use conditions::Conditions;
use engines::Process;
use fairness::FairnessCheck;
use hardware::Hardware;
use measurements::Measurements;
use pool::{
    Bytes, DeviceId, DeviceReading, Event, Exit, KeyId, ModelId, ModelSpec, NodeId, OrderId, Pool,
    Remedy, ReplicaId, Span, Ticket, Tier, Time, check,
};
pub use settings::{Fault, Storm, StormReport};

/// The maximum number of steps of a world before it must have finished.
const STEPS_MAX: u64 = 200_000;
const HOUR_MS: u64 = 3_600_000;
/// The number of steps between two plans that are judged.
const PLANS_EVERY: u64 = 10;
/// With many devices, the ledgers are checked at most once per this many steps.
const CHECK_MANY_EVERY: u64 = 10;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival(Ticket, ModelId, KeyId),
    /// The client hangs up, whether it waits or is being served.
    HangUp(Ticket),
    /// The client hangs up if it has no seat.
    GivesUp(Ticket),
    Served(Ticket),
    Ready(ReplicaId),
    Source(ReplicaId, Tier),
    Crash(ReplicaId),
    /// The load needs this much on each device, more than it has reserved.
    OutOfMemory(ReplicaId, Bytes),
    Grows(ReplicaId),
    FetchProgressed(ModelId, Time, Span),
    /// The flag is true if it fails.
    FetchEnds(ModelId, Time, bool),
    FetchStopped(ModelId, Time),
    /// Its weights are deleted.
    Vanishes(ModelId),
    Asleep(ReplicaId),
    SleepFails(ReplicaId),
    WakeFails(ReplicaId),
    HostRead(NodeId),
    Gone(ReplicaId),
    Returned(DeviceId, ReplicaId),
    /// A reading is taken. The flag is true if memory is settling, false if the reading is periodic.
    Reading(DeviceId, bool),
    /// A reading reaches the pool.
    Reported(DeviceId, u64),
    Saved(OrderId),
    Order(OrderId),
    Uncordon(DeviceId),
    Trouble(DeviceId, bool),
    Foreign(DeviceId, Bytes),
    /// A report that a healthy engine would never send.
    Lie(ReplicaId, u64),
}

struct Play {
    random: Random,
    conditions: Conditions,
    world: World,
    referee: Referee,
    fairness: Option<FairnessCheck>,
    heap: BinaryHeap<Reverse<(Time, u64, Due)>>,
    sequence: u64,
    specs: BTreeMap<ModelId, ModelSpec>,
    hardware: BTreeMap<DeviceId, Hardware>,
    /// Readings in flight, with the real foreign memory.
    on_the_way: BTreeMap<u64, (DeviceReading, Bytes)>,
    processes: BTreeMap<ReplicaId, Process>,
    /// Models whose figures are too small, with the real figures.
    truly_needs: BTreeMap<ModelId, Bytes>,
    measurements: Measurements,
    waiting: BTreeMap<Ticket, ModelId>,
    /// Running fetches, with the time each began.
    fetches_run: BTreeMap<ModelId, Time>,
    cleanups: BTreeSet<OrderId>,
    own_orders: u64,
    /// No readings are taken after this time.
    ends_at: Time,
    fault: Option<Fault>,
    compares_plans: bool,
    check_every: u64,
    report: StormReport,
}

impl Storm {
    /// Runs the storm to the end.
    pub fn run(&self) -> StormReport {
        let mut play = Play::new(self);
        while play.report.steps < STEPS_MAX
            && play.report.broken.is_empty()
            && !play.report.finished
        {
            let next = play.heap.peek().map(|Reverse((at, ..))| *at);
            match (play.world.next_turn(), next) {
                (None, None) => break,
                (Some(wake), next) if next.is_none_or(|next| wake < next) => {
                    play.feed(wake, Event::TimerFired)
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
                    .push("the pool did not finish".to_owned());
            }
            play.referee.finish();
            let found = core::mem::take(&mut play.referee.broken);
            play.report.broken.extend(found);
        }
        play.report
    }
}

impl Play {
    fn new(storm: &Storm) -> Play {
        let mut random = Random::new(storm.seed);
        let mut limits = conditions::limits(&mut random);
        if !storm.calm {
            limits.targets = conditions::targets(storm.seed);
        }
        let mut conditions = if storm.calm {
            Conditions::calm(&mut random)
        } else {
            Conditions::new(&mut random)
        };
        let readings = if storm.many_devices {
            // Each reading is a step, and each device has separate readings.
            conditions.period = Span::from_secs(random.between(1_200, 3_600));
            conditions.settle_period = Span(3_000);
            conditions::many_devices(&mut random)
        } else {
            conditions::devices(&mut random)
        };
        let devices = readings.len() as u64;
        let (spread, most) = if storm.many_devices {
            (8, 24)
        } else {
            (devices, 10)
        };
        let mut specs = conditions::models(&mut random, devices, spread, most);
        if conditions.fetches {
            for spec in specs.values_mut() {
                spec.absent = random.chance(400);
            }
        }
        if conditions.host > Bytes::ZERO {
            for spec in specs.values_mut() {
                spec.parking = conditions::parking(&mut random, spec);
            }
            if storm.has_parts {
                conditions::parts(storm.seed, conditions.host, &mut specs);
            }
        }
        let fairness = storm
            .calm
            .then(|| FairnessCheck::new(&mut random, &mut specs, &limits));
        let truly_needs = specs
            .iter()
            .filter(|_| !storm.calm && random.chance(100))
            .map(|(&id, spec)| (id, spec.bytes_per_device))
            .collect::<Vec<_>>();
        let truly_needs = truly_needs
            .into_iter()
            .map(|(id, bytes)| (id, Bytes(bytes.0 / 100 * random.between(105, 180))))
            .collect();
        let night = !storm.calm && random.chance(200);
        let referee = Referee::new(
            limits.clone(),
            &readings,
            conditions.measured,
            specs.clone(),
        );
        let mut play = Play {
            world: World::new(Pool::new(limits, night, ReplicaId(1))),
            referee,
            fairness,
            heap: BinaryHeap::new(),
            sequence: 0,
            specs,
            hardware: readings
                .into_iter()
                .map(|(id, reading)| (id, Hardware::new(reading, conditions.measured)))
                .collect(),
            on_the_way: BTreeMap::new(),
            processes: BTreeMap::new(),
            truly_needs,
            measurements: Measurements::default(),
            waiting: BTreeMap::new(),
            fetches_run: BTreeMap::new(),
            cleanups: BTreeSet::new(),
            own_orders: 0,
            ends_at: Time(0),
            fault: storm.fault,
            compares_plans: storm.compares_plans,
            check_every: if storm.many_devices {
                storm.check_every.max(CHECK_MANY_EVERY)
            } else {
                storm.check_every.max(1)
            },
            report: StormReport {
                devices,
                ..StormReport::default()
            },
            conditions,
            random,
        };
        play.world.unsaved = Some(Vec::new());
        if night {
            play.referee.night_falls();
        }
        play.begin(storm);
        play
    }

    fn begin(&mut self, storm: &Storm) {
        let devices: Vec<DeviceId> = self.hardware.keys().copied().collect();
        let first: BTreeMap<DeviceId, DeviceReading> = self
            .hardware
            .iter()
            .map(|(&id, hardware)| (id, hardware.constant.clone()))
            .collect();
        let links = conditions::links(&mut self.random, &first);
        for &device in &devices {
            let reading = self.hardware[&device].read(Time(0), false);
            let foreign = reading.foreign;
            self.report_reading(Time(0), device, reading, foreign);
        }
        self.starts_out(links);
        self.hosts_begin();
        if storm.many_devices {
            self.nodes_have_weights();
        }
        for (model, spec) in self.specs.clone() {
            self.feed(Time(0), Event::ModelSet { model, spec });
            if self.conditions.remembered && self.random.chance(500) {
                let numbers = conditions::numbers(&mut self.random);
                self.feed(Time(0), Event::Remembered { model, numbers });
            }
        }
        self.schedule(storm, &devices);
    }

    fn schedule(&mut self, storm: &Storm, devices: &[DeviceId]) {
        let longest = if storm.many_devices {
            HOUR_MS / 2
        } else {
            HOUR_MS * 2
        };
        let length = self.random.between(HOUR_MS / 12, longest);
        self.ends_at = Time(length + HOUR_MS);
        self.weights_begin(length);
        let count = self.specs.len() as u64;
        for ticket in 0..storm.requests {
            // Half of the requests come in bursts, and some models are more popular than others.
            let at = match ticket % 2 {
                0 => self.random.below(length),
                _ => length / 8 * self.random.below(8) + self.random.below(2_000),
            };
            let model =
                ModelId((self.random.below(count) * self.random.below(count) / count) as u32);
            let key = KeyId(self.random.below(fairness::KEYS));
            self.push(Time(at), Due::Arrival(Ticket(ticket), model, key));
        }
        for order in 0..storm.orders {
            let at = Time(self.random.below(length));
            self.push(at, Due::Order(OrderId(order)));
        }
        if !storm.calm {
            let others = if storm.many_devices { 40 } else { 4 };
            for _ in 0..self.random.below(others) {
                let device = self.any_device();
                let total = self.hardware[&device].constant.total;
                let bytes = Bytes(total.0 / 10 * self.random.below(6));
                let at = Time(self.random.below(length));
                self.push(at, Due::Foreign(device, bytes));
                let over = at + Span(self.random.below(length / 2));
                self.push(over, Due::Foreign(device, Bytes::ZERO));
            }
        }
        for _ in 0..self.conditions.troubles {
            let (device, lost) = (self.any_device(), self.random.chance(500));
            let at = Time(self.random.below(length));
            self.push(at, Due::Trouble(device, lost));
        }
        for &device in devices {
            if self.conditions.measured {
                let at = Time(self.random.below(self.conditions.period.0));
                self.push(at, Due::Reading(device, false));
            }
        }
        let end = if storm.calm { HOUR_MS * 48 } else { HOUR_MS };
        self.push(Time(length + end), Due::Order(OrderId(u64::MAX)));
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
                self.leaves_queue(at, ticket);
            }
            Due::GivesUp(ticket) => {
                self.report.gave_up += u64::from(self.leaves_queue(at, ticket));
            }
            Due::Served(_) => {}
            Due::Ready(replica) => self.is_ready(at, replica),
            Due::Source(replica, tier) => {
                if self.processes.contains_key(&replica) {
                    self.feed(at, Event::LoadsFrom { replica, tier });
                }
            }
            Due::Crash(replica) => {
                let message = "CUDA error: an illegal memory access".to_owned();
                let remedy = Remedy::Time;
                self.dies(at, replica, Exit::Failed { message, remedy });
            }
            Due::OutOfMemory(replica, needs) => self.runs_out_of_memory(at, replica, needs),
            Due::Grows(replica) => self.grows(replica),
            Due::FetchProgressed(model, began, left) => {
                self.fetch_progressed(at, model, began, left)
            }
            Due::FetchEnds(model, began, fails) => self.fetch_ends(at, model, began, fails),
            Due::FetchStopped(model, began) => self.fetch_stopped(at, model, began),
            Due::Vanishes(model) => self.vanishes(at, model),
            Due::Asleep(replica) => self.is_asleep(at, replica),
            Due::SleepFails(replica) => self.sleep_fails(at, replica),
            Due::WakeFails(replica) => self.wake_fails(at, replica),
            Due::HostRead(node) => self.host_read_due(at, node),
            Due::Gone(replica) => self.exits(at, replica, Exit::Requested),
            Due::Returned(device, replica) => {
                self.device(device).returns(replica);
                self.referee.memory_returned(at, device, replica);
            }
            Due::Reading(device, settling) => self.reading_due(at, device, settling),
            Due::Reported(device, nth) => {
                if let Some((reading, foreign)) = self.on_the_way.remove(&nth) {
                    self.report_reading(at, device, reading, foreign);
                }
            }
            Due::Saved(order) => self.saved(at, order),
            Due::Order(order) => self.orders(at, order),
            Due::Uncordon(device) => self.uncordons(at, device),
            Due::Trouble(device, lost) => self.fails(at, device, lost),
            Due::Foreign(device, bytes) => self.foreign(at, device, bytes),
            Due::Lie(replica, kind) => self.lies(at, replica, kind),
        }
    }

    fn lies(&mut self, at: Time, replica: ReplicaId, kind: u64) {
        let unknown = ReplicaId(replica.0 + 1000);
        let event = match kind {
            0 => Event::ReplicaReady { replica },
            1 => Event::Drained { replica: unknown },
            _ => Event::ReplicaReady { replica: unknown },
        };
        // A second "ready" of a running engine is false and must change nothing.
        let runs = |gate: &super::world::Gate| gate.mode.is_some();
        if kind != 0 || self.world.gates.get(&replica).is_some_and(runs) {
            self.feed(at, event);
        }
    }

    /// Passes an event to the pool, the world and the referee.
    fn feed(&mut self, at: Time, event: Event) {
        self.feed_all(at, vec![event]);
    }

    /// The same for several events of one turn.
    fn feed_all(&mut self, at: Time, events: Vec<Event>) {
        self.report.steps += 1;
        if let Some(fairness) = &mut self.fairness {
            let loaded = self.processes.values().map(|process| process.model);
            fairness.time_passes(at, loaded.chain(self.waiting.values().copied()));
            self.report.worst_wait = fairness.worst;
        }
        for event in &events {
            self.referee.event(at, event);
        }
        let events = match self.fault {
            Some(Fault::LeasesUnseen) => events.into_iter().map(orders::without_lease).collect(),
            _ => events,
        };
        let mut actions = self.world.feed_all(at, events);
        if self.fault == Some(Fault::UnneededVictim) {
            actions = self.with_a_bystander(actions);
        }
        let pool = &self.world.pool;
        self.referee.keys_are_served(|key| pool.key_level(key));
        let planned = self.world.pool.planned_loads();
        self.referee.step_begins(at, &actions, planned);
        for action in actions {
            self.mix(&format!("{at} {action:?}"));
            let gates = &self.world.gates;
            let in_flight =
                |replica: ReplicaId| gates.get(&replica).map_or(0, |gate| gate.in_flight);
            self.referee.action(at, &action, in_flight);
            if self.fault == Some(Fault::GateLies) {
                self.lie_about_gates();
            }
            self.carry_out(at, &action);
        }
        self.costs_are_shown();
        if self.fault.is_none() {
            self.referee.step_ends(at);
            self.judge_a_plan();
        }
        self.compare_a_plan();
        self.report.broken.append(&mut self.referee.broken);
        self.report.cordons = self.referee.cordons;
        self.report.judged = self.referee.judged;
        if self.report.steps.is_multiple_of(self.check_every) {
            let violations = check(&self.world.pool);
            self.report
                .broken
                .extend(violations.iter().map(ToString::to_string));
            self.check_queues();
        }
    }

    /// Sometimes a plan is requested without being carried out.
    fn judge_a_plan(&mut self) {
        let steps = self.report.steps;
        // The plan counts orders on their way to the store, and the referee does not.
        let are_stored = self.world.unsaved.as_ref().is_none_or(Vec::is_empty);
        if are_stored && steps.is_multiple_of(PLANS_EVERY) {
            let models = self.specs.len() as u64;
            let model = ModelId((steps / PLANS_EVERY % models) as u32);
            let (now, pool) = (self.world.now, &self.world.pool);
            self.referee.plan_is_cheapest(now, pool, model);
        }
    }

    /// Sometimes a plan is compared with its load, in a copy of the world.
    fn compare_a_plan(&mut self) {
        let is_forced = self.fault == Some(Fault::PlansForced);
        if self.compares_plans || is_forced {
            let (steps, models) = (self.report.steps, self.specs.len() as u64);
            let plans = &mut self.report.plans;
            let wrong = plans.check(&self.world, steps, models, is_forced);
            self.report.broken.extend(wrong);
        }
    }

    fn mix(&mut self, line: &str) {
        for byte in line.bytes() {
            self.report.transcript_hash =
                (self.report.transcript_hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
