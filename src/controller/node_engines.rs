//! Engines on nodes: launches that go there, those of an earlier controller that are adopted (D2), commands that put
//! them to sleep, and readings of a node's devices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::adopting::arguments_problem;
use super::control::Control;
use super::message::{Message, ParkRequest, Parked, Readings};
use engine::{Kept, Launch, LivenessLimits, ReplicaLog};
use inventory::DeviceUse;
use node_link::{KeptForm, LaunchForm, NodeReadings, Order, Running, Start};
use pool::{Bytes, DeviceId, Event, ModelId, NodeId, ReplicaId, Share, Span, Time};

/// What requests show arrives some hundred milliseconds later than on the controller's machine.
const LIVENESS_MIN: Duration = Duration::from_secs(2);

/// Without another one, when the pool has no figure.
const STOP_GRACE_MS: u64 = 10_000;

impl Control {
    /// The node of a placement, if it is not this machine.
    pub(super) fn remote_node(&self, placement: &[Share]) -> Option<NodeId> {
        let device = self.devices.known.get(&placement.first()?.device)?;
        let node = device.info.node;
        self.nodes.is_remote(node).then_some(node)
    }

    /// Has the node start the engine. Its reports come over the node's connection.
    pub(super) fn launch_on(&self, node: NodeId, model: ModelId, launch: Launch, kept: Kept) {
        let mut launch = LaunchForm::of(launch);
        let limits = &mut launch.limits;
        *limits = LivenessLimits {
            stall_after: limits.stall_after.max(LIVENESS_MIN),
            first_token_after: limits.first_token_after.max(LIVENESS_MIN),
            ..limits.clone()
        };
        let start = Start {
            launch,
            kept: KeptForm::of(kept),
            weights: self.weights_form(node, model),
        };
        self.nodes.order(node, Order::Start(Box::new(start)));
    }

    /// An engine that a node has and this controller did not start.
    pub(super) fn adopt_from(&mut self, node: NodeId, it: &Running) -> Result<Event, String> {
        if it.ending {
            return Err("it was ordered to stop".to_owned());
        }
        let Some(ready_for_ms) = it.ready_for_ms else {
            return Err("it was not ready".to_owned());
        };
        if it.asleep {
            return Err("it was asleep".to_owned());
        }
        if self.config.pool.on_restart == config::OnRestart::Stop {
            return Err("pool.on_restart is stop".to_owned());
        }
        let model = self.models.ids.get(&it.model).copied();
        let Some((model, facts)) = model.and_then(|id| Some((id, self.models.facts.get(&id)?)))
        else {
            return Err("the model is no longer in the catalogue".to_owned());
        };
        if let Some(problem) = arguments_problem(&it.kept.arguments, &facts.entry) {
            return Err(problem);
        }
        let entry = Arc::clone(&facts.entry);
        let mut placement = Vec::new();
        for share in &it.kept.placement {
            let of_node = self.nodes.devices(node);
            let device = of_node
                .into_iter()
                .find(|id| self.devices.key(*id) == share.device);
            let device =
                device.ok_or_else(|| format!("its device {} is not there", share.device))?;
            let bytes = Bytes(share.bytes);
            placement.push(Share { device, bytes });
        }
        let replica = ReplicaId(it.replica);
        let endpoint = self
            .nodes
            .endpoint(node, replica)
            .ok_or("its node is not there")?;
        let log = Arc::new(ReplicaLog::in_memory());
        let watch = self.watch_of(&entry);
        self.know(replica, model, &placement, &log, &watch.activity);
        if let Some(facts) = self.engines.processes.get_mut(&replica) {
            facts.arguments = it.kept.arguments.clone();
            facts.pid = it.pid;
            facts.stage = None;
            facts.ready = true;
        }
        self.make_gate(replica, model, endpoint);
        self.offer(replica, model);
        let now = self.clock.now();
        tracing::info!(
            "adopted {} ({replica}) on node {}, which went on without us (D2)",
            it.model,
            self.nodes.name(node).unwrap_or_default()
        );
        Ok(Event::ReplicaAdopted {
            replica,
            model,
            placement,
            ready_for: Span(ready_for_ms),
            in_flight: 0,
            last_end: it.idle_for_ms.map(|ago| Time(now.0.saturating_sub(ago))),
        })
    }

