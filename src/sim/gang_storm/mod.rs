//! Storms of replicas that span several nodes (M8): their processes crash one by one, nodes are cut off, die, are given up and return,
//! and the controller restarts. Smaller models compete for the same devices. In some storms a cluster brings the nodes. `shell` carries
//! orders and reports; `checks` and `sets` state what must never happen.

mod checks;
mod cluster;
mod report;
mod sets;
mod shell;
mod specs;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;

use super::random::Random;
use super::timeline::{Scene, Timeline};
use super::world::World;
use cluster::Leases;
use pool::{
    Action, Bytes, DemandId, DeviceId, DeviceReading, Event, GangReach, KeyId, Limits, ModelId,
    ModelSpec, NodeId, NodeOutlook, Pool, ReplicaId, ShapeId, Share, Span, Ticket, Time, check,
};
pub use report::{GangFault, GangStormReport};
use specs::{reach, spec};

#[derive(Clone, Debug)]
pub struct GangStorm {
    pub seed: u64,
    pub fault: Option<GangFault>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival(Ticket, ModelId),
    Served(Ticket),
    Ready(ReplicaId),
    Crash(ReplicaId, NodeId),
    Ended(ReplicaId, NodeId),
    Cut(NodeId),
    /// The number identifies the cut.
    Silent(NodeId, u64),
    Gone(NodeId, u64),
    Back(NodeId, u64),
    Restart,
    Peace,
    /// The cluster refuses the request, or reports on it.
    IsRefused(DemandId),
    Never(DemandId),
    Waits(DemandId),
    Starts(DemandId),
    Comes(DemandId, ShapeId),
    /// The lease of a node ends.
    Leaves(NodeId),
}

/// A process that really runs, whatever the pool believes.
#[derive(Clone, Debug)]
struct Process {
    model: ModelId,
    shares: Vec<Share>,
    is_ordered_to_end: bool,
}

#[derive(Clone, Debug, Default)]
struct Link {
    is_cut: bool,
    cuts: u64,
    is_known_cut: bool,
    reach: GangReach,
    /// The time of the last connection.
    joined: Time,
    /// Its lease has ended.
    has_ended: bool,
}

struct Play {
    random: Random,
    world: World,
    timeline: Timeline<Due>,
    devices: BTreeMap<DeviceId, DeviceReading>,
    specs: BTreeMap<ModelId, ModelSpec>,
    links: BTreeMap<NodeId, Link>,
    leases: Leases,
    processes: BTreeMap<(ReplicaId, NodeId), Process>,
    /// The nodes of each replica, in the order of the ranks.
    nodes_of: BTreeMap<ReplicaId, Vec<NodeId>>,
    /// The time each replica became ready.
    ready: BTreeMap<ReplicaId, Time>,
    /// Replicas of which the pool knows that a process has ended.
    known_ended: BTreeSet<ReplicaId>,
    /// Processes of an earlier controller that have returned.
    returned: BTreeSet<(ReplicaId, NodeId)>,
    waiting: BTreeMap<Ticket, ModelId>,
    first: u64,
    newest: u64,
    peace: bool,
    fault: Option<GangFault>,
    report: GangStormReport,
}

const STEPS_MAX: u64 = 50_000;
const TICKETS: u64 = 80;
const LENGTH: u64 = 3_600_000;
const END: Time = Time(LENGTH * 2);
const TOTAL: Bytes = Bytes(80 * Bytes::GIB);

impl GangStorm {
    pub fn new(seed: u64) -> GangStorm {
        GangStorm { seed, fault: None }
    }

