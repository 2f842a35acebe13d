//! A read-only snapshot of the pool for administrators, metrics and waiting clients. The shell has it built on demand; it cannot
//! change the pool.
//! One file because a snapshot is built in one pass over the pool.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::facts::host::Host;
use crate::facts::models::Model;
use crate::facts::shares::Lane;
use crate::facts::state::Pool;
use crate::plan::batch_nodes;
use crate::plan::keep_hot::keep_hot_ends;
use crate::types::event::Command;
use crate::types::forecast::WaitRange;
use crate::types::ids::{
    Bytes, DeviceId, KeyId, KindId, ModelId, NodeId, OrderId, Priority, ReplicaId, Span, Ticket,
    Time,
};
use crate::types::model::{Cordon, LoadWish, Override, Tier};
use crate::types::node_demand::{BatchNodes, NodeBudget, NodeShapeView, NodesSpent, PendingNode};
use crate::types::replica::Phase;
use crate::types::replica_state::ReplicaState;
use crate::types::requirements::Requirements;
use crate::types::share::Share;
use crate::view::nodes::NodeView;

#[derive(Clone, Debug, Default)]
pub struct PoolView {
    pub now: Time,
    pub night: bool,
    pub closing: bool,
    pub models: Vec<ModelView>,
    pub devices: Vec<DeviceView>,
    pub nodes: Vec<NodeView>,
    /// The open requests for more nodes, the oldest first (S2).
    pub node_demands: Vec<PendingNode>,
    /// The node sizes that the cluster can bring.
    pub node_shapes: Vec<NodeShapeView>,
    /// The use by requested nodes, and its limits.
    pub nodes_spent: NodesSpent,
    pub node_budget: NodeBudget,
    /// The limits for nodes for batches (B8).
    pub batch_nodes: Option<BatchNodes>,
    pub hosts: Vec<HostView>,
    /// In the order in which each model serves them.
    pub waiting: Vec<WaitingView>,
    pub orders: Vec<OrderView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelState {
    Cold,
    Waiting,
    Fetching,
    Loading,
    Ready,
    Asleep,
    Draining,
    Cooling,
    Quarantined,
}

#[derive(Clone, Debug)]
pub struct ModelView {
    pub model: ModelId,
    pub name: String,
    pub state: ModelState,
    pub priority: Priority,
    pub protected: bool,
    pub keep_hot: Span,
    pub over: Override,
    pub wish: Option<LoadWish>,
    pub replicas: Vec<ReplicaView>,
    pub waiting: u32,
    pub devices_per_replica: u32,
    pub bytes_per_device: Bytes,
    /// Figures learned for kinds of devices (M1).
    pub learned: Vec<(KindId, Bytes)>,
    pub failures: u32,
    pub last_failure: Option<String>,
    pub cooling_until: Option<Time>,
    /// The expected time of the next load.
    pub reload: Span,
    /// The longest time a load may take (L3).
    pub load_deadline: Span,
    /// Between SIGTERM and SIGKILL (L5).
    pub stop_grace: Span,
    /// The load times, by the source of the weights.
    pub load_times: Vec<(Tier, Span)>,
    pub seated: u64,
    /// The number of requests that got their seat from the queue, and their total waiting time.
    pub waits: u64,
    pub waits_took: Span,
    pub last_used: Option<Time>,
    /// Its weights are damaged or not on this machine.
    pub absent: bool,
    /// The damage of the weights on this machine.
    pub damage: Option<String>,
    /// The time for which its weights have been fetched so far.
    pub fetching_for: Option<Span>,
    /// The reason why no node is requested for its batches, although they fit nowhere (B8).
    pub no_batch_node: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ReplicaView {
    pub replica: ReplicaId,
    pub state: ReplicaState,
    /// The time in this state.
    pub for_: Span,
    pub shares: Vec<Share>,
    pub in_flight: u32,
    pub ready_at: Option<Time>,
    /// The time at which keep-hot unloads it.
    pub expires: Option<Time>,
    /// The reason why it was loaded or why it leaves.
    pub reason: String,
}

#[derive(Clone, Debug)]
pub struct DeviceView {
    pub device: DeviceId,
    pub node: NodeId,
    pub total: Bytes,
    pub headroom: Bytes,
    pub foreign: Bytes,
    /// The bytes that the pool's replicas hold beyond their reservations.
    pub excess: Bytes,
    /// Memory of ended processes that has not been returned yet (M4).
    pub settling: Bytes,
    pub reserved: Bytes,
    pub promised: Bytes,
    pub free: Bytes,
    pub cordon: Option<Cordon>,
}

/// A node's host memory for sleepers.
#[derive(Clone, Debug)]
pub struct HostView {
    pub node: NodeId,
    /// The maximum for all sleepers together.
    pub capacity: Bytes,
    pub available: Bytes,
    pub held: Bytes,
    /// The parts of awake and loading replicas there.
    pub parts: Bytes,
    pub sleepers: u32,
}

#[derive(Clone, Debug)]
pub struct WaitingView {
    pub ticket: Ticket,
    pub model: ModelId,
    pub key: KeyId,
    /// Position 1 is served next.
    pub position: u32,
    pub since: Time,
    /// The expected time until its seat.
    pub expected: Span,
    /// The range of nine in ten waits with this forecast, if they differ by more than a fifth.
    pub range: Option<WaitRange>,
}

#[derive(Clone, Debug)]
pub struct OrderView {
    pub order: OrderId,
    pub what: &'static str,
    pub model: Option<ModelId>,
    /// The target number of replicas of a load that has begun.
    pub replicas: Option<u32>,
    pub since: Time,
}

impl Pool {
    /// The waiting requests for the model in the order in which they will be served, as far as it is known. The others follow by
    /// arrival.
    fn serving_order(&self, id: ModelId) -> Vec<Ticket> {
        let queue = &self.models[&id].queue;
        let left = |key, lane| match lane {
            Lane::Flex => queue.flex(key).len(),
            Lane::Reserved | Lane::Usual => queue.usual(key).len(),
        };
        let turns = self.shares.next_turns(id, self.charging(id), left);
        let mut taken: BTreeMap<(KeyId, Lane), usize> = BTreeMap::new();
        let mut order: Vec<Ticket> = self.next_waiting(id).into_iter().collect();
        let first = order.first().copied();
        for (key, lane) in turns {
            let nth = taken.entry((key, lane)).or_default();
            let ticket = match lane {
                Lane::Flex => queue.flex(key).nth(*nth),
                Lane::Reserved | Lane::Usual => queue.usual(key).nth(*nth),
            };
            *nth += 1;
            order.extend(ticket.filter(|ticket| Some(*ticket) != first));
        }
        let known: BTreeSet<Ticket> = order.iter().copied().collect();
        order.extend(queue.by_arrival().filter(|ticket| !known.contains(ticket)));
        order
    }

