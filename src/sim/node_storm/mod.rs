//! Storms over nodes: connections break and come back, nodes die and return with engines that were given up, reports are duplicated
//! and late, nodes drain, a cluster adds nodes and takes them back, some nodes have a time limit, and the controller itself is
//! killed between an order and a node's response. The real core runs in a small world whose processes really hold memory. `truth`
//! and `limits` check what must never happen (N1–N5, N7).

mod adopting;
mod cluster;
mod emptied;
mod emptied_times;
mod limits;
mod peace;
mod shell;
mod truth;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::plan_check::PlansCompared;
use super::random::Random;
use super::timeline::{Scene, Timeline};
use super::world::World;
use cluster::{Leases, Report};
use emptied_times::EmptiedTimes;
use limits::TimeLimits;
use pool::{
    Bytes, Command, DemandId, Event, KeyId, ModelId, ModelSpec, NodeId, OrderId, Pool, Priority,
    ReplicaId, ShapeId, Span, Ticket, Time, check,
};
use truth::Truth;

/// A planted fault around the core that the checks must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// A returning node does not report its engines.
    EnginesHidden,
    /// The pool is informed that a silent node is back, although it is not.
    SilenceEnded,
    /// The pool is informed that an engine has ended as soon as it was ordered to.
    EndsAtOnce,
    /// The pool is informed that loads have not begun, although they have.
    BegunUnseen,
}

#[derive(Clone, Debug)]
pub struct NodeStorm {
    pub seed: u64,
    pub fault: Option<NodeFault>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStormReport {
    pub steps: u64,
    pub responded: u64,
    pub launches: u64,
    pub silences: u64,
    pub gone: u64,
    /// Engines that came back after they had been given up.
    pub disowned: u64,
    pub adopted: u64,
    /// Loads that ended before they began, because another replica was adopted.
    pub spared: u64,
    /// Ready replicas that left as surplus after a node had returned.
    pub surplus: u64,
    pub restarts: u64,
    pub drains: u64,
    pub requested: u64,
    pub given_back: u64,
    /// Replicas that closed because their node ends, with another one ready.
    pub moved: u64,
    /// Replicas that closed because a cheaper place was free.
    pub consolidated: u64,
    /// Machines that ended at their time limit.
    pub limits_over: u64,
    /// Findings of the checks; empty if all is well.
    /// Plans that were compared with their loads.
    pub plans: PlansCompared,
    pub broken: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival(Ticket, ModelId),
    Served(Ticket),
    Ready(ReplicaId),
    Crash(ReplicaId),
    Ended(ReplicaId),
    Cut(NodeId),
    /// The node has not responded for a while. The number identifies the cut.
    Silent(NodeId, u64),
    /// The limit has passed, or the cluster reports the end of the node.
    Gone(NodeId, u64),
    Back(NodeId, u64),
    /// All processes on it end.
    Dies(NodeId),
    Drain(NodeId),
    /// The cluster brings the node or refuses it.
    Comes(DemandId, ShapeId),
    IsRefused(DemandId),
    /// The cluster reports on the request.
    Reports(DemandId, Report),
    /// A node that was given back to the cluster ends.
    Leaves(NodeId),
    /// The cluster takes back its machine.
    Preempted(NodeId),
    /// Its time limit, if it still applies.
    Over(NodeId, Time),
    Restart,
    /// A duplicate report arrives late.
    Again(String, ReplicaId),
    Peace,
}

/// The real state of a node's connection, regardless of what the pool believes.
#[derive(Clone, Debug, Default)]
struct Link {
    is_cut: bool,
    /// The number of cuts. Later reports about an earlier cut are ignored.
    cuts: u64,
    reported_gone: bool,
    /// The node has ended permanently.
    has_ended: bool,
    /// The time of the last connection.
    joined: Time,
}

struct Play {
    random: Random,
    world: World,
    truth: Truth,
    timeline: Timeline<Due>,
    specs: BTreeMap<ModelId, ModelSpec>,
    links: BTreeMap<NodeId, Link>,
    leases: Leases,
    limits: TimeLimits,
    emptied: EmptiedTimes,
    waiting: BTreeMap<Ticket, ModelId>,
    orders: u64,
    /// The node on which each replica was launched.
    node_of: BTreeMap<ReplicaId, NodeId>,
    /// The first replica id of this run of the controller, and the newest so far.
    first: u64,
    newest: u64,
    /// Loads that the pool knows not to have begun.
    not_begun: BTreeSet<ReplicaId>,
    /// No more faults occur.
    peace: bool,
    fault: Option<NodeFault>,
    report: NodeStormReport,
}

const STEPS_MAX: u64 = 50_000;
const TICKETS: u64 = 120;
const LENGTH: u64 = 3_600_000;
const END: Time = Time(LENGTH * 2);

impl NodeStorm {
    pub fn new(seed: u64) -> NodeStorm {
        NodeStorm { seed, fault: None }
    }

