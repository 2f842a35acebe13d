//! A pool with its gates and engines, for the tests of batches. Engines become ready and end when the test says.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::{
    Action, BatchDemand, Bytes, Command, DemandId, DeviceId, DeviceReading, Event, Exit, GangReach,
    GateReading, HostReading, KeyId, Limits, LoadOrder, ModelId, ModelSpec, NodeId, OrderId, Pool,
    Priority, RecordKind, ReplicaId, ShapeId, Span, Ticket, Time,
};

/// The memory of each device.
pub const DEVICE: Bytes = Bytes(10);
/// The time of each load.
const LOAD: Span = Span::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    in_flight: u32,
    entered: u64,
    last_end: Option<Time>,
    is_closed: bool,
}

pub struct Run {
    pub pool: Pool,
    pub now: Time,
    pub launched: Vec<ModelId>,
    /// All actions of the last step.
    pub actions: Vec<Action>,
    /// The number of requests for nodes.
    pub nodes_requested: u32,
    pub requested: Vec<(DemandId, ShapeId)>,
    pub cancelled: Vec<DemandId>,
    /// The nodes that are given back.
    pub released: Vec<NodeId>,
    /// The requests in the order of their seats.
    pub granted: Vec<Ticket>,
    gates: BTreeMap<ReplicaId, Gate>,
    pub launching: Vec<ReplicaId>,
    pub stopping: Vec<ReplicaId>,
    given: u64,
}

pub fn spec(bytes: u64, priority: u32) -> ModelSpec {
    ModelSpec {
        name: format!("{bytes} bytes"),
        bytes_per_device: Bytes(bytes),
        priority: Priority(priority),
        keep_hot: Span::from_secs(100 * 3_600),
        seats_per_replica: 2,
        ..ModelSpec::default()
    }
}

pub fn load(nth: u32) -> Command {
    Command::Load(LoadOrder {
        model: ModelId(nth),
        replicas: None,
        devices: None,
        priority: None,
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    })
}

pub fn unload(nth: u32) -> Command {
    Command::Unload {
        model: ModelId(nth),
        replica: None,
        now: false,
    }
}

impl Run {
    pub fn new(devices: u32, models: &[ModelSpec]) -> Run {
        let mut run = Run {
            pool: Pool::new(Limits::default(), false, ReplicaId(1)),
            now: Time(1_000_000),
            launched: Vec::new(),
            actions: Vec::new(),
            nodes_requested: 0,
            requested: Vec::new(),
            cancelled: Vec::new(),
            released: Vec::new(),
            granted: Vec::new(),
            gates: BTreeMap::new(),
            launching: Vec::new(),
            stopping: Vec::new(),
            given: 0,
        };
        let host = HostReading {
            capacity: Bytes(100),
            available: Bytes(100),
            total: Bytes(100),
            ..HostReading::default()
        };
        let node = NodeId(0);
        run.step([Event::HostRead {
            node,
            reading: host,
        }]);
        for nth in 0..devices {
            let reading = DeviceReading {
                name: format!("gpu{nth}"),
                total: DEVICE,
                ..DeviceReading::default()
            };
            let device = DeviceId(nth);
            run.step([Event::DeviceRead { device, reading }]);
        }
        for (nth, spec) in (0..).zip(models) {
            let model = ModelId(nth);
            let spec = spec.clone();
            run.step([Event::ModelSet { model, spec }]);
        }
        run
    }

    pub fn step(&mut self, events: impl IntoIterator<Item = Event>) {
        self.actions.clear();
        let mut events: Vec<Event> = events.into_iter().collect();
        while !events.is_empty() {
            let response = self.pool.step_all(self.now, core::mem::take(&mut events));
            for action in response.actions {
                events.extend(self.act(&action));
                self.actions.push(action);
            }
        }
    }

    fn act(&mut self, action: &Action) -> Option<Event> {
        match *action {
            Action::Grant { ticket, replica } => {
                self.granted.push(ticket);
                let gate = self.gates.entry(replica).or_default();
                gate.in_flight += 1;
                gate.entered += 1;
            }
            Action::Launch { replica, model, .. } => {
                self.launched.push(model);
                self.launching.push(replica);
            }
            Action::Wake { replica, .. } => {
                self.gates.entry(replica).or_default().is_closed = false;
                self.launching.push(replica);
            }
            Action::Park { replica, .. } => return Some(Event::ReplicaAsleep { replica }),
            Action::Stop { replica, .. } => {
                self.launching.retain(|other| *other != replica);
                self.stopping.push(replica);
            }
            Action::SetGate { replica, .. } => {
                self.gates.entry(replica).or_default().is_closed = false;
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let gate = self.gates.entry(replica).or_default();
                let in_flight = gate.in_flight;
                if if_idle_at.is_some_and(|entered| in_flight > 0 || entered != gate.entered) {
                    let reading = gate.reading(replica);
                    return Some(Event::GateBusy { reading });
                }
                gate.is_closed = true;
                return Some(Event::GateClosed { replica, in_flight });
            }
            Action::RequestNodes { ref demands, shape } => {
                self.nodes_requested += 1;
                let demands = demands.iter();
                self.requested
                    .extend(demands.map(|demand| (*demand, shape)));
            }
            Action::CancelNode { demand } => self.cancelled.push(demand),
            Action::ReleaseNode { node } => self.released.push(node),
            Action::Save { order, .. } => return Some(Event::Saved { order }),
            _ => {}
        }
        None
    }

