//! The facts of the pool. `plan` chooses; `observe` and `commit` change facts.
//! One file because it is the list of the pool's facts, with what is computed from several of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};

use crate::facts::agenda::Agenda;
use crate::facts::closings::Closings;
use crate::facts::demand_index::DemandIndex;
use crate::facts::devices::Devices;
use crate::facts::expected::ExpectedReplicas;
use crate::facts::host::Host;
use crate::facts::load_estimates::LoadEstimates;
use crate::facts::shadows::Shadows;
use crate::types::autoscaling::Scaler;
use crate::types::demand::Demand;
use crate::types::fetch::Fetch;
use crate::types::ids::{
    Bytes, DeviceId, KeyId, KindId, LoaderId, ModelId, NodeId, OrderId, Priority, ReplicaId, Span,
    Ticket, Time,
};
use crate::types::link::Link;
use crate::types::load_times::LoadTimes;
use crate::types::market::Market;
use crate::types::model::{Cordon, Limits, LoadWish, ModelSpec, Override};
use crate::types::node::{Node, NodeTime};
use crate::types::node_demand::NodeDemand;
use crate::types::occupancy::RequestTimes;
use crate::types::order::Order;
use crate::types::queue::Queue;
use crate::types::refusal_sums::Refusals;
use crate::types::replica::{Planned, Replica};
use crate::types::saves::{Saves, SettingOrders};

/// A model: the catalogue's facts (`spec`), the administrators' settings (`over`, `wish`), and its history (the rest). They are
/// separate to rule out confusion.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) spec: ModelSpec,
    pub(crate) over: Override,
    pub(crate) set_by: SettingOrders,
    pub(crate) wish: Option<LoadWish>,
    /// The order that set the wish, while it may still revert it.
    pub(crate) wished_by: Option<OrderId>,
    /// A wish from before a restart that has not been carried out yet.
    pub(crate) restoring: bool,
    pub(crate) removed: bool,
    /// A replica came back from a silence or a restart. It may have been replaced, so surplus replicas leave (N8).
    pub(crate) has_returned: bool,
    /// The registration time. The older always-hot model wins (P4).
    pub(crate) since: Time,
    pub(crate) queue: Queue,
    pub(crate) replicas: BTreeSet<ReplicaId>,
    pub(crate) planned: BTreeSet<ReplicaId>,
    pub(crate) failures: u32,
    /// The number of failures that were crashes of engines that had become ready.
    pub(crate) crashes: u32,
    /// The last failure was permanent, so waiting does not help (L3).
    pub(crate) permanent_failure: bool,
    pub(crate) last_failure: Option<String>,
    pub(crate) cooling_until: Option<Time>,
    pub(crate) demand: Demand,
    /// The measured memory per device, by number and kind of devices (M1).
    pub(crate) learned: BTreeMap<(u32, KindId), Bytes>,
    /// Its last load ran out of memory and has been planned again.
    pub(crate) retried_after_oom: bool,
    pub(crate) load_times: LoadTimes,
    /// The expected time of a load that was never measured, learned from other models.
    pub(crate) learned_load: Option<Span>,
    /// The time its replicas take to end once they are stopped.
    pub(crate) stop_takes: Span,
    /// The time the requests in flight took to end when a busy replica was drained.
    pub(crate) drain_takes: Span,
    pub(crate) request_times: RequestTimes,
    pub(crate) last_used: Option<Time>,
    pub(crate) seated: u64,
    /// The number of requests that got their seat from the queue, and their total waiting time.
    pub(crate) waits: u64,
    pub(crate) waits_took: Span,
    pub(crate) fetch: Option<Fetch>,
    /// The time its weights were fetched.
    pub(crate) fetched_at: Option<Time>,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub model: ModelId,
    pub key: KeyId,
    pub since: Time,
    pub deadline: Time,
    /// The time at which its client gives up on its own; at the latest its deadline.
    pub gives_up: Time,
}

