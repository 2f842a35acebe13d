//! Storms of restarts: a controller ends, and its nodes return to the next one in every order, some of them late, one of them
//! perhaps never. The engines on them hold memory all along. Checks that no engine ends needlessly, that no model is loaded twice
//! without a reason, and that surplus copies leave (N8).

mod shell;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::random::Random;
use super::timeline::{Scene, Timeline};
use super::world::World;
use pool::{
    Bytes, DeviceId, DeviceReading, Event, Exit, KeyId, KindId, Limits, ModelId, ModelSpec, NodeId,
    Pool, Priority, ReplicaId, Share, Span, Ticket, Time,
};

/// A fault around the core that the checks must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnFault {
    /// The next controller does not know where the replicas were.
    PlacesForgotten,
    /// The devices that models may use are decided after their node has joined.
    AllowedLate,
}

#[derive(Clone, Debug)]
pub struct ReturnStorm {
    pub seed: u64,
    pub fault: Option<ReturnFault>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnStormReport {
    /// Engines that ran when the first controller ended.
    pub held: u64,
    pub adopted: u64,
    /// Loads by the second controller.
    pub launches: u64,
    /// Replicas that left as surplus after a node had returned.
    pub surplus: u64,
    pub gone: u64,
    pub granted: u64,
    /// Findings of the checks; empty if all is well.
    pub broken: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ready(ReplicaId),
    Exits(ReplicaId),
    Arrival(Ticket, ModelId),
    Served(Ticket),
    Joins(NodeId),
    Gone(NodeId),
}

struct Engine {
    model: ModelId,
    node: NodeId,
    shares: Vec<Share>,
    is_ready: bool,
    /// Its gate is closed, and it has not been stopped yet.
    drains: bool,
    ends: bool,
}

struct Model {
    spec: ModelSpec,
    /// The devices that its file allows; `None` allows all.
    allowed: Option<BTreeSet<DeviceId>>,
}

/// The time between a load's start and its end, and the time in which all nodes return if none is late.
const LOAD: Span = Span::from_secs(5);
const QUICK: u64 = 14_000;
const RESTART: Time = Time(600_000);
const STEPS_MAX: u64 = 20_000;
const END: Time = Time(3_000_000);

struct Play {
    random: Random,
    fault: Option<ReturnFault>,
    world: World,
    timeline: Timeline<Due>,
    devices: BTreeMap<DeviceId, DeviceReading>,
    models: BTreeMap<ModelId, Model>,
    engines: BTreeMap<ReplicaId, Engine>,
    joined: BTreeSet<NodeId>,
    gone: BTreeSet<NodeId>,
    /// All nodes return before the pool stops waiting for them.
    is_quick: bool,
    has_restarted: bool,
    waiting: BTreeSet<Ticket>,
    report: ReturnStormReport,
}

impl ReturnStorm {
    pub fn run(&self) -> ReturnStormReport {
        let mut play = Play::new(self);
        play.loads_everything();
        play.until(RESTART);
        play.restarts();
        play.until(END);
        play.ends();
        play.report
    }
}

impl Scene for Play {
    type Due = Due;

    fn timeline(&mut self) -> &mut Timeline<Due> {
        &mut self.timeline
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn happens(&mut self, at: Time, due: Due) {
        match due {
            Due::Ready(replica) => {
                let engine = self.engines.get_mut(&replica);
                if let Some(engine) = engine.filter(|engine| !engine.ends) {
                    engine.is_ready = true;
                    self.feed(at, vec![Event::ReplicaReady { replica }]);
                }
            }
            Due::Exits(replica) => {
                self.engines.remove(&replica);
                self.world.gates.remove(&replica);
                let exit = Exit::Requested;
                self.feed(at, vec![Event::ReplicaExited { replica, exit }]);
            }
            Due::Arrival(ticket, model) => {
                self.world.now = self.world.now.max(at);
                let of_model =
                    |(id, engine): (&ReplicaId, &Engine)| (engine.model == model).then_some(*id);
                let replicas: Vec<ReplicaId> = self.engines.iter().filter_map(of_model).collect();
                if replicas
                    .into_iter()
                    .any(|id| self.world.enter((ticket, KeyId(0)), id, 8, at))
                {
                    self.report.granted += 1;
                    return self.timeline.push(at + Span(2_000), Due::Served(ticket));
                }
                self.waiting.insert(ticket);
                let key = KeyId(0);
                self.feed(at, vec![Event::RequestArrived { ticket, model, key }]);
            }
            Due::Served(ticket) => {
                if let Some(event) = self.world.end(ticket, at) {
                    self.feed(at, vec![event]);
                }
            }
            Due::Joins(node) => self.joins(at, node),
            Due::Gone(node) => {
                self.report.gone += 1;
                self.gone.insert(node);
                self.engines.retain(|_, engine| engine.node != node);
                let why = "did not come back".to_string();
                self.feed(at, vec![Event::NodeGone { node, why }]);
            }
        }
    }

    fn timer_fires(&mut self, at: Time) {
        self.feed(at, vec![Event::TimerFired]);
    }

    fn is_broken(&self) -> bool {
        !self.report.broken.is_empty()
    }
}

impl Play {
    fn new(storm: &ReturnStorm) -> Play {
        let mut random = Random::new(storm.seed ^ 0x7265_7475_726e);
        let mut devices = BTreeMap::new();
        for node in 1..=random.between(2, 4) {
            for _ in 0..random.between(1, 2) {
                let reading = DeviceReading {
                    name: format!("gpu{}", devices.len()),
                    node: NodeId(node as u32),
                    kind: KindId(random.below(2) as u32),
                    total: Bytes(80 * Bytes::GIB),
                    ..DeviceReading::default()
                };
                devices.insert(DeviceId(devices.len() as u32), reading);
            }
        }
        let models = (0..random.between(2, 5)).map(|nth| {
            let model = model(&mut random, nth, &devices);
            (ModelId(nth as u32), model)
        });
        let models = models.collect();
        Play {
            is_quick: random.chance(500),
            world: World::new(Pool::new(limits(), false, ReplicaId(1))),
            random,
            fault: storm.fault,
            timeline: Timeline::new(),
            devices,
            models,
            engines: BTreeMap::new(),
            joined: BTreeSet::new(),
            gone: BTreeSet::new(),
            has_restarted: false,
            waiting: BTreeSet::new(),
            report: ReturnStormReport::default(),
        }
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.devices.values().map(|device| device.node).collect()
    }