    pub fn run(&self) -> NodeStormReport {
        let mut play = Play::new(self);
        if !play.play(END, STEPS_MAX) {
            play.breaks("the storm does not end".to_string());
        }
        if play.report.broken.is_empty() {
            play.ends();
        }
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
            Due::Arrival(ticket, model) => self.arrives(at, ticket, model),
            Due::Served(ticket) => {
                if let Some(event) = self.world.end(ticket, at) {
                    self.feed(at, event);
                }
            }
            Due::Ready(replica) => {
                if self.truth.becomes_ready(replica, at) {
                    self.reports(at, replica, "ready");
                }
            }
            Due::Crash(replica) => self.process_ends(at, replica, "crashed"),
            Due::Ended(replica) => self.process_ends(at, replica, "exited"),
            Due::Cut(node) => self.cut(at, node),
            Due::Silent(node, nth) if self.is_cut(node, nth) => {
                self.report.silences += 1;
                self.feed(at, Event::NodeSilent { node });
                if self.random.chance(100) {
                    self.feed(at, Event::NodeSilent { node });
                }
                if self.fault == Some(NodeFault::SilenceEnded) {
                    self.claims_to_be_back(at, node);
                }
            }
            Due::Gone(node, nth) if self.is_cut(node, nth) => self.is_gone(at, node),
            Due::Back(node, nth) if self.is_cut(node, nth) => self.is_back(at, node),
            Due::Silent(..) | Due::Gone(..) | Due::Back(..) => {}
            Due::Dies(node) => self.dies(at, node),
            Due::Drain(node) => self.drains(at, node),
            Due::Comes(demand, shape) => self.comes(at, demand, shape),
            Due::IsRefused(demand) => self.is_refused(at, demand),
            Due::Reports(demand, report) => self.cluster_reports(at, demand, report),
            Due::Leaves(node) => self.leaves(at, node),
            Due::Preempted(node) => self.is_preempted(at, node),
            Due::Over(node, ends) => self.is_over(at, node, ends),
            Due::Restart => self.restarts(at),
            Due::Again(what, replica) => self.reports_once(at, replica, &what),
            Due::Peace => self.peace_comes(at),
        }
    }

    fn timer_fires(&mut self, at: Time) {
        self.feed(at, Event::TimerFired);
    }

    fn is_broken(&self) -> bool {
        !self.report.broken.is_empty()
    }
}

impl Play {
    fn new(storm: &NodeStorm) -> Play {
        let mut random = Random::new(storm.seed ^ 0x6e6f_6465);
        let truth = Truth::new(&mut random);
        let count = random.between(2, 6);
        let specs = (0..count).map(|nth| (ModelId(nth as u32), spec(&mut random, nth)));
        let specs = specs.collect();
        let mut play = Play {
            world: World::new(Pool::new(cluster::limits(), false, ReplicaId(1))),
            links: truth.nodes().map(|node| (node, Link::default())).collect(),
            leases: Leases::default(),
            limits: TimeLimits::default(),
            emptied: EmptiedTimes::default(),
            truth,
            timeline: Timeline::new(),
            specs,
            waiting: BTreeMap::new(),
            orders: 0,
            node_of: BTreeMap::new(),
            first: 1,
            newest: 0,
            not_begun: BTreeSet::new(),
            peace: false,
            fault: storm.fault,
            report: NodeStormReport::default(),
            random,
        };
        play.begin();
        play
    }