#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) limits: Limits,
    pub(crate) now: Time,
    pub(crate) devices: Devices,
    /// The devices of each node that is not gone.
    pub(crate) nodes: BTreeMap<NodeId, BTreeSet<DeviceId>>,
    /// Nodes that have joined, including nodes that are gone again.
    pub(crate) known_nodes: BTreeMap<NodeId, Node>,
    /// Silent nodes, and the time since which they are silent (N2).
    pub(crate) silent: BTreeMap<NodeId, Time>,
    /// Replicas on nodes that are expected back after a restart (N8).
    pub(crate) expected: ExpectedReplicas,
    /// Nodes whose end is known (N7).
    pub(crate) node_times: BTreeMap<NodeId, NodeTime>,
    /// The time at which the models of each node start to move. Nodes whose models already move are not listed.
    pub(crate) moves_due: BTreeSet<(Time, NodeId)>,
    /// Nodes whose models move.
    pub(crate) moving: BTreeSet<NodeId>,
    /// Engines on nodes that are not, or no longer, replicas, until they have ended or are adopted (N4).
    pub(crate) given_up: BTreeMap<ReplicaId, NodeId>,
    /// Drains by node name, including nodes that are not present (N5).
    pub(crate) drains: BTreeMap<String, Cordon>,
    /// The models whose weights each node reports to have (N6).
    pub(crate) weights_on: BTreeMap<NodeId, BTreeSet<ModelId>>,
    /// The node sizes that a cluster can bring, and the pending request (S2).
    pub(crate) node_demand: NodeDemand,
    /// The node that left last, and the reason.
    pub(crate) last_gone: Option<(String, String)>,
    /// Devices that have left with their nodes.
    pub(crate) departed: BTreeMap<DeviceId, Departed>,
    pub(crate) models: BTreeMap<ModelId, Model>,
    pub(crate) replicas: BTreeMap<ReplicaId, Replica>,
    pub(crate) planned: BTreeMap<ReplicaId, Planned>,
    /// The ledger of each node's host memory for sleepers.
    pub(crate) hosts: BTreeMap<NodeId, Host>,
    pub(crate) asleep: BTreeSet<ReplicaId>,
    /// Victims that serve until the others of their load have nearly finished (P8).
    pub(crate) leaving_later: BTreeSet<ReplicaId>,
    pub(crate) load_estimates: LoadEstimates,
    pub(crate) tickets: BTreeMap<Ticket, Waiting>,
    pub(crate) deadlines: BTreeSet<(Time, Ticket)>,
    pub(crate) orders: BTreeMap<OrderId, Order>,
    pub(crate) saves: Saves,
    /// Wishes from before a restart for models that the catalogue does not have yet.
    pub(crate) unmet_wishes: BTreeMap<ModelId, (Override, Option<LoadWish>)>,
    /// Models with waiting requests.
    pub(crate) waited_for: BTreeSet<ModelId>,
    /// Models of always-hot priority, protected now or not.
    pub(crate) hot: BTreeSet<ModelId>,
    /// Models with wishes from before a restart.
    pub(crate) restoring: BTreeSet<ModelId>,
    /// Models whose weights are being fetched.
    pub(crate) fetching: BTreeSet<ModelId>,
    /// Loaded models that may have several replicas.
    pub(crate) scalers: BTreeMap<ModelId, Scaler>,
    /// Devices that wait for memory of ended processes (M4).
    pub(crate) settling: BTreeSet<DeviceId>,
    pub(crate) agenda: Agenda,
    pub(crate) demand_index: DemandIndex,
    /// Busy replicas that cost waiting requests more than closing their gates would (P3).
    pub(crate) pressed: BTreeSet<ReplicaId>,
    /// The cost of closing their gates, judged afterwards.
    pub(crate) closings: Closings,
    /// A fact that planned loads may depend on has changed.
    pub(crate) promises_changed: bool,
    /// The price of keeping idle models, for adaptive keep-hot times.
    pub(crate) market: Market,
    /// The loads that two eviction rules would have made.
    pub(crate) shadows: Shadows,
    /// Loads that have reserved a disk or link of a node.
    pub(crate) reading: BTreeSet<(NodeId, LoaderId, ReplicaId)>,
    /// Lease ends, by the machine's clock.
    pub(crate) leases: BTreeSet<(Time, ModelId)>,
    /// Milliseconds by which the machine's clock is ahead of `now`.
    pub(crate) wall_ahead: i64,
    pub(crate) refusals: Refusals,
    /// Between the evening cleanup and the morning (E2).
    pub(crate) night: bool,
    pub(crate) closing: Option<Time>,
    pub(crate) finished: bool,
    pub(crate) replica_next: u64,
    /// Replicas with lower ids belong to earlier controllers.
    pub(crate) replica_first: u64,
}

