//! The pool: its facts, in parts with private fields, and what follows from several of them. `plan` chooses; `observe` and `commit`
//! change facts.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use crate::facts::agenda::Agenda;
use crate::facts::batches::Batches;
use crate::facts::consolidation::Consolidation;
use crate::facts::demand_index::DemandIndex;
use crate::facts::devices::Devices;
use crate::facts::disks::Disks;
use crate::facts::load_estimates::LoadEstimates;
use crate::facts::models::{Model, Models};
use crate::facts::node_demand::NodeDemand;
use crate::facts::nodes::Nodes;
use crate::facts::orders::Orders;
use crate::facts::queues::{Queues, Waiting};
use crate::facts::replicas::Replicas;
use crate::facts::room_hours::RoomHours;
use crate::facts::service::Service;
use crate::facts::shadows::Shadows;
use crate::facts::shares::{Charging, Lane, Shares};
use crate::types::autoscaling::Scaler;
use crate::types::ids::{ModelId, OrderId, Priority, ReplicaId, Ticket, Time};
use crate::types::market::Market;
use crate::types::model::Limits;
use crate::types::order::Order;
use crate::types::refusal_sums::Refusals;
use crate::types::replica::{Planned, Replica};

#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) limits: Limits,
    pub(crate) now: Time,
    pub(crate) service: Service,
    pub(crate) devices: Devices,
    pub(crate) nodes: Nodes,
    pub(crate) disks: Disks,
    /// The node sizes that a cluster can bring, and the pending request (S2).
    pub(crate) node_demand: NodeDemand,
    pub(crate) consolidation: Consolidation,
    pub(crate) models: Models,
    pub(crate) replicas: Replicas,
    pub(crate) planned: BTreeMap<ReplicaId, Planned>,
    pub(crate) load_estimates: LoadEstimates,
    pub(crate) queues: Queues,
    /// The batch work by model (B4).
    pub(crate) batches: Batches,
    pub(crate) room_hours: RoomHours,
    /// The service that groups and keys have had (F1, P9).
    pub(crate) shares: Shares,
    pub(crate) orders: Orders,
    /// Loaded models that may have several replicas.
    pub(crate) scalers: BTreeMap<ModelId, Scaler>,
    pub(crate) agenda: Agenda,
    pub(crate) demand_index: DemandIndex,
    /// The price of keeping idle models, for adaptive keep-hot times.
    pub(crate) market: Market,
    /// The loads that two eviction rules would have made.
    pub(crate) shadows: Shadows,
    pub(crate) refusals: Refusals,
}

impl Pool {
    /// An empty pool; devices and models come as events. Replica ids start at `first`, to avoid reusing ids of earlier runs.
    pub fn new(limits: Limits, night: bool, first: ReplicaId) -> Pool {
        Pool {
            limits,
            now: Time(0),
            service: Service::new(night),
            devices: Devices::default(),
            nodes: Nodes::default(),
            disks: Disks::default(),
            node_demand: NodeDemand::default(),
            consolidation: Consolidation::default(),
            models: Models::default(),
            replicas: Replicas::new(first),
            planned: BTreeMap::new(),
            load_estimates: LoadEstimates::default(),
            queues: Queues::default(),
            batches: Batches::default(),
            room_hours: RoomHours::default(),
            shares: Shares::default(),
            orders: Orders::default(),
            scalers: BTreeMap::new(),
            refusals: Refusals::default(),
            agenda: Agenda::default(),
            demand_index: DemandIndex::default(),
            market: Market::default(),
            shadows: Shadows::default(),
        }
    }

    /// The administrator's load of the model that is in progress.
    pub(crate) fn unfinished_load(&self, model: ModelId) -> Option<OrderId> {
        let loads = |order: &Order| order.load().is_some_and(|load| load.model == model);
        self.orders
            .iter()
            .find_map(|(&id, order)| loads(order).then_some(id))
    }

    /// The first forced load of an administrator that is in progress.
    pub(crate) fn forced_load(&self) -> Option<OrderId> {
        let forces = |order: &Order| order.load().is_some_and(|load| load.force);
        self.orders
            .iter()
            .find_map(|(&id, order)| forces(order).then_some(id))
    }

    /// Returns true if a replica has had this id since the start, or may have had it. Ids are never reused.
    pub fn has_given(&self, replica: ReplicaId) -> bool {
        self.replicas.has_given(replica)
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
        !self.service.is_night() && priority >= Priority::ALWAYS_HOT
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
        self.service.wall(self.now)
    }

    /// Converts a time of the machine's clock to the pool's clock.
    pub(crate) fn when_wall_shows(&self, at: Time) -> Time {
        self.service.when_wall_shows(at)
    }

    /// Updates the indices that depend on a model's priority and lease.
    pub(crate) fn reindex(&mut self, id: ModelId) {
        self.models.reindex(id);
        self.touch_model(id);
        self.grows_at_model(id);
    }

    /// The charging of requests for the model.
    pub(crate) fn charging(&self, id: ModelId) -> Charging {
        let model = self.models.get(&id);
        Charging {
            costs: model.and_then(|model| model.token_costs),
            request: model.and_then(|model| model.request_times.mean()),
        }
    }

    /// The request for the model that is served next (F1): the group, then the key that has been served least, then its first.
    pub(crate) fn next_waiting(&self, id: ModelId) -> Option<Ticket> {
        let (key, lane) = self.shares.next(id)?;
        let queue = &self.models.get(&id)?.queue;
        match lane {
            Lane::Reserved => queue.urgent(key),
            Lane::Usual => queue.usual(key).next(),
            Lane::Flex => queue.flex(key).next(),
        }
    }

    pub(crate) fn forget_ticket(&mut self, ticket: Ticket, served: bool) -> Option<Waiting> {
        let waiting = self.queues.leave(ticket)?;
        self.request_unqueued(&waiting);
        self.touch_model(waiting.model);
        // Its waiting request protected the model's replicas from eviction.
        self.grows_at_model(waiting.model);
        if served {
            self.models.has_served(waiting.model);
        }
        if let Some(model) = self.models.get_mut(&waiting.model) {
            model.queue.remove(ticket);
            if served {
                model.rent.reset();
            } else {
                model.rent.leaves(waiting.since, self.now);
            }
            if model.queue.is_empty() {
                self.queues.no_longer_wait_for(waiting.model);
            }
        }
        Some(waiting)
    }

    /// Returns true if the pool has completed its shutdown.
    pub fn is_finished(&self) -> bool {
        self.service.is_finished()
    }
}