    fn begin(&mut self) {
        if self.random.chance(600) {
            self.leases.shapes = cluster::shapes();
        }
        self.starts(Time(0));
        let models = self.specs.len() as u64;
        for ticket in 0..TICKETS {
            let at = Time(self.random.below(LENGTH));
            let model = ModelId(self.random.below(models) as u32);
            self.timeline.push(at, Due::Arrival(Ticket(ticket), model));
        }
        let nodes: Vec<NodeId> = self.links.keys().copied().collect();
        for node in nodes {
            for _ in 0..self.random.between(1, 5) {
                let at = Time(self.random.below(LENGTH));
                self.timeline.push(at, Due::Cut(node));
            }
            if self.random.chance(300) {
                let at = Time(self.random.below(LENGTH));
                self.timeline.push(at, Due::Dies(node));
            }
            if self.random.chance(300) {
                let at = Time(self.random.below(LENGTH));
                self.timeline.push(at, Due::Drain(node));
            }
        }
        if self.random.chance(400) {
            let at = Time(self.random.below(LENGTH));
            self.timeline.push(at, Due::Restart);
        }
        // Long enough for all cut nodes to come back, and for every load to end.
        self.timeline.push(Time(LENGTH), Due::Peace);
    }

    fn is_cut(&self, node: NodeId, nth: u64) -> bool {
        let link = &self.links[&node];
        link.is_cut && link.cuts == nth && !link.has_ended
    }

    fn arrives(&mut self, at: Time, ticket: Ticket, model: ModelId) {
        let seats = self.specs[&model].seats_per_replica;
        self.world.now = self.world.now.max(at);
        for replica in self.truth.replicas_of(model) {
            if self.world.enter((ticket, KeyId(0)), replica, seats, at) {
                self.report.responded += 1;
                return self.is_served(at, ticket);
            }
        }
        self.waiting.insert(ticket, model);
        let key = KeyId(0);
        self.feed(at, Event::RequestArrived { ticket, model, key });
    }

    fn is_served(&mut self, at: Time, ticket: Ticket) {
        let took = self.random.between(20, 120_000);
        self.timeline.push(at + Span(took), Due::Served(ticket));
    }

    fn order(&mut self, at: Time, command: Command) {
        self.orders += 1;
        let order = OrderId(self.orders);
        self.feed(at, Event::OrderReceived { order, command });
    }

    /// Passes an event to the pool and carries out the resulting actions.
    fn feed(&mut self, at: Time, event: Event) {
        self.report.steps += 1;
        self.truth.event(at, &event);
        let actions = self.world.feed(at, event);
        for action in &actions {
            self.truth.action(action, &mut self.report.broken);
            self.carry_out(at, action);
        }
        self.look_for_places(at);
        self.check_requests(at);
        let models = self.specs.len() as u64;
        let plans = &mut self.report.plans;
        let wrong = plans.check(&self.world, self.report.steps, models, false);
        self.report.broken.extend(wrong);
        let violations = check(&self.world.pool);
        let violations = violations.iter().map(ToString::to_string);
        self.report.broken.extend(violations);
    }
}

fn spec(random: &mut Random, nth: u64) -> ModelSpec {
    ModelSpec {
        name: format!("model-{nth}"),
        priority: Priority([0, 0, 1, 2][random.below(4) as usize]),
        devices_per_replica: random.between(1, 2) as u32,
        bytes_per_device: Bytes(random.between(10, 70) * Bytes::GIB),
        keep_hot: Span::from_secs(random.between(60, 900)),
        seats_per_replica: random.between(1, 4) as u32,
        reload: Span::from_secs(random.between(1, 60)),
        queue_timeout: Span::from_secs(random.between(30, 300)),
        ..ModelSpec::default()
    }
}