    /// The first controller: every node joins, and each model gets a request.
    fn loads_everything(&mut self) {
        let set = self.set_models();
        self.feed(Time(0), set);
        for node in self.nodes() {
            self.joins(Time(0), node);
        }
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            let at = Time(self.random.below(60_000));
            self.timeline
                .push(at, Due::Arrival(Ticket(u64::from(model.0)), model));
        }
    }

    /// No device is known when the catalogue is read.
    fn set_models(&self) -> Vec<Event> {
        let set = self.models.iter().map(|(&model, known)| Event::ModelSet {
            model,
            spec: known.spec.clone(),
        });
        set.collect()
    }

    /// The controller is killed, and the next one starts.
    fn restarts(&mut self) {
        // Loads that have not ended are not adopted, which is another story.
        self.engines
            .retain(|_, engine| engine.is_ready && !engine.ends);
        self.timeline.clear();
        self.waiting.clear();
        self.joined.clear();
        self.has_restarted = true;
        self.report.held = self.engines.len() as u64;
        let newest = self.engines.keys().last().map_or(0, |id| id.0) + 100;
        let pool = Pool::new(limits(), false, ReplicaId(newest));
        let before = core::mem::replace(&mut self.world, World::new(pool));
        let nodes = self.nodes();
        let mut events: Vec<Event> = nodes.iter().map(|&node| expected(node)).collect();
        events.extend(self.set_models());
        if self.fault != Some(ReturnFault::PlacesForgotten) {
            let remembered = self.models.keys().filter_map(|&model| {
                let numbers = before.pool.remembered(model)?;
                Some(Event::Remembered { model, numbers })
            });
            events.extend(remembered);
        }
        self.feed(RESTART, events);
        let within = if self.is_quick { QUICK } else { 60_000 };
        let lost = self.random.below(2 * nodes.len() as u64);
        for (nth, node) in nodes.into_iter().enumerate() {
            if !self.is_quick && nth as u64 == lost {
                self.timeline
                    .push(RESTART + Span::from_secs(700), Due::Gone(node));
            } else {
                let at = RESTART + Span(self.random.below(within));
                self.timeline.push(at, Due::Joins(node));
            }
        }
        let held: Vec<ModelId> = self.engines.values().map(|engine| engine.model).collect();
        for nth in 0..self.random.below(12) {
            if held.is_empty() {
                break;
            }
            let model = held[self.random.below(held.len() as u64) as usize];
            let at = RESTART + Span(self.random.below(90_000));
            self.timeline
                .push(at, Due::Arrival(Ticket(1_000 + nth), model));
        }
    }

    fn until(&mut self, end: Time) {
        if !self.play(end, STEPS_MAX) {
            self.breaks(end, "the storm does not end".to_string());
        }
    }

    /// After all nodes have returned or are gone, every request has ended, and no model has more than one replica.
    fn ends(&mut self) {
        if !self.report.broken.is_empty() {
            return;
        }
        if let Some(ticket) = self.waiting.first() {
            self.breaks(END, format!("{ticket} still waits"));
        }
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            let live = |engine: &&Engine| engine.model == model && !engine.ends;
            let count = self.engines.values().filter(live).count();
            if count > 1 {
                self.breaks(END, format!("{model} has {count} replicas"));
            }
        }
    }
}

fn expected(node: NodeId) -> Event {
    let name = format!("node-{}", node.0);
    Event::NodeExpected { node, name }
}

fn limits() -> Limits {
    Limits {
        nodes_may_join: true,
        ..Limits::default()
    }
}

/// A model that fits on at least one device; often restricted to a kind, an index, or some of the devices.
fn model(random: &mut Random, nth: u64, devices: &BTreeMap<DeviceId, DeviceReading>) -> Model {
    let one = DeviceId(random.below(devices.len() as u64) as u32);
    let allowed = match random.below(5) {
        0 => Some(BTreeSet::from([one])),
        1 => {
            let kind = devices[&one].kind;
            let same = devices.iter().filter(|(_, device)| device.kind == kind);
            Some(same.map(|(&id, _)| id).collect())
        }
        2 => {
            let mut some = BTreeSet::from([one]);
            some.extend(devices.keys().filter(|_| random.chance(500)));
            Some(some)
        }
        _ => None,
    };
    let is_hot = random.chance(300);
    let size = if is_hot { 8 } else { random.between(10, 70) };
    let spec = ModelSpec {
        name: format!("model-{nth}"),
        priority: Priority(if is_hot { 2 } else { random.below(2) as u32 }),
        bytes_per_device: Bytes(size * Bytes::GIB),
        keep_hot: Span::from_secs(100_000),
        reload: Span::from_secs(10),
        allowed: allowed.as_ref().map(|_| BTreeSet::new()),
        ..ModelSpec::default()
    };
    Model { spec, allowed }
}