    /// The state after the last step. `now` only affects the ages.
    pub fn view(&self, now: Time) -> PoolView {
        let mut waiting = Vec::with_capacity(self.queues.len());
        for id in self.queues.waited_for() {
            let expected = self.expected_wait(*id);
            for (nth, ticket) in self.serving_order(*id).into_iter().enumerate() {
                let request = &self.queues[&ticket];
                let position = u32::try_from(nth + 1).unwrap_or(u32::MAX);
                waiting.push(WaitingView {
                    ticket,
                    model: *id,
                    key: request.key,
                    position,
                    since: request.since,
                    expected,
                    range: None,
                });
            }
        }
        PoolView {
            now: self.now.max(now),
            night: self.service.is_night(),
            closing: self.service.is_closing(),
            models: self
                .models
                .iter()
                .filter(|(_, model)| !model.removed || !model.replicas.is_empty())
                .map(|(&id, model)| self.model_view(id, model))
                .collect(),
            devices: self
                .devices
                .iter()
                .map(|(&id, device)| device_view(id, device))
                .collect(),
            nodes: self.node_views(),
            node_demands: self.node_demand.pending().cloned().collect(),
            node_shapes: crate::plan::node_choice::views(self),
            nodes_spent: self.node_demand.spent(),
            node_budget: self.limits.node_budget,
            batch_nodes: self.limits.batch_nodes,
            hosts: self.host_views(),
            waiting,
            orders: self
                .orders
                .iter()
                .map(|(&id, order)| order_view(id, order))
                .collect(),
        }
    }