/// The facts kept about a device whose node is gone and may come back.
#[derive(Clone, Debug)]
pub(crate) struct Departed {
    pub name: String,
    pub cordon: Option<Cordon>,
    pub links: BTreeMap<DeviceId, Link>,
}

impl Pool {
    /// An empty pool; devices and models come as events. Replica ids start at `first`, to avoid reusing ids of earlier runs.
    pub fn new(limits: Limits, night: bool, first: ReplicaId) -> Pool {
        Pool {
            limits,
            now: Time(0),
            devices: Devices::default(),
            nodes: BTreeMap::new(),
            known_nodes: BTreeMap::new(),
            silent: BTreeMap::new(),
            expected: ExpectedReplicas::new(),
            node_times: BTreeMap::new(),
            moves_due: BTreeSet::new(),
            moving: BTreeSet::new(),
            given_up: BTreeMap::new(),
            drains: BTreeMap::new(),
            weights_on: BTreeMap::new(),
            node_demand: NodeDemand::default(),
            last_gone: None,
            departed: BTreeMap::new(),
            models: BTreeMap::new(),
            replicas: BTreeMap::new(),
            planned: BTreeMap::new(),
            hosts: BTreeMap::new(),
            asleep: BTreeSet::new(),
            leaving_later: BTreeSet::new(),
            load_estimates: LoadEstimates::default(),
            tickets: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            orders: BTreeMap::new(),
            saves: Saves::default(),
            unmet_wishes: BTreeMap::new(),
            waited_for: BTreeSet::new(),
            hot: BTreeSet::new(),
            restoring: BTreeSet::new(),
            fetching: BTreeSet::new(),
            scalers: BTreeMap::new(),
            leases: BTreeSet::new(),
            wall_ahead: 0,
            refusals: Refusals::default(),
            settling: BTreeSet::new(),
            agenda: Agenda::default(),
            demand_index: DemandIndex::default(),
            pressed: BTreeSet::new(),
            closings: Closings::default(),
            promises_changed: false,
            market: Market::default(),
            shadows: Shadows::default(),
            reading: BTreeSet::new(),
            night,
            closing: None,
            finished: false,
            replica_next: first.0,
            replica_first: first.0,
        }
    }

    /// The administrator's load of the model that is in progress.
    pub(crate) fn unfinished_load(&self, model: ModelId) -> Option<OrderId> {
        let loads = |order: &Order| order.load().is_some_and(|load| load.model == model);
        self.orders
            .iter()
            .find_map(|(&id, order)| loads(order).then_some(id))
    }

    /// Returns true if a replica has had this id since the start, or may have had it. Ids are never reused.
    pub fn has_given(&self, replica: ReplicaId) -> bool {
        (self.replica_first..self.replica_next).contains(&replica.0)
    }

    /// A model's priority: an administrator's override, else the catalogue's (P1).
    pub fn priority(&self, model: ModelId) -> Priority {
        self.models.get(&model).map_or(Priority(0), Model::priority)
    }

    /// Returns true if the model is always-hot now (P4, E2).
    pub fn is_protected(&self, model: ModelId) -> bool {
        self.protects(self.priority(model))
    }

    /// The same for a model with this priority.
    pub(crate) fn protects(&self, priority: Priority) -> bool {
        !self.night && priority >= Priority::ALWAYS_HOT
    }

    pub(crate) fn name(&self, model: ModelId) -> String {
        self.models
            .get(&model)
            .map_or_else(|| model.to_string(), |model| model.spec.name.clone())
    }

    /// The number of replicas that serve or will: loading or ready. A load that timed out and an engine that crashed count until
    /// they are gone, because their end decides what happens to the waiting requests (L3). Replicas on a silent node count for a
    /// while (N2).
    pub(crate) fn live(&self, model: &Model) -> usize {
        model
            .replicas
            .iter()
            .map(|id| &self.replicas[id])
            .filter(|replica| self.counts_as_live(replica))
            .count()
    }

    pub(crate) fn counts_as_live(&self, replica: &Replica) -> bool {
        let lives = replica.is_live() || replica.ran_out_of_time() || replica.crashed();
        lives && !self.is_written_off(replica)
    }