    pub fn after(&mut self, span: Span) {
        self.now = self.now + span;
        self.step([Event::TimerFired]);
    }

    /// Lets all engines end that stop, and all engines become ready that load, until nothing changes.
    pub fn settle(&mut self) {
        while !self.launching.is_empty() || !self.stopping.is_empty() {
            self.now = self.now + LOAD;
            for replica in core::mem::take(&mut self.stopping) {
                self.exits(replica);
            }
            for replica in core::mem::take(&mut self.launching) {
                self.step([Event::ReplicaReady { replica }]);
            }
        }
    }

    pub fn exits(&mut self, replica: ReplicaId) {
        self.gates.remove(&replica);
        let exit = Exit::Requested;
        self.step([Event::ReplicaExited { replica, exit }]);
    }

    pub fn batches(&mut self, demands: &[(u32, u64, bool)]) {
        let demands = demands.iter().map(|&(nth, lines, may_evict)| BatchDemand {
            model: ModelId(nth),
            lines,
            may_evict,
            must_begin: None,
            deadline_evicts: false,
        });
        let demands = demands.collect();
        self.step([Event::BatchesSet { demands }]);
    }

    /// A node joins for a request, with one device of this memory.
    pub fn node_joins(&mut self, nth: u32, demand: DemandId, total: Bytes) {
        let node = NodeId(nth);
        let reading = DeviceReading {
            name: format!("node{nth}-gpu"),
            node,
            total,
            ..DeviceReading::default()
        };
        let joined = Event::NodeJoined {
            node,
            name: format!("node{nth}"),
            running: Vec::new(),
            demand: Some(demand),
            reach: GangReach::Network,
        };
        self.step([joined]);
        let device = DeviceId(100 + nth);
        self.step([Event::DeviceRead { device, reading }]);
    }

    pub fn node_goes(&mut self, nth: u32) {
        let (node, why) = (NodeId(nth), "was given back".into());
        self.step([Event::NodeGone { node, why }]);
    }

    /// Lists outside of the hours, each with the time by which its load has to begin.
    pub fn batches_by(&mut self, demands: &[(u32, u64, Time)], deadline_evicts: bool) {
        let demands = demands.iter().map(|&(nth, lines, by)| BatchDemand {
            model: ModelId(nth),
            lines,
            may_evict: false,
            must_begin: Some(by),
            deadline_evicts,
        });
        let demands = demands.collect();
        self.step([Event::BatchesSet { demands }]);
    }

    pub fn arrival(&mut self, nth: u32) -> Event {
        self.given += 1;
        Event::RequestArrived {
            ticket: Ticket(self.given),
            model: ModelId(nth),
            key: KeyId(0),
        }
    }

    /// A request of this key, with the number of its ticket.
    pub fn arrives_from(&mut self, nth: u32, key: u64) -> Ticket {
        self.given += 1;
        let ticket = Ticket(self.given);
        let (model, key) = (ModelId(nth), KeyId(key));
        self.step([Event::RequestArrived { ticket, model, key }]);
        ticket
    }

    pub fn arrives(&mut self, nth: u32) {
        let arrival = self.arrival(nth);
        self.step([arrival]);
    }

    pub fn orders(&mut self, command: Command) {
        self.given += 1;
        let order = OrderId(self.given);
        self.step([Event::OrderReceived { order, command }]);
    }

    /// Ends a request of the replica.
    pub fn request_ends(&mut self, replica: ReplicaId) {
        let now = self.now;
        let Some(gate) = self.gates.get_mut(&replica) else {
            return;
        };
        let Some(left) = gate.in_flight.checked_sub(1) else {
            return;
        };
        gate.in_flight = left;
        gate.last_end = Some(now);
        let is_drained = gate.is_closed && left == 0;
        let readings = [gate.reading(replica)].to_vec();
        let drained = is_drained.then_some(Event::Drained { replica });
        self.step([Event::GatesRead { readings }].into_iter().chain(drained));
    }

    /// Gives a request a seat at an open gate, without the queue.
    pub fn enters(&mut self, replica: ReplicaId) {
        let gate = self.gates.entry(replica).or_default();
        if gate.is_closed {
            return;
        }
        gate.in_flight += 1;
        gate.entered += 1;
        let readings = [gate.reading(replica)].to_vec();
        self.step([Event::GatesRead { readings }]);
    }

    /// Loads the model for a request. It ends immediately, or stays in flight.
    pub fn serves(&mut self, nth: u32, is_busy: bool) {
        self.arrives(nth);
        self.settle();
        let replica = self.replica(nth).expect("loaded");
        if !is_busy {
            self.request_ends(replica);
        }
    }

    pub fn replica(&self, nth: u32) -> Option<ReplicaId> {
        let live = |id: &&ReplicaId| self.pool.replicas[*id].is_live();
        self.pool.models[&ModelId(nth)]
            .replicas
            .iter()
            .find(live)
            .copied()
    }

    /// The reasons of the evictions of the last step.
    pub fn causes(&self) -> impl Iterator<Item = &'static str> {
        self.actions.iter().filter_map(|action| match action {
            Action::Record(record) if record.kind == RecordKind::Evict => record.cause,
            _ => None,
        })
    }

    pub fn is_loaded(&self, nth: u32) -> bool {
        self.replica(nth).is_some()
    }
}

impl Gate {
    fn reading(&self, replica: ReplicaId) -> GateReading {
        GateReading {
            replica,
            in_flight: self.in_flight,
            entered: self.entered,
            last_end: self.last_end,
            idle_before: None,
        }
    }
}