    /// The time since which the replica has been ready, if it is.
    pub fn ready_since(&self, replica: ReplicaId) -> Option<Time> {
        self.replicas.get(&replica)?.ready_since()
    }

    /// Planned loads that have not started.
    pub fn planned_loads(&self) -> BTreeSet<ReplicaId> {
        self.planned.keys().copied().collect()
    }

    fn model_view(&self, id: ModelId, model: &Model) -> ModelView {
        let planned = model.planned.iter().map(|load| {
            let planned = &self.planned[load];
            ReplicaView {
                replica: *load,
                state: ReplicaState::Planned,
                for_: self.now.since(planned.since),
                shares: planned.shares.clone(),
                in_flight: 0,
                ready_at: None,
                expires: None,
                reason: match planned.victims.len() {
                    0 => planned.why.to_string(),
                    count => format!("{}; {count} leaving for it", planned.why),
                },
            }
        });
        let needs = Requirements::new(self, id, self.now);
        let replicas: Vec<ReplicaView> = model
            .replicas
            .iter()
            .map(|replica| self.replica_view(*replica))
            .chain(planned)
            .collect();
        ModelView {
            model: id,
            name: model.spec.name.clone(),
            state: self.model_state(model),
            priority: model.priority(),
            protected: self.is_protected(id),
            keep_hot: self.keep_hot(id),
            over: model.over.clone(),
            wish: model.wish.clone(),
            replicas,
            waiting: u32::try_from(model.queue.len()).unwrap_or(u32::MAX),
            devices_per_replica: needs.devices,
            bytes_per_device: needs.bytes,
            learned: needs.by_kind,
            failures: model.failures,
            last_failure: model.last_failure.clone(),
            cooling_until: model.cooling_until.filter(|until| *until > self.now),
            reload: model.reload(),
            load_deadline: model.spec.load_deadline,
            stop_grace: model.spec.stop_grace,
            load_times: Tier::ALL
                .into_iter()
                .filter_map(|tier| Some((tier, model.load_times.get(tier)?)))
                .collect(),
            seated: model.seated,
            waits: model.waits,
            waits_took: model.waits_took,
            last_used: model.last_used,
            absent: model.spec.absent,
            damage: model.spec.damage.clone(),
            fetching_for: model
                .fetch
                .as_ref()
                .map(|fetch| self.now.since(fetch.since)),
            no_batch_node: batch_nodes::obstacle(self, id),
        }
    }

    fn host_views(&self) -> Vec<HostView> {
        let on = |node| {
            let there = |id: &&ReplicaId| self.node_of(&self.replicas[*id]) == node;
            self.replicas.asleep().iter().filter(there).count() as u32
        };
        let view = |(&node, host): (&NodeId, &Host)| HostView {
            node,
            capacity: host.capacity,
            available: host.available,
            held: host.held,
            parts: self.parts_on_host(node),
            sleepers: on(node),
        };
        self.nodes.hosts().iter().map(view).collect()
    }