    /// Returns true if demand does not load the model until an administrator loads it or its configuration changes (L3).
    pub(crate) fn is_quarantined(&self, model: &Model) -> bool {
        model.permanent_failure || model.failures >= self.limits.failures_max
    }

    /// Returns true if the replica was started with other settings than its model has now.
    pub(crate) fn is_outdated(&self, id: ReplicaId) -> bool {
        let replica = &self.replicas[&id];
        replica.started_with != self.models[&replica.model].spec.started_with
    }

    /// The time of the machine's clock, by which leases end.
    pub(crate) fn wall(&self) -> Time {
        Time(self.now.0.saturating_add_signed(self.wall_ahead))
    }

    /// Converts a time of the machine's clock to the pool's clock.
    pub(crate) fn when_wall_shows(&self, at: Time) -> Time {
        Time(at.0.saturating_add_signed(self.wall_ahead.saturating_neg()))
    }

    /// Updates the indices that depend on a model's priority and lease.
    pub(crate) fn reindex(&mut self, id: ModelId) {
        self.leases.retain(|(_, model)| *model != id);
        self.hot.remove(&id);
        if let Some(model) = self.models.get(&id).filter(|model| !model.removed) {
            if model.priority() >= Priority::ALWAYS_HOT {
                self.hot.insert(id);
            }
            if let Some(expires) = model.over.expires {
                self.leases.insert((expires, id));
            }
        }
        self.touch_model(id);
        self.grows_at_model(id);
    }

    pub(crate) fn forget_ticket(&mut self, ticket: Ticket, served: bool) -> Option<Waiting> {
        let waiting = self.tickets.remove(&ticket)?;
        self.deadlines.remove(&(waiting.deadline, ticket));
        let waited = self.now.since(waiting.since);
        self.closings.leaves(ticket, waited);
        self.touch_model(waiting.model);
        // Its waiting request protected the model's replicas from eviction.
        self.grows_at_model(waiting.model);
        if let Some(model) = self.models.get_mut(&waiting.model) {
            if served {
                model.queue.serve(ticket);
            } else {
                model.queue.leave(ticket);
            }
            if model.queue.is_empty() {
                self.waited_for.remove(&waiting.model);
            }
        }
        Some(waiting)
    }

    /// Returns true if the pool has completed its shutdown.
    pub fn is_finished(&self) -> bool {
        self.finished
    }
}

impl Model {
    pub(crate) fn new(spec: ModelSpec, since: Time) -> Model {
        Model {
            spec,
            over: Override::default(),
            set_by: SettingOrders::default(),
            wish: None,
            wished_by: None,
            restoring: false,
            removed: false,
            has_returned: false,
            since,
            queue: Queue::default(),
            replicas: BTreeSet::new(),
            planned: BTreeSet::new(),
            failures: 0,
            crashes: 0,
            permanent_failure: false,
            last_failure: None,
            cooling_until: None,
            demand: Demand::default(),
            learned: BTreeMap::new(),
            retried_after_oom: false,
            load_times: LoadTimes::default(),
            learned_load: None,
            stop_takes: Span::ZERO,
            drain_takes: Span::ZERO,
            request_times: RequestTimes::default(),
            last_used: None,
            seated: 0,
            waits: 0,
            waits_took: Span::ZERO,
            fetch: None,
            fetched_at: None,
        }
    }

    pub fn priority(&self) -> Priority {
        self.over.priority.unwrap_or(self.spec.priority)
    }

    /// The time until the model's lease ends (P7), by the machine's clock; `None` if it has no lease.
    pub(crate) fn lease_left(&self, wall: Time) -> Option<Span> {
        let left = self.over.expires?.since(wall);
        (left > Span::ZERO).then_some(left)
    }

    /// The expected time of the next load.
    pub(crate) fn reload(&self) -> Span {
        let learned = self.load_times.expected().or(self.learned_load);
        learned.unwrap_or(self.spec.reload)
    }

    pub(crate) fn forget_failures(&mut self) {
        self.failures = 0;
        self.crashes = 0;
        self.permanent_failure = false;
        self.last_failure = None;
        self.cooling_until = None;
    }

    /// Returns true if an administrator unloaded the model. It returns by demand only, not on its own (P4).
    pub(crate) fn kept_away(&self) -> bool {
        self.wish.as_ref().is_some_and(|wish| wish.replicas == 0)
    }
}