    pub fn run(&self) -> GangStormReport {
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

fn limits() -> Limits {
    Limits {
        nodes_may_join: true,
        ..Limits::default()
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
            Due::Ready(replica) => self.becomes_ready(at, replica),
            Due::Crash(replica, node) => {
                if self.processes.contains_key(&(replica, node)) {
                    self.report.crashes += 1;
                    self.process_ends(at, replica, node, true);
                }
            }
            Due::Ended(replica, node) => self.process_ends(at, replica, node, false),
            Due::Cut(node) => self.cut(at, node),
            Due::Silent(node, nth) if self.is_cut(node, nth) => {
                self.is_away(node);
                self.feed(at, Event::NodeSilent { node });
            }
            Due::Gone(node, nth) if self.is_cut(node, nth) => self.is_gone(at, node),
            Due::IsRefused(demand) => self.is_refused(at, demand),
            Due::Never(demand) => self.never_starts(at, demand),
            Due::Waits(demand) => {
                let starts = None;
                self.reports_outlook(at, demand, NodeOutlook::Waits { starts });
            }
            Due::Starts(demand) => self.reports_outlook(at, demand, NodeOutlook::Starts),
            Due::Comes(demand, shape) => self.comes(at, demand, shape),
            Due::Leaves(node) => self.leaves(at, node),
            Due::Back(node, nth) if self.is_cut(node, nth) => self.joins(at, node),
            Due::Silent(..) | Due::Gone(..) | Due::Back(..) => {}
            Due::Restart => self.restarts(at),
            Due::Peace => {
                self.peace = true;
                for node in self.links.keys().copied().collect::<Vec<_>>() {
                    let link = &self.links[&node];
                    if link.is_cut && !link.has_ended {
                        self.joins(at, node);
                    }
                }
            }
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
    fn new(storm: &GangStorm) -> Play {
        let mut random = Random::new(storm.seed ^ 0x6761_6e67);
        let (mut nodes, per_node) = (random.between(3, 5) as u32, random.between(1, 2) as u32);
        let mut of_cluster = Random::new(storm.seed ^ 0x7365_7473);
        let has_cluster = of_cluster.chance(600);
        let leases = Leases::new(&mut of_cluster, has_cluster);
        if has_cluster {
            nodes = of_cluster.below(3) as u32;
        }
        let device = |number: u32| {
            let reading = DeviceReading {
                name: format!("gpu{number}"),
                node: NodeId(1 + number / per_node),
                total: TOTAL,
                ..DeviceReading::default()
            };
            (DeviceId(number), reading)
        };
        let devices = (0..nodes * per_node).map(device).collect();
        let count = random.between(3, 5);
        let specs = (0..count).map(|nth| (ModelId(nth as u32), spec(&mut random, nth, per_node)));
        let specs = specs.collect();
        let is_mixed = random.chance(500) || storm.fault == Some(GangFault::ReachHidden);
        let links = (1..=nodes).map(|node| {
            let reach = if is_mixed {
                reach(&mut random)
            } else {
                GangReach::Network
            };
            let link = Link {
                reach,
                ..Link::default()
            };
            (NodeId(node), link)
        });
        let links: BTreeMap<NodeId, Link> = links.collect();
        let reaches: BTreeSet<&GangReach> = links.values().map(|link| &link.reach).collect();
        let mixed = u64::from(reaches.len() > 1);
        let mut play = Play {
            world: World::new(Pool::new(leases.limits.clone(), false, ReplicaId(1))),
            leases,
            devices,
            specs,
            links,
            timeline: Timeline::new(),
            processes: BTreeMap::new(),
            nodes_of: BTreeMap::new(),
            ready: BTreeMap::new(),
            known_ended: BTreeSet::new(),
            returned: BTreeSet::new(),
            waiting: BTreeMap::new(),
            first: 1,
            newest: 0,
            peace: false,
            fault: storm.fault,
            report: GangStormReport {
                mixed,
                ..GangStormReport::default()
            },
            random,
        };
        play.begin();
        play
    }

    fn begin(&mut self) {
        self.starts(Time(0));
        for ticket in 0..TICKETS {
            let at = Time(self.random.below(LENGTH));
            let model = ModelId(self.random.below(self.specs.len() as u64) as u32);
            self.timeline.push(at, Due::Arrival(Ticket(ticket), model));
        }
        for node in self.links.keys().copied().collect::<Vec<_>>() {
            for _ in 0..self.random.between(0, 3) {
                let at = Time(self.random.below(LENGTH));
                self.timeline.push(at, Due::Cut(node));
            }
        }
        if self.random.chance(500) {
            let at = Time(self.random.below(LENGTH));
            self.timeline.push(at, Due::Restart);
        }
        self.timeline.push(Time(LENGTH), Due::Peace);
    }

    /// Passes an event to the pool and carries out the resulting actions.
    fn feed(&mut self, at: Time, event: Event) {
        self.report.steps += 1;
        match &event {
            Event::MemberExited { replica, .. } | Event::ReplicaExited { replica, .. } => {
                self.known_ended.insert(*replica);
            }
            Event::ReplicaAdopted { replica, .. } => {
                self.known_ended.remove(replica);
            }
            _ => {}
        }
        let actions = self.world.feed(at, event);
        for action in &actions {
            self.carry_out(at, action);
        }
        self.check_sets(at);
        let models = self.specs.len() as u64;
        let plans = &mut self.report.plans;
        let wrong = plans.check(&self.world, self.report.steps, models, false);
        self.report.broken.extend(wrong);
        let violations = check(&self.world.pool);
        let violations = violations.iter().map(ToString::to_string);
        self.report.broken.extend(violations);
    }

    fn arrives(&mut self, at: Time, ticket: Ticket, model: ModelId) {
        let seats = self.specs[&model].seats_per_replica;
        self.world.now = self.world.now.max(at);
        for replica in self.replicas_of(model) {
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

    fn replicas_of(&self, model: ModelId) -> BTreeSet<ReplicaId> {
        let of = self
            .processes
            .iter()
            .filter(|(_, process)| process.model == model);
        of.map(|((replica, _), _)| *replica).collect()
    }

    fn carry_out(&mut self, at: Time, action: &Action) {
        match action {
            Action::Grant { ticket, replica } => {
                self.check_grant(*ticket, *replica);
                self.report.responded += 1;
                self.waiting.remove(ticket);
                self.is_served(at, *ticket);
            }
            Action::Refuse { ticket, .. } => {
                self.report.responded += 1;
                self.waiting.remove(ticket);
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => self.launches(at, *replica, *model, placement),
            Action::Stop { replica, .. } => self.stops(at, *replica),
            Action::RequestNodes { demands, shape } => self.are_requested(at, demands, *shape),
            Action::CancelNode { demand } => self.is_cancelled(at, *demand),
            Action::ReleaseNode { node } => self.is_given_back(at, *node),
            Action::Disown { node, replica } => self.ends_soon(at, *replica, *node),
            Action::Record(record) if record.kind == pool::RecordKind::Evict => {
                let nodes = record
                    .replica
                    .and_then(|replica| self.nodes_of.get(&replica));
                self.report.evicted += u64::from(nodes.is_some_and(|nodes| nodes.len() > 1));
            }
            _ => {}
        }
    }
}