    fn model_state(&self, model: &Model) -> ModelState {
        let any = |test: fn(&Phase) -> bool| {
            model
                .replicas
                .iter()
                .any(|id| test(&self.replicas[id].phase))
        };
        if any(|phase| matches!(phase, Phase::Ready { .. })) {
            ModelState::Ready
        } else if any(|phase| matches!(phase, Phase::Launching { .. })) {
            ModelState::Loading
        } else if model.fetch.is_some() {
            ModelState::Fetching
        } else if !model.planned.is_empty() || !model.queue.is_empty() {
            ModelState::Waiting
        } else if any(|phase| matches!(phase, Phase::Asleep { .. })) {
            ModelState::Asleep
        } else if !model.replicas.is_empty() {
            ModelState::Draining
        } else if self.is_quarantined(model) {
            ModelState::Quarantined
        } else if model.cooling_until.is_some_and(|until| until > self.now) {
            ModelState::Cooling
        } else {
            ModelState::Cold
        }
    }

    fn replica_view(&self, id: ReplicaId) -> ReplicaView {
        let replica = &self.replicas[&id];
        let reason = match &replica.phase {
            Phase::Launching { .. } | Phase::Ready { .. } => match &replica.leaves_with {
                Some(with) => format!(
                    "serves until other replicas have finished (P8): {}",
                    with.reason
                ),
                None => replica.why.to_string(),
            },
            Phase::Draining { reason, .. }
            | Phase::Parking { reason, .. }
            | Phase::Asleep { reason, .. } => reason.to_string(),
            Phase::Stopping {
                reason,
                was_launching,
                ..
            } => {
                let what = if *was_launching { "load ended: " } else { "" };
                format!("{what}{reason}")
            }
        };
        ReplicaView {
            replica: id,
            state: replica.phase.state(),
            for_: self.phase_age(&replica.phase),
            shares: replica.shares.clone(),
            in_flight: replica.in_flight,
            ready_at: replica.ready_since(),
            expires: keep_hot_ends(self, id),
            reason,
        }
    }
}

fn device_view(device: DeviceId, ledger: &crate::facts::device::Device) -> DeviceView {
    DeviceView {
        device,
        node: ledger.node,
        total: ledger.total,
        headroom: ledger.headroom,
        foreign: ledger.foreign,
        excess: ledger.excess,
        settling: ledger.settling,
        reserved: ledger.reserved,
        promised: ledger.promised,
        free: ledger.free_now(),
        cordon: ledger.cordon.clone(),
    }
}

fn order_view(order: OrderId, active: &crate::types::order::Order) -> OrderView {
    let (what, model) = match &active.command {
        Command::Load(load) => ("load", Some(load.model)),
        Command::Unload { model, .. } => ("unload", Some(*model)),
        Command::Set { model, .. } => ("set", Some(*model)),
        Command::Cleanup { .. } => ("cleanup", None),
        Command::Reopen => ("reopen", None),
        Command::Reset => ("reset", None),
        Command::Cordon { .. } => ("cordon", None),
        Command::Uncordon { .. } => ("uncordon", None),
        Command::DrainNode { .. } => ("drain_node", None),
        Command::UndrainNode { .. } => ("undrain_node", None),
        Command::Shutdown { .. } => ("shutdown", None),
    };
    OrderView {
        order,
        what,
        model,
        replicas: active.load().map(|_| active.replicas),
        since: active.since,
    }
}

impl ModelState {
    pub fn name(self) -> &'static str {
        match self {
            ModelState::Cold => "cold",
            ModelState::Waiting => "waiting",
            ModelState::Fetching => "fetching",
            ModelState::Loading => "loading",
            ModelState::Ready => "ready",
            ModelState::Asleep => "asleep",
            ModelState::Draining => "draining",
            ModelState::Cooling => "cooling",
            ModelState::Quarantined => "quarantined",
        }
    }
}

impl Pool {
    /// The time since the phase began.
    pub(crate) fn phase_age(&self, phase: &Phase) -> Span {
        let since: Time = match phase {
            Phase::Launching { since, .. }
            | Phase::Ready { since }
            | Phase::Draining { since, .. }
            | Phase::Parking { since, .. }
            | Phase::Asleep { since, .. }
            | Phase::Stopping { since, .. } => *since,
        };
        self.now.since(since)
    }
}