    /// Has the node run a command that puts its engine to sleep or wakes it.
    pub(super) fn command_on(
        &self,
        node: NodeId,
        replica: ReplicaId,
        sleep: bool,
        words: Vec<String>,
        deadline: Span,
    ) {
        self.nodes.order(
            node,
            Order::Command {
                replica: replica.0,
                sleep,
                words,
                deadline_ms: deadline.0,
            },
        );
    }

    pub(super) fn commanded(
        &mut self,
        replica: ReplicaId,
        sleep: bool,
        outcome: Result<(), String>,
    ) {
        let request = match sleep {
            true => ParkRequest::Sleep,
            false => ParkRequest::Wake,
        };
        self.parked(Parked {
            replica,
            request,
            outcome,
        });
    }

    /// What a node read of its devices.
    pub(super) fn node_readings(&mut self, node: NodeId, mut readings: NodeReadings) {
        if let Some(event) = self.node_weights(node, readings.weights.take()) {
            self.turn(event);
        }
        let device = |name: &str| self.nodes.device(node, name);
        let mut own: BTreeMap<DeviceId, BTreeMap<ReplicaId, Bytes>> = BTreeMap::new();
        let mut devices = Vec::new();
        for it in &readings.devices {
            let Some(id) = device(&it.device) else {
                continue;
            };
            let held = it.replicas.iter();
            let held = held.map(|&(replica, bytes)| (ReplicaId(replica), Bytes(bytes)));
            own.insert(id, held.collect());
            devices.push(DeviceUse {
                id,
                total: Bytes(it.total),
                used: Bytes(it.used),
                own: Bytes(it.own),
                foreign: Bytes(it.foreign),
                processes: Vec::new(),
                utilisation_percent: it.utilisation_percent,
                temperature_celsius: it.temperature_celsius,
            });
        }
        let faults = readings.faults.iter();
        let faults = faults.filter_map(|(name, why)| Some((device(name)?, why.clone())));
        self.readings(Readings {
            node: Some(node),
            // Never later than now, whatever the node says.
            began: Time(readings.since_beat).min(self.clock.now()),
            devices,
            faults: faults.collect(),
            fault: None,
            lost: Vec::new(),
            owners: BTreeMap::new(),
            own,
            machine: readings.machine.map(Into::into),
        });
    }

    /// Engines of nodes stop by an order; a second one changes nothing.
    pub(super) fn stop_on(&self, node: NodeId, replica: ReplicaId, grace: Span) {
        self.nodes.order(
            node,
            Order::Stop {
                replica: replica.0,
                grace_ms: grace.0,
            },
        );
    }

    /// Work out anew what models need, for devices that have come: which they may use, and which kinds there are. All at
    /// once, and once for all the nodes that join until it begins: after a start of the controller a thousand may do so.
    pub(super) fn figure_for_devices(&mut self) {
        let is_it = |it: &Message| matches!(it, Message::FigureForDevices);
        if !self.models.changes.iter().any(is_it) {
            self.models.changes.push_back(Message::FigureForDevices);
        }
        self.next_change();
    }

    /// The models that run on devices of the pool.
    pub(super) fn local_models(&self) -> Vec<String> {
        let local = self.models.facts.values();
        let local = local.filter(|facts| !facts.entry.recipe.is_remote());
        local.map(|facts| facts.entry.name.clone()).collect()
    }

    /// Cordons that were kept for devices which have come with the node.
    pub(super) fn cordons_of_node(&mut self, node: NodeId) -> Vec<Event> {
        let mut events = Vec::new();
        for device in self.nodes.devices(node) {
            let key = self.devices.key(device);
            let mut kept = self.nodes.cordons.iter();
            if let Some(at) = kept.position(|(of, _)| *of == key) {
                let (_, cordon) = self.nodes.cordons.swap_remove(at);
                events.push(Event::CordonRestored { device, cordon });
            }
        }
        events
    }

    /// Ends an engine of a node that the pool has given up.
    pub(super) fn disown(&self, node: NodeId, replica: ReplicaId) {
        self.nodes.order(
            node,
            Order::Stop {
                replica: replica.0,
                grace_ms: STOP_GRACE_MS,
            },
        );
    }
}
